"""Shamir's secret sharing: points of a polynomial whose value at zero is the secret."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

# The polynomials are over the field of this many elements.
PRIME = 2**255 - 19
SHARE_BYTES = 32


def shares(secret: int, count: int, need: int) -> list[bytes]:
    """Return Shamir's shares of a secret: any `need` of them tell it, fewer tell nothing.

    Parameters
    ----------
    secret : int
        Below 2^255 - 19.
    count, need : int
        How many shares there are, and how many are needed.

    Examples
    --------
    >>> from heterofactor.federation.shamir import joined_shares, shares
    >>> one, two, three = shares(42, 3, need=2)
    >>> joined_shares({1: one, 3: three}, need=2)
    42
    """
    factors = [secret, *(secrets.randbelow(PRIME) for _ in range(need - 1))]
    found = []
    for point in range(1, count + 1):
        value = 0
        for factor in reversed(factors):
            value = (value * point + factor) % PRIME
        found.append(value.to_bytes(SHARE_BYTES, "little"))
    return found


def joined_shares(points: Mapping[int, bytes], need: int) -> int:
    """Return the secret that shares tell, by interpolation at zero.

    Parameters
    ----------
    points : dict of bytes
        Shares by their number, from 1.
    need : int
        How many are needed.

    Examples
    --------
    >>> from heterofactor.federation.shamir import joined_shares, shares
    >>> joined_shares(dict(enumerate(shares(7, 2, need=1), start=1)), need=1)
    7
    """
    chosen = dict(list(points.items())[:need])
    secret = 0
    for point, share in chosen.items():
        weight = 1
        for other in chosen:
            if other != point:
                weight = weight * other * pow(other - point, -1, PRIME) % PRIME
        secret += int.from_bytes(share, "little") * weight
    return secret % PRIME
