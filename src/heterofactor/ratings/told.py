r"""What features tell of whom nobody has rated, or who has rated nothing.

In every fit (or draw), the vectors of offsets and tastes :math:`x_j` of those with ratings follow
their features :math:`f_j` by a ridge regression, in which those with few ratings count less:

.. math:: \min_{\mu, B} \sum_j \frac{n_j}{n_j + \nu} |x_j - \mu - B^\top f_j|^2 + \lambda |B|^2

and what it leaves is how far others may be from what is expected of them. Where somebody is in the
tables of a fit and yet without ratings, those with few count as much as all, :math:`\nu = 0`: what
nobody has rated is more like what few have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heterofactor.ratings.reading import Array, Codes

# A vector counts half with so many ratings: whoever comes later is more like those with many.
HALF = 20.0
# The ridge on the weights of standardised features, as draws have it.
ON_FEATURES = 20.0
# Means of unique tastes are drawn to zero as by so many vectors.
TO_ZERO = 2.0


@dataclass(frozen=True, eq=False)
class Told:
    """What vectors are expected from features, S times.

    Attributes
    ----------
    weights : array of shape (S, 1 + features, 1 + r1)
        From one and the features, to the offset and the shared taste.
    own_weights : array of shape (S, groups, 1 + features, r2)
        The same, to the taste unique to each group.
    doubt : array of shape (S, 2, 1 + r1, 1 + r1)
        The covariance of what features do not tell, and the mean squares of everything.
    own_doubt : array of shape (S, groups, 2, r2, r2)
        The same, of unique tastes.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.told import tell
    >>> features = np.linspace(-1, 1, 99)[:, None]
    >>> offsets, nothing = 0.5 + features[None], np.zeros((1, 1, 99, 0))
    >>> told = tell(offsets, nothing, features, np.full(99, 1e9), np.ones((1, 99), dtype=bool))
    >>> told.expected(np.array([[0.0]])).round(3).tolist()
    [[[0.5]]]
    """

    weights: Array
    own_weights: Array
    doubt: Array
    own_doubt: Array

    def expected(self, features: Array) -> Array:
        """Return offsets and shared tastes, of shape (S, n, 1 + r1)."""
        found: Array = with_one(features) @ self.weights
        return found

    def own_expected(self, features: Array) -> Array:
        """Return the tastes unique to each group, of shape (S, groups, n, r2)."""
        found: Array = with_one(features) @ self.own_weights
        return found


def tell(
    vectors: Array,
    own: Array,
    features: Array | None,
    number: Array | Codes,
    member: Array,
    half: float = HALF,
) -> Told:
    """Regress vectors on features.

    Parameters
    ----------
    vectors : array of shape (S, n, 1 + r1)
        Offsets and shared tastes.
    own : array of shape (S, groups, n, r2)
        Unique tastes; (S, 1, n, r2) where each has those of its own group only.
    features : array of shape (n, f), optional
        Standardised.
    number : array of shape (n,)
        How many ratings each has.
    member : array of bool, of shape (groups, n)
        Whose taste for a group is known.
    half : float
        With how many ratings a vector counts half.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.told import tell
    >>> told = tell(np.full((1, 9, 1), 2.0), np.ones((1, 1, 9, 1)), None, np.full(9, 1e9),
    ...             np.ones((1, 9), dtype=bool))
    >>> nobody = np.zeros((1, 0))
    >>> told.expected(nobody).round(3).tolist(), told.own_expected(nobody).round(3).tolist()
    ([[[2.0]]], [[[[0.818]]]])
    """
    frame = np.zeros((len(number), 0)) if features is None else features
    count = number / (number + half)
    weights, doubt = _regressed(vectors, frame, count, 0.0)
    parts = []
    for g, at in enumerate(member):
        one = own[:, min(g, own.shape[1] - 1)][:, at]
        parts.append(_regressed(one, frame[at], count[at], TO_ZERO))
    own_weights, own_doubt = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
    return Told(weights, own_weights, doubt, own_doubt)


def with_one(features: Array) -> Array:
    """Return features beside a one, for the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.told import with_one
    >>> with_one(np.array([[3.0]])).tolist()
    [[1.0, 3.0]]
    """
    return np.hstack([np.ones((len(features), 1)), features])


def _regressed(vectors: Array, frame: Array, count: Array, to_zero: float) -> tuple[Array, Array]:
    """Return weights of shape (S, 1 + f, d), and mean products of what is left and of all."""
    number = count.sum()
    gram = (frame.T * count) @ frame + ON_FEATURES * np.eye(frame.shape[1])
    effect = np.linalg.solve(gram, frame.T * count)
    weights, doubts = [], []
    for one in vectors:
        mean = count @ one / (number + to_zero)
        slopes = effect @ (one - mean)
        weights.append(np.vstack([mean[None], slopes]))
        every = np.stack([one - mean - frame @ slopes, one])
        # as the prior of the draws has it: one vector more, of covariance one
        squares = np.eye(one.shape[1]) + (every.mT * count) @ every
        doubts.append(squares / (1 + number))
    return np.stack(weights), np.stack(doubts)
