"""The face of every method for ratings: a long table in, one number for each pair out.

A subclass has a `fit` that reads its table by `_read` and an `_expected` that answers for pairs of
places; predictions on the scale, tables, recommendations and scores come with it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from heterofactor.ratings.offsets import Offsets, fit_offsets
from heterofactor.ratings.reading import (
    Array,
    Codes,
    Columns,
    Ratings,
    ids_of,
    read_pairs,
    read_ratings,
)
from heterofactor.ratings.settings import check_numbers

# Ridges of the offsets of users and of items that stand in where one of a pair is not known.
STAND_IN = (5.0, 5.0)


class RatingFace(BaseEstimator):
    """What any model of ratings answers, once it is fitted.

    Attributes
    ----------
    users_, items_ : Index
        Who and what is known.
    scale_ : (float, float)
        The least and the greatest rating.

    Examples
    --------
    >>> from heterofactor import RatingModel
    >>> from heterofactor.ratings.face import RatingFace
    >>> issubclass(RatingModel, RatingFace)
    True
    """

    user: Hashable
    item: Hashable
    rating: Hashable
    clip = True
    scale_: tuple[float, float]
    _known: Ratings

    def predict(self, pairs: pd.DataFrame) -> Array:
        """Return what is expected of each pair.

        Parameters
        ----------
        pairs : DataFrame
            With a user and an item in each row, in any order; other columns are not used. Unknown
            ids are allowed (see the notes of the class).

        Returns
        -------
        array of float
            One number for each row, in the order of the rows.
        """
        check_is_fitted(self)
        return self._clipped(self._expected(*self._places(pairs)))

    def predict_table(self, users: Any = None) -> pd.DataFrame:
        """Return what users are expected to think of every item that is known.

        Parameters
        ----------
        users : sequence, optional
            Ids, known or not; all that are known if left out.

        Returns
        -------
        DataFrame
            Users in rows, items in columns.
        """
        check_is_fitted(self)
        ids = self.users_ if users is None else ids_of(users)
        table = self._expected_table(self.users_.get_indexer(ids))
        return pd.DataFrame(self._clipped(table), index=ids, columns=self.items_)

    def score(self, ratings: pd.DataFrame) -> float:
        """Return minus the root of the mean squared error, so that more is better.

        Parameters
        ----------
        ratings : DataFrame
            As for `fit`; weights and times are not used.
        """
        error = self.predict(ratings) - ratings[self.rating].to_numpy(dtype=float)
        return -float(np.sqrt(np.mean(error**2)))

    def recommend(
        self, user: Hashable, n: int = 10, *, exclude_seen: bool = True
    ) -> pd.Series[float]:
        """Return the items that a user is expected to rate highest.

        Parameters
        ----------
        user
            An id. To one that is not known, what most like is recommended.
        n : int
            How many.
        exclude_seen : bool
            Leave out what the user has rated.

        Returns
        -------
        Series
            What is expected, by item, the best first.
        """
        check_is_fitted(self)
        place = place_of(self.users_, user)
        expected = self._expected_table(np.array([place]))[0]
        if exclude_seen:
            expected[self._known.item[self._known.user == place]] = -np.inf
        best = np.argsort(-expected, kind="stable")[:n]
        best = best[np.isfinite(expected[best])]
        return pd.Series(self._clipped(expected[best]), index=self.items_[best], name="expected")

    @property
    def users_(self) -> pd.Index[Any]:
        """The ids of the users that are known."""
        return self._known.users

    @property
    def items_(self) -> pd.Index[Any]:
        """The ids of the items that are known."""
        return self._known.items

    def _expected(self, user: Codes, item: Codes) -> Array:
        """Return what is expected of pairs of places; -1 is one of which nothing is known."""
        raise NotImplementedError

    def _expected_table(self, user: Codes) -> Array:
        """Return what is expected of some users and all items, users in rows."""
        count = len(self.items_)
        pairs = np.repeat(user, count), np.tile(np.arange(count), len(user))
        return self._expected(*pairs).reshape(len(user), count)

    def _read(self, ratings: pd.DataFrame) -> Ratings:
        """Read the table of a fit, and keep what is known of its users, items and scale."""
        check_numbers(self.get_params(deep=False))
        self._known = known = read_ratings(ratings, self._columns())
        self.scale_ = (float(known.values.min()), float(known.values.max()))
        return known

    def _stand_in(self, expected: Array, user: Codes, item: Codes) -> Array:
        """Replace what is expected of pairs of which one is unknown by the offset of the other."""
        unknown = (user < 0) | (item < 0)
        if not unknown.any():
            return expected
        offsets = fit_offsets(self._known, STAND_IN)
        padded = Offsets(offsets.mean, np.append(offsets.user, 0.0), np.append(offsets.item, 0.0))
        return np.where(unknown, padded.at(user, item), expected)

    def _columns(self) -> Columns:
        """Return what the columns are called; weights count where the method has a use for them."""
        weight, time = getattr(self, "weight", None), getattr(self, "time", "time")
        return Columns(self.user, self.item, self.rating, weight, time)

    def _places(self, pairs: pd.DataFrame) -> tuple[Codes, Codes]:
        """Return where users and items of pairs are; -1 for those that are not known."""
        found = read_pairs(pairs, self._columns(), "pairs")
        user = self.users_.get_indexer(ids_of(found["user"]))
        return user, self.items_.get_indexer(ids_of(found["item"]))

    def _clipped(self, expected: Array) -> Array:
        return np.clip(expected, *self.scale_) if self.clip else expected


def place_of(ids: pd.Index[Any], one: Hashable) -> int:
    """Return the place of one id, -1 where it is not known.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.face import place_of
    >>> place_of(pd.Index(["ann", "bob"]), "bob"), place_of(pd.Index(["ann", "bob"]), "eve")
    (1, -1)
    """
    return int(ids.get_indexer(ids_of([one]))[0])
