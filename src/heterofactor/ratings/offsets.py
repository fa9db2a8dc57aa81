r"""Offsets: how far users and items are from the mean, before any taste.

.. math:: \min \sum w (m_{ui} - \mu - a_u - b_i)^2
    + \lambda_a \sum_u (a_u - f_u^\top \alpha)^2 + \lambda_b \sum_i (b_i - f_i^\top \beta)^2

so that the few ratings of a rare item do not take its offset far from what its features say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from heterofactor.ratings.reading import Array, Codes, Ratings

# Rounds over users and items, of which each takes most of what is left.
ROUNDS = 15
# The ridge on the weights of standardised features.
ON_FEATURES = 1.0


@dataclass(frozen=True, eq=False)
class Offsets:
    """The mean, the offsets of users and items, and how much of these features tell.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.offsets import Offsets
    >>> offsets = Offsets(3.5, np.array([0.5, -1.0]), np.array([0.25]))
    >>> offsets.at(np.array([1]), np.array([0])).tolist()
    [2.75]
    """

    mean: float
    user: Array
    item: Array
    by_features: tuple[Array, Array] | None = None

    @property
    def expected(self) -> Offsets:
        """The mean, and of the offsets only what features say of them."""
        nothing = np.zeros_like(self.user), np.zeros_like(self.item)
        return Offsets(self.mean, *(self.by_features or nothing))

    def at(self, user: Codes, item: Codes) -> Array:
        """Return the sum of the offsets of pairs."""
        found: Array = self.mean + self.user[user] + self.item[item]
        return found


def fit_offsets(
    ratings: Ratings,
    ridge: tuple[float, float],
    features: tuple[Array | None, Array | None] = (None, None),
    beside: Array | None = None,
) -> Offsets:
    """Fit offsets, users' and items' in turn.

    Parameters
    ----------
    ratings : Ratings
        What they are fitted to.
    ridge : (float, float)
        Of users and of items.
    features : (array, array)
        Of users and of items, standardised, one row for each; None where there are none.
    beside : array, optional
        What else is predicted for each rating, such as tastes.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.offsets import fit_offsets
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> table = pd.DataFrame({"user": list("aabb"), "item": list("xyxy"), "rating": [1, 3, 2, 4]})
    >>> offsets = fit_offsets(read_ratings(table, Columns()), (1e-9, 1e-9))
    >>> offsets.mean, offsets.user.round(3).tolist(), offsets.item.round(3).tolist()
    (2.5, [-0.5, 0.5], [-1.0, 1.0])
    """
    left = ratings.values if beside is None else ratings.values - beside
    mean = float(np.average(left, weights=ratings.weights))
    left = (left - mean) * ratings.weights
    found = Offsets(mean, np.zeros(len(ratings.users)), np.zeros(len(ratings.items)))
    of_user = _sums(ratings.user, ratings.weights, found.user)
    of_item = _sums(ratings.item, ratings.weights, found.item)
    for _ in range(ROUNDS):
        rest = left - ratings.weights * found.item[ratings.item]
        sums = _sums(ratings.user, rest, found.user)
        user, from_user = _shrunk(sums, of_user, ridge[0], features[0])
        found = replace(found, user=user)
        rest = left - ratings.weights * found.user[ratings.user]
        sums = _sums(ratings.item, rest, found.item)
        item, from_item = _shrunk(sums, of_item, ridge[1], features[1])
        found = replace(found, item=item, by_features=(from_user, from_item))
    return found


def expected_offsets(
    ratings: Ratings, ridge: tuple[float, float], features: tuple[Array | None, Array | None]
) -> Offsets:
    """Return the mean, and of the offsets only what features say of them.

    Parameters
    ----------
    ratings, ridge, features
        As for `fit_offsets`.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.offsets import expected_offsets
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> table = pd.DataFrame({"user": list("aabb"), "item": list("xyxy"), "rating": [1, 3, 2, 4]})
    >>> offsets = expected_offsets(read_ratings(table, Columns()), (1.0, 1.0), (None, None))
    >>> offsets.mean, offsets.user.tolist()
    (2.5, [0.0, 0.0])
    """
    if all(given is None for given in features):
        mean = float(np.average(ratings.values, weights=ratings.weights))
        return Offsets(mean, np.zeros(len(ratings.users)), np.zeros(len(ratings.items)))
    return fit_offsets(ratings, ridge, features).expected


def _sums(places: Codes, entries: Array, example: Array) -> Array:
    return np.bincount(places, entries, len(example)).astype(float)


def _shrunk(
    sums: Array, number: Array, ridge: float, features: Array | None
) -> tuple[Array, Array]:
    """Return the best offsets for sums of residuals, and what features say of them, if anything."""
    expected = np.zeros_like(sums)
    if features is not None:
        # the offsets themselves eliminated, each mean counts n ridge / (n + ridge)
        weight = number * ridge / (number + ridge)
        mean = sums / np.maximum(number, 1e-12)
        gram = (features.T * weight) @ features + ON_FEATURES * np.eye(features.shape[1])
        expected = features @ np.linalg.solve(gram, features.T @ (weight * mean))
    return expected + (sums - number * expected) / (number + ridge), expected
