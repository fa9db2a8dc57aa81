"""What a fitted model of ratings learns later: from more ratings, or from features alone."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.features import Encoding, encoding_of, feature_table
from heterofactor.ratings.groups import aligned, centres_of, place_groups
from heterofactor.ratings.learning import learn_columns, learn_rows
from heterofactor.ratings.reading import Array, Codes, Ratings, read_ratings
from heterofactor.ratings.tastes import Ridge, Tastes
from heterofactor.ratings.told import Told

Side = Literal["user", "item"]


class GrowingModel(RatingFace):
    """A model of tastes that learns users and items after its fit; what it knows stays.

    Examples
    --------
    >>> from heterofactor import RatingModel
    >>> from heterofactor.ratings.growing import GrowingModel
    >>> issubclass(RatingModel, GrowingModel)
    True
    """

    solver: str
    ridge: tuple[float, float]
    offset_ridge: tuple[float, float]
    _by_users: bool
    _tastes: Tastes
    _encodings: dict[str, Encoding | None]
    _group_names: pd.Index[Any] | None
    _group_centres: pd.DataFrame | None

    def add_ratings(self, ratings: pd.DataFrame) -> Self:
        """Learn users and items from more ratings, while what is known of the others stays.

        New users, and known ones with new ratings, are learned from all their ratings; then new
        items are, from who rated them. The group of a new item (or user) is the one in which
        its ratings fit best. Who was known by features alone is expected to be near what they say.

        Parameters
        ----------
        ratings : DataFrame
            As for `fit`. A pair that was rated before is rated anew.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        more = read_ratings(ratings, self._columns())
        told = {side: np.flatnonzero(self._unrated(side)) for side in ("user", "item")}
        n_items = len(self.items_)
        self._known, new = self._known.joined(more)
        user, item = self._known.user, self._known.item
        old_item = (item < n_items) & ~np.isin(item, told["item"])
        touched = np.unique(user[new & old_item])
        rated = self._known.part(old_item & np.isin(user, touched))
        self._learn(rated, "user", told["user"])
        self._learn(self._known.part(~old_item), "item", told["item"])
        return self

    def add_items(self, features: pd.DataFrame, groups: Any = None) -> Self:
        """Make items known that nobody has rated yet.

        Their offsets and tastes are those that items with ratings let expect of their features.
        Items that are known already stay as they are.

        Parameters
        ----------
        features : DataFrame
            Indexed by item, with the columns of the `item_features` of the fit.
        groups : Series, dict, array or DataFrame, optional
            Of items, as `item_groups` were given to the fit: labels, or flags. An item without
            a group, or with one that the fit had not, has no unique taste until it is rated.

        Returns
        -------
        self

        Examples
        --------
        >>> from heterofactor import RatingModel
        >>> from heterofactor.datasets import make_ratings
        >>> made = make_ratings(60, 50, n_ratings=1500, n_groups=2, random_state=0)
        >>> new = made.ratings["item"].isin(["item0", "item1"])
        >>> model = RatingModel(3, 1, random_state=0)
        >>> _ = model.fit(made.ratings[~new], item_features=made.item_features.drop("item1"))
        >>> _ = model.add_items(made.item_features.loc[["item1"]])
        >>> model.items_[-2:].tolist()
        ['item0', 'item1']
        """
        check_is_fitted(self)
        return self._add_known("item", features, groups)

    def add_users(self, features: pd.DataFrame, groups: Any = None) -> Self:
        """Make users known who have rated nothing yet.

        Their offsets and tastes are those that users with ratings let expect of their features.
        Users who are known already stay as they are.

        Parameters
        ----------
        features : DataFrame
            Indexed by user, with the columns of the `user_features` of the fit.
        groups : Series, dict, array or DataFrame, optional
            Of users, as `user_groups` were given to the fit.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        return self._add_known("user", features, groups)

    def _add_known(self, side: Side, features: Any, groups: Any) -> Self:
        if self._encodings[side] is None:
            raise ValueError(
                f"The model was fitted without {side}_features, so that nothing is known of what "
                f"they tell: fit it with {side}_features first."
            )
        if groups is not None and (self._group_names is None or self._grouped != side):
            raise ValueError(
                f"groups are given, but {side}s are in no groups: leave them out, or fit with "
                f"{side}_groups."
            )
        self._add_told(side, features, groups, self._tastes.told)
        return self

    def _read_features(
        self, given: dict[str, pd.DataFrame | None]
    ) -> tuple[Array | None, Array | None]:
        """Return features of rows and of columns with ratings, and keep how they were encoded."""
        found: dict[str, Array | None] = {}
        self._encodings = {}
        for side, ids in (("user", self.users_), ("item", self.items_)):
            self._encodings[side] = found[side] = None
            if given[side] is not None:
                table = aligned(feature_table(given[side], side), ids, side, f"{side}_features")
                encoding = encoding_of(table, side)
                self._encodings[side], found[side] = encoding, encoding.encode(table, side)
        return self._turned(found["user"], found["item"])

    def _keep_groups(self, given: Any, names: pd.Index[Any], group: Codes) -> None:
        """Keep what says in which group somebody is who comes later."""
        self._group_names = None if given is None else names
        self._group_centres = None
        if isinstance(given, pd.DataFrame):
            ids = self.items_ if self._by_users else self.users_
            flags = aligned(given, ids, self._grouped, f"{self._grouped}_groups")
            self._group_centres = centres_of(flags, group)

    def _add_told(
        self, side: Side, features: Any, groups: Any, told: tuple[Told, Told] | None
    ) -> None:
        """Make known who is not, from features alone."""
        encoding = self._encodings[side]
        if encoding is None or told is None:
            return
        table = feature_table(features, side)
        ids = self.users_ if side == "user" else self.items_
        new = table.index[~table.index.isin(ids)]
        if not len(new):
            return
        frame = encoding.encode(aligned(table, new, side, f"{side}_features"), side)
        if side != self._grouped:
            self._tastes = self._tastes.with_told_rows(told[0], frame)
        else:
            group: Codes = np.zeros(len(new), dtype=np.intp)
            if self._group_names is not None:
                group = place_groups(groups, new, self._group_names, self._group_centres, side)
            self._tastes = self._tastes.with_told_columns(told[1], frame, group)
        self._known = self._known.with_ids(side, new)

    @property
    def _grouped(self) -> Side:
        """Who is in groups, if anybody is."""
        return "item" if self._by_users else "user"

    def _unrated(self, side: str) -> npt.NDArray[np.bool]:
        """Return who has rated nothing, or what nobody has rated."""
        found: npt.NDArray[np.bool] = self._known.number(side) == 0
        return found

    def _learn(self, ratings: Ratings, side: Side, around: Codes) -> None:
        """Learn the users, or the items, of some ratings from what is known of the others."""
        turned = ratings if self._by_users else ratings.turned()
        tastes, rows = self._tastes, side != self._grouped
        learn = learn_rows if rows else learn_columns
        ridge = self._ridge() if self.solver == "als" else tastes.ridge_of_draws(rows=rows)
        self._tastes = learn(tastes, turned, ridge, around)

    def _turned(self, user: Any, item: Any) -> tuple[Any, Any]:
        """Exchange users and items for rows and columns, or the other way round."""
        return (user, item) if self._by_users else (item, user)

    def _ridge(self) -> Ridge:
        of_user, of_item = self.offset_ridge
        row, column = (of_user, of_item) if self._by_users else (of_item, of_user)
        return Ridge(row, column, *self.ridge)
