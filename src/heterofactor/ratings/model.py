"""RatingModel: from a long table of ratings to predictions, recommendations and their reasons."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from heterofactor.ratings.als import fit_tastes
from heterofactor.ratings.face import place_of
from heterofactor.ratings.gibbs import draw_tastes
from heterofactor.ratings.groups import read_groups
from heterofactor.ratings.growing import GrowingModel
from heterofactor.ratings.reading import Array, Codes, Ratings
from heterofactor.ratings.settings import ROUNDS, check_settings
from heterofactor.ratings.tastes import Tastes

PARTS = ["mean", "user", "item", "shared", "unique"]


class RatingModel(GrowingModel):
    r"""Predict ratings from offsets, a shared taste, and a taste unique to each group of items.

    A rating of an item in group :math:`g` is expected at

    .. math:: \mu + a_u + b_i + p_u^\top q_i + p_{u g}^\top w_i,

    where the shared tastes :math:`p_u` are for all items and :math:`p_{ug}` only for those of the
    group: heterogeneous matrix factorization, with the groups as sources that share the users.

    Parameters
    ----------
    n_shared, n_unique : int
        Dimensions of the shared taste, and of the taste for each group. Without groups, nothing
        is unique.
    n_groups : int
        Clusters, where groups come from flags.
    solver : {"als", "gibbs"}
        How tastes are found: by alternating least squares, in a second for 100,000 ratings; or
        drawn from their posterior, in about ten, which predicts better and gives intervals.
    ridge : (float, float)
        With ``"als"``, penalty on the squares of shared and of unique tastes: the larger, the less
        is believed of few ratings.
    offset_ridge : (float, float)
        The same, of the offsets of users and of items.
    n_rounds : int, optional
        Sweeps: 5 with ``"als"`` unless given, for what comes later fits noise; 300 with
        ``"gibbs"``, of which a tenth is forgotten.
    n_fits : int
        With ``"als"``, how many fits from different starts are averaged: of fewer, each needs a
        larger ridge.
    implicit : bool
        With ``"gibbs"``, let tastes follow who has rated what, whatever the rating.
    clip : bool
        Keep predictions within the scale of the ratings, from the least to the greatest one seen.
    user, item, rating, weight, time : str
        What the columns are called. Weights say how much ratings count; of several ratings of one
        pair the last one counts, by time where there is a time. Both may be missing.
    random_state : int, RandomState or None
        For clusters and starts: same seed, same answer.
    verbose : int
        1 for a progress bar with ``"gibbs"``.

    Attributes
    ----------
    users_, items_ : Index
        Who and what is known.
    item_groups_, user_groups_ : Series or None
        The group of each item, or of each user, where there are groups; missing for one that
        nobody has rated and that came without a group.
    user_offsets_, item_offsets_ : Series
        How far each is from the mean.
    mean_ : float
        What is expected of an unknown user and an unknown item.
    scale_ : (float, float)
        The least and the greatest rating.

    Notes
    -----
    An unknown user has no offset and no taste: what is expected is the mean and the item's offset.
    In the same way for an unknown item; of an unknown pair, it is the mean.

    Users and items without ratings, but whose features are known (they are in the tables of
    features, or come with `add_users` and `add_items`), are known. Their offsets and tastes are
    expected from their features, by a ridge regression of those of the others in every fit or
    draw. For who comes later, one of n ratings counts n / (n + 20) in it; for who was there in
    the fit, and yet has no ratings, all count alike, as it is more like those with few. Intervals
    allow for what features do not tell. An item has a unique taste if its group is known. Of
    features, what is missing and categories that were not there in the fit count as the mean.

    References
    ----------
    Naichen Shi, Salar Fattahi, Raed Al Kontar. Heterogeneous Matrix Factorization: When Features
    Differ by Datasets.

    Yehuda Koren, Robert Bell, Chris Volinsky. Matrix Factorization Techniques for Recommender
    Systems. Computer 42(8), 2009.

    Examples
    --------
    >>> from heterofactor import RatingModel
    >>> from heterofactor.datasets import load_cinema
    >>> cinema = load_cinema()
    >>> model = RatingModel(2, 1, random_state=0)
    >>> _ = model.fit(cinema.ratings, cinema.item_groups, user_features=cinema.user_features)
    >>> model.predict(cinema.ratings.head(3)).round(1).tolist()
    [3.8, 3.1, 3.7]
    >>> model.recommend(7, n=2).index.tolist()
    ['Cold Umbrella', 'The Crooked Sparrow']
    >>> model.explain(7, "Last Parade").index.tolist()
    ['mean', 'user', 'item', 'shared', 'unique', 'expected']

    Somebody new, of whom we know age and job:

    >>> import pandas as pd
    >>> new = pd.DataFrame({"age": [25], "job": ["nurse"]}, index=["Ida"])
    >>> model.add_users(new).recommend("Ida", n=2).index.tolist()
    ['Under a Paper Verdict', 'The Crooked Sparrow']
    """

    def __init__(
        self,
        n_shared: int = 10,
        n_unique: int = 2,
        *,
        n_groups: int = 10,
        solver: Literal["als", "gibbs"] = "als",
        ridge: tuple[float, float] = (7.0, 7.0),
        offset_ridge: tuple[float, float] = (4.0, 2.0),
        n_rounds: int | None = None,
        n_fits: int = 16,
        implicit: bool = True,
        clip: bool = True,
        user: Hashable = "user",
        item: Hashable = "item",
        rating: Hashable = "rating",
        weight: Hashable = "weight",
        time: Hashable = "time",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_shared = n_shared
        self.n_unique = n_unique
        self.n_groups = n_groups
        self.solver = solver
        self.ridge = ridge
        self.offset_ridge = offset_ridge
        self.n_rounds = n_rounds
        self.n_fits = n_fits
        self.implicit = implicit
        self.clip = clip
        self.user = user
        self.item = item
        self.rating = rating
        self.weight = weight
        self.time = time
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        ratings: pd.DataFrame,
        item_groups: Any = None,
        user_groups: Any = None,
        item_features: pd.DataFrame | None = None,
        user_features: pd.DataFrame | None = None,
    ) -> Self:
        """Learn offsets and tastes.

        With ``solver="gibbs"`` an interrupt (Ctrl-C) leaves the model fitted by the draws so far.

        Parameters
        ----------
        ratings : DataFrame
            One row a rating: user, item, rating, and perhaps weight and time.
        item_groups : Series, dict, array or DataFrame, optional
            Of items: labels by item (an array: in the order of the sorted ids), or a table of flags
            indexed by item, such as genres, whose rows are brought to one length and clustered.
        user_groups : Series, dict, array or DataFrame, optional
            Of users, instead: then tastes are of items, for all users and for those of a group.
        item_features, user_features : DataFrame, optional
            Indexed by id; numbers, flags or categories. Offsets are expected from them, and with
            ``solver="gibbs"`` tastes, too. Who has a row, but no ratings, becomes known by it.

        Returns
        -------
        self
        """
        check_settings(self.get_params())
        if item_groups is not None and user_groups is not None:
            raise ValueError(
                "item_groups and user_groups are both given: tastes can be unique to groups of "
                "items or of users, not of both. Leave one out; it may serve as features."
            )
        known = self._read(ratings)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self._by_users = user_groups is None
        given, ids, what = item_groups, known.items, "item"
        if not self._by_users:
            given, ids, what = user_groups, known.users, "user"
        names, group = read_groups(given, ids, what, self.n_groups, seed)
        features = self._read_features({"user": user_features, "item": item_features})
        turned = known if self._by_users else known.turned()
        n_unique = 0 if given is None else self.n_unique
        tastes = self._fitted(turned, group, n_unique, features, seed)
        number = turned.number("user"), turned.number("item")
        self._tastes = replace(tastes, told=tastes.learned(features, number))
        self._keep_groups(given, names, group)
        # an array of groups is about those with ratings alone
        groups = None if isinstance(given, (np.ndarray, list, tuple)) else given
        told = tastes.learned(features, number, half=0.0)
        self._add_told("user", user_features, groups, told)
        self._add_told("item", item_features, groups, told)
        return self

    def _fitted(
        self,
        ratings: Ratings,
        group: Codes,
        n_unique: int,
        features: tuple[Array | None, Array | None],
        seed: int,
    ) -> Tastes:
        if self.solver == "als":
            return fit_tastes(
                ratings,
                group,
                n_shared=self.n_shared,
                n_unique=n_unique,
                ridge=self._ridge(),
                features=features,
                n_rounds=self.n_rounds or ROUNDS["als"],
                n_fits=self.n_fits,
                seed=seed,
            )
        n_rounds = self.n_rounds or ROUNDS["gibbs"]
        with tqdm(total=n_rounds, disable=not self.verbose, unit="round") as bar:
            return draw_tastes(
                ratings,
                group,
                n_shared=self.n_shared,
                n_unique=n_unique,
                features=features,
                implicit=self.implicit,
                n_rounds=n_rounds,
                seed=seed,
                watch=lambda _: bar.update(),
            )

    def predict_parts(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Return of what the expected rating of each pair is made.

        Parameters
        ----------
        pairs : DataFrame
            As for `predict`.

        Returns
        -------
        DataFrame
            With the index of `pairs`: the mean, the offsets of user and item, what the shared
            taste adds, and what the taste unique to the group does. Their sum is what is
            expected, unless it is off the scale.
        """
        check_is_fitted(self)
        parts = self._tastes.parts(*self._turned(*self._places(pairs)))
        user, item = self._turned(parts["row"], parts["column"])
        return pd.DataFrame(parts | {"user": user, "item": item}, index=pairs.index)[PARTS]

    def predict_interval(self, pairs: pd.DataFrame, level: float = 0.9) -> pd.DataFrame:
        """Return between which bounds ratings of pairs are expected, with ``solver="gibbs"``.

        Parameters
        ----------
        pairs : DataFrame
            As for `predict`.
        level : float
            The share of ratings that are to be within.

        Returns
        -------
        DataFrame
            With the index of `pairs`: `lower` and `upper`, on the scale of the ratings. They allow
            for what is not known of tastes and for what nobody can know.
        """
        check_is_fitted(self)
        if self._tastes.noise is None:
            raise ValueError(
                f"solver={self.solver!r} gives no intervals: fit with solver='gibbs', which draws "
                "tastes from their posterior."
            )
        if not 0 < level < 1:
            raise ValueError(f"level is {level!r}: expected a share between 0 and 1, such as 0.9.")
        row, column = self._turned(*self._places(pairs))
        unsure = self._turned(self._unrated("user"), self._unrated("item"))
        beyond = (np.append(unsure[0], True)[row], np.append(unsure[1], True)[column])
        expected, spread = self._tastes.at(row, column), self._tastes.spread(row, column, beyond)
        reach = NormalDist().inv_cdf((1 + level) / 2) * spread
        bounds = {"lower": expected - reach, "upper": expected + reach}
        return pd.DataFrame(
            {name: self._clipped(bound) for name, bound in bounds.items()}, index=pairs.index
        )

    def similar_items(self, item: Hashable, n: int = 10) -> pd.Series[float]:
        """Return the items that appeal to the same users.

        Parameters
        ----------
        item
            An id that is known.
        n : int
            How many.

        Returns
        -------
        Series
            By item, the cosine of the angle between what all users' tastes make of it and of the
            item; offsets, which make an item popular, do not count.
        """
        check_is_fitted(self)
        place = place_of(self.items_, item)
        if place < 0:
            raise KeyError(f"Item {item!r} was never rated: nothing is known that is like it.")
        tastes = self._tastes
        likeness = tastes.likeness_of_columns if self._by_users else tastes.likeness_of_rows
        found = pd.Series(likeness(place), index=self.items_, name="likeness")
        others: pd.Series[float] = found[np.arange(len(found)) != place]
        return others.sort_values(ascending=False, kind="stable").head(n)

    def explain(self, user: Hashable, item: Hashable) -> pd.Series[float]:
        """Return of what the expected rating of a pair is made.

        Parameters
        ----------
        user, item
            Ids, known or not.

        Returns
        -------
        Series
            As a row of `predict_parts`, and the sum. It has the name of the group.
        """
        pair = pd.DataFrame({self.user: [user], self.item: [item]})
        terms = self.predict_parts(pair).iloc[0]
        terms["expected"] = terms.sum()
        ids, group = (self.items_, item) if self._by_users else (self.users_, user)
        place = place_of(ids, group)
        if self._group_names is None or place < 0 or self._tastes.group[place] < 0:
            return terms.rename(None)
        return terms.rename(self._group_names[self._tastes.group[place]])

    @property
    def mean_(self) -> float:
        """What is expected of an unknown pair."""
        return float(np.mean(self._tastes.mean))

    @property
    def user_offsets_(self) -> pd.Series[float]:
        """How far each user is from the mean."""
        tastes = self._tastes
        offsets = tastes.row_offsets if self._by_users else tastes.column_offsets
        return pd.Series(offsets.mean(axis=0), index=self.users_)

    @property
    def item_offsets_(self) -> pd.Series[float]:
        """How far each item is from the mean."""
        tastes = self._tastes
        offsets = tastes.column_offsets if self._by_users else tastes.row_offsets
        return pd.Series(offsets.mean(axis=0), index=self.items_)

    @property
    def item_groups_(self) -> pd.Series[Any] | None:
        """The group of each item; None where items are in none."""
        return self._groups(self.items_) if self._by_users else None

    @property
    def user_groups_(self) -> pd.Series[Any] | None:
        """The group of each user; None where users are in none."""
        return None if self._by_users else self._groups(self.users_)

    def _groups(self, ids: pd.Index[Any]) -> pd.Series[Any] | None:
        if self._group_names is None:
            return None
        # of -1 there is no name
        names = pd.Series(self._group_names).reindex(self._tastes.group)
        return names.set_axis(ids).rename("group")

    def _expected(self, user: Codes, item: Codes) -> Array:
        return self._tastes.at(*self._turned(user, item))

    def _expected_table(self, user: Codes) -> Array:
        tastes = self._tastes
        return tastes.table(user) if self._by_users else tastes.columns_table(user).T
