"""Numbers as integers modulo 2^64, which can be masked, and whose sums are exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from heterofactor.rounds import Message

Words = np.ndarray[Any, np.dtype[np.uint64]]
# One word after the first holds so many binary digits, and sums of up to 32,768 sites.
DIGIT = 48
WORD = 64


@dataclass(frozen=True)
class FixedPoint:
    """How numbers become integers modulo 2^64.

    Parameters
    ----------
    bits : int
        Binary digits after the point: what a site sends is rounded to half a unit of the last.
    words : int
        How many words of 64 bits for each number; with more, larger sums fit.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.federation.fixed import FixedPoint
    >>> fixed = FixedPoint(bits=40)
    >>> words = fixed.words_of(np.array([1.5, -2.0])) + fixed.words_of(np.array([0.25, 1.0]))
    >>> fixed.numbers_of(words).tolist()
    [1.75, -1.0]
    """

    bits: int
    words: int = 1

    @property
    def largest(self) -> float:
        """What no sum may reach."""
        return 2.0 ** (WORD - 1 + DIGIT * (self.words - 1) - self.bits)

    def words_of(self, numbers: np.ndarray[Any, Any], n_sites: int = 1) -> Words:
        """Return numbers as words.

        Parameters
        ----------
        numbers : array
            Of any shape.
        n_sites : int
            How many sites' numbers are summed, all of which have to fit.
        """
        left = np.asarray(numbers, dtype=float).ravel()
        if not np.isfinite(left).all():
            raise ValueError("A message that holds NaN or infinity cannot be masked.")
        limit = self.largest / n_sites
        if left.size and np.abs(left).max() >= limit:
            raise ValueError(
                f"A message holds {np.abs(left).max():.3g}, and below {limit:.3g} can be masked "
                f"among {n_sites} sites: rescale the tables, all by the same number."
            )
        found = []
        for place in reversed(range(self.words)):
            unit = 2.0 ** (DIGIT * place - self.bits)
            digit = np.trunc(left / unit) if place else np.rint(left / unit)
            left = left - digit * unit
            found.append(digit.astype(np.int64).view(np.uint64))
        return np.concatenate(found)

    def numbers_of(self, words: Words) -> np.ndarray[Any, Any]:
        """Return words, or their sum, as numbers.

        Parameters
        ----------
        words : array of uint64
            As `words_of` makes them.
        """
        parts = words.view(np.int64).reshape(self.words, -1)
        units = 2.0 ** (DIGIT * np.arange(self.words)[::-1] - self.bits)
        return np.asarray((parts * units[:, None]).sum(axis=0))


def flat(message: Message) -> np.ndarray[Any, Any]:
    """Return all numbers of a message, in the order of the arrays' names.

    Parameters
    ----------
    message : dict of arrays
        Of NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.federation.fixed import flat
    >>> flat({"b": np.array([[1.0, 2.0]]), "a": np.array(0.0)}).tolist()
    [0.0, 1.0, 2.0]
    """
    return np.concatenate([np.ravel(message[name]).astype(float) for name in sorted(message)])


def shaped(numbers: np.ndarray[Any, Any], pattern: Message) -> Message:
    """Return the numbers of `flat` as a message again.

    Parameters
    ----------
    numbers : array
        All of them.
    pattern : dict of arrays
        A message of the same shapes.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.federation.fixed import shaped
    >>> shaped(np.arange(3.0), {"b": np.zeros((1, 2)), "a": np.zeros(())})
    {'a': array(0.), 'b': array([[1., 2.]])}
    """
    found: Message = {}
    for name in sorted(pattern):
        size = int(np.size(pattern[name]))
        part, numbers = numbers[:size], numbers[size:]
        found[name] = part.reshape(np.shape(pattern[name])).astype(pattern[name].dtype)
    return found
