r"""Secure aggregation: the server learns the sum of the sites' messages, and none of them.

Numbers become integers modulo :math:`2^{64}`, and site u sends

.. math:: y_u = x_u + G(b_u) + \sum_{v > u} G(s_{uv}) - \sum_{v < u} G(s_{uv}),

with a generator G (ChaCha20), a seed :math:`s_{uv}` that u and v agree on (X25519, then HKDF with
the number of the round), and a seed :math:`b_u` of its own, of which every site gets a share
(Shamir's, `need` of which tell the seed, enciphered so that the server can carry but not read
them). In the sum of all, the pairwise masks cancel. Then the server names those whose message has
come; each of these answers, once for every round, with its shares of *their* seeds :math:`b`, and
with the seeds that it has in common with those whose message has not. (Bonawitz et al., Practical
Secure Aggregation for Privacy-Preserving Machine Learning, 2017; only, the pairwise seeds of who
drops out are told by the others, and not put together from shares.)

Against whom: a server that follows the protocol and is curious, together with fewer than `need`
sites. A site's message stays hidden among those of the other honest sites that took part: also
where it came late, after the others had told their seeds in common with it, because of
:math:`b_u`. What it does not do: the sums themselves are seen, and with one honest site only, a
sum is its message. The server hands out the public keys, so one that lies about them, or that
tells sites different things, can read messages: against that, sites must know each other's
keys from elsewhere. A site can send whatever it likes, since nobody sees it. And where one site
drops out before its message and another after it, the round is repeated without both: should the
answer of the second still come, the server could find out its message.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from heterofactor.federation.fixed import Words
from heterofactor.federation.shamir import SHARE_BYTES, joined_shares, shares

SEED_BYTES = 16
# What a share is when it travels, with the tag that says that nobody has changed it.
SEALED_BYTES = SHARE_BYTES + 16


def new_key() -> bytes:
    """Return a private key, for one site and one run.

    Examples
    --------
    >>> from heterofactor.federation.masking import new_key
    >>> len(new_key())
    32
    """
    return secrets.token_bytes(32)


def public_key(key: bytes) -> bytes:
    """Return what all others may know of a private key.

    Parameters
    ----------
    key : bytes
        The private key.

    Examples
    --------
    >>> from heterofactor.federation.masking import new_key, public_key
    >>> key = new_key()
    >>> public_key(key) != key
    True
    """
    found: bytes = X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
    return found


@dataclass(frozen=True)
class Masker:
    """One site's part in the masking of one round.

    Parameters
    ----------
    name : str
        Of the site.
    key : bytes
        Its private key.
    public : dict of bytes
        The public keys of all who may take part, its own among them.
    label : str
        Of the run, the round and the attempt: no two of them may be the same.
    need : int
        How many sites can bring a sum to light.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.federation.masking import Masker, new_key, public_key, unmasked
    >>> keys = {name: new_key() for name in ("north", "south", "west")}
    >>> public = {name: public_key(key) for name, key in keys.items()}
    >>> maskers = {name: Masker(name, key, public, "1", 2) for name, key in keys.items()}
    >>> sent = {name: masker.mask(np.array([5], np.uint64)) for name, masker in maskers.items()}
    >>> came = ["north", "south"]  # west has dropped out
    >>> told = {name: maskers[name].tell({one: sent[one][1][name] for one in came})
    ...         for name in came}
    >>> unmasked({name: sent[name][0] for name in came}, told, public, 2).tolist()
    [10]
    """

    name: str
    key: bytes
    public: Mapping[str, bytes]
    label: str
    need: int

    def __post_init__(self) -> None:
        """Refuse a sum that would not hide its parts."""
        if self.name not in self.public or self.public[self.name] != public_key(self.key):
            raise ValueError(f"The public key of site {self.name!r} is not its own: begin anew.")
        if not 2 <= self.need <= len(self.public):
            raise ValueError(
                f"need is {self.need} among {len(self.public)} sites: masked sums need at least "
                "two sites, and no more than there are."
            )

    def mask(self, words: Words) -> tuple[Words, dict[str, bytes]]:
        """Return the masked words, and for every site its enciphered share of the own seed.

        Parameters
        ----------
        words : array of uint64
            The message.
        """
        seed = secrets.token_bytes(SEED_BYTES)
        masked = words + generated(_derived(seed, "own", self.label), words.size)
        for other in self.public:
            if other != self.name:
                mask = generated(self._common(other), words.size)
                masked = masked + mask if other > self.name else masked - mask
        points = shares(int.from_bytes(seed, "little"), len(self.public), self.need)
        return masked, {
            other: self._cipher(other, self.name).encrypt(bytes(12), point, None)
            for other, point in zip(sorted(self.public), points, strict=True)
        }

    def tell(self, sent: Mapping[str, bytes]) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Return the shares of the seeds of those whose message came, and seeds of the others.

        Parameters
        ----------
        sent : dict of bytes
            Of those whose message came, this site among them: its enciphered share of their seed.
        """
        if self.name not in sent or len(sent) < self.need or set(sent) - set(self.public):
            raise ValueError(
                f"Asked to unmask a sum over {sorted(sent)}: expected at least {self.need} of "
                f"{sorted(self.public)}, and {self.name!r} among them."
            )
        opened = {
            other: self._cipher(self.name, other).decrypt(bytes(12), share, None)
            for other, share in sent.items()
        }
        gone = [other for other in self.public if other not in sent]
        return opened, {other: self._common(other) for other in gone}

    def _secret(self, other: str) -> bytes:
        theirs = X25519PublicKey.from_public_bytes(self.public[other])
        secret: bytes = X25519PrivateKey.from_private_bytes(self.key).exchange(theirs)
        return secret

    def _common(self, other: str) -> bytes:
        return _derived(self._secret(other), "pair", self.label)

    def _cipher(self, to: str, by: str) -> Any:
        """Return the cipher of a share: one key for each round and direction, used once."""
        other = by if to == self.name else to
        return ChaCha20Poly1305(_derived(self._secret(other), "share", self.label, by, to))


def unmasked(
    masked: Mapping[str, Words],
    told: Mapping[str, tuple[Mapping[str, bytes], Mapping[str, bytes]]],
    everyone: Sequence[str] | Mapping[str, Any],
    need: int,
    label: str = "1",
) -> Words | None:
    """Return the sum of masked words; None where too little was told.

    Parameters
    ----------
    masked : dict of arrays
        By site, of those whose message came.
    told : dict of (shares, seeds)
        By site, what `Masker.tell` returned.
    everyone : sequence of str
        All who were asked.
    need : int
        How many shares tell a seed.
    label : str
        Of the round.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.federation.masking import unmasked
    >>> unmasked({"north": np.zeros(1, np.uint64)}, {}, ["north"], need=1) is None
    True
    """
    places = {name: place for place, name in enumerate(sorted(everyone), start=1)}
    gone = [name for name in places if name not in masked]
    if len(told) < need or (gone and len(told) < len(masked)):
        return None
    size = next(iter(masked.values())).size
    total = np.zeros(size, np.uint64)
    for name, words in masked.items():
        points = {places[by]: opened[name] for by, (opened, _) in told.items()}
        seed = joined_shares(points, need).to_bytes(SEED_BYTES, "little")
        total = total + words - generated(_derived(seed, "own", label), size)
        for other in gone:
            mask = generated(told[name][1][other], size)
            total = total - mask if other > name else total + mask
    return total


def generated(seed: bytes, size: int) -> Words:
    """Return words that nobody can tell from random ones without the seed.

    Parameters
    ----------
    seed : bytes
        32 of them, never used for anything else.
    size : int
        How many words.

    Examples
    --------
    >>> from heterofactor.federation.masking import generated
    >>> bool((generated(bytes(32), 3) == generated(bytes(32), 5)[:3]).all())
    True
    """
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * size)), dtype="<u8").astype(np.uint64)


def _derived(secret: bytes, *what: str) -> bytes:
    info = "\0".join(("heterofactor", *what)).encode()
    derived: bytes = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)
    return derived
