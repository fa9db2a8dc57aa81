r"""Completion of the table of ratings as it is: no offsets, and no ridge unless one is asked for.

.. math:: m_{ui} \approx p_u^\top q_i \quad (+ \; p_{u g(i)}^\top w_i \text{ with groups of items})

It is what the paper compares with, and shows what offsets and ridges are worth.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.utils import check_random_state

from heterofactor.hmf import HMF
from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.groups import read_groups
from heterofactor.ratings.reading import Array, Codes


class MatrixCompletion(RatingFace):
    """Fill the table of users and items by one of low rank, fitted to the raw ratings.

    Without groups this is pooled matrix completion. With groups of items it is `HMF`, whose sources
    are the groups and share the users. There are no offsets, and no ridge by default, so that large
    ranks predict badly: `RatingModel` is for predicting, this is for comparing.

    Parameters
    ----------
    n_shared : int
        The rank, and with groups that of what they share.
    n_unique : int
        With groups, the rank of what is each group's own.
    n_groups : int
        Clusters, where groups come from flags.
    ridge : float
        Penalty on the squares of bases and scores.
    solver : {"alternating", "averaging"}
        How `HMF` is fitted: the library's own way, or Algorithm 1 of the paper.
    tol : float
        Relative gradient at which to stop.
    max_rounds : int
        When to give up. Stopping early is the only guard against large ranks without a ridge.
    clip : bool
        Keep predictions within the scale of the ratings.
    user, item, rating : str
        What the columns are called.
    random_state : int, RandomState or None
        For clusters and starts: same seed, same answer.

    Attributes
    ----------
    users_, items_ : Index
        Who and what is known.
    item_groups_ : Series
        The group of each item.
    scale_ : (float, float)
        The least and the greatest rating.
    model_ : HMF
        The fit; its sources are the groups, its samples the users.

    References
    ----------
    Emmanuel Candès, Benjamin Recht. Exact Matrix Completion via Convex Optimization. Foundations
    of Computational Mathematics 9, 2009.

    Naichen Shi, Salar Fattahi, Raed Al Kontar. Heterogeneous Matrix Factorization: When Features
    Differ by Datasets.

    Examples
    --------
    >>> from heterofactor.datasets import make_ratings
    >>> from heterofactor.ratings.completion import MatrixCompletion
    >>> made = make_ratings(100, 80, n_ratings=3000, n_groups=3, random_state=0)
    >>> model = MatrixCompletion(2, random_state=0).fit(made.ratings)
    >>> model.predict(made.ratings.head(3)).shape
    (3,)
    """

    def __init__(
        self,
        n_shared: int = 2,
        n_unique: int = 1,
        *,
        n_groups: int = 10,
        ridge: float = 0.0,
        solver: Literal["alternating", "averaging"] = "alternating",
        tol: float = 1e-4,
        max_rounds: int = 500,
        clip: bool = True,
        user: Hashable = "user",
        item: Hashable = "item",
        rating: Hashable = "rating",
        random_state: Any = None,
    ) -> None:
        self.n_shared = n_shared
        self.n_unique = n_unique
        self.n_groups = n_groups
        self.ridge = ridge
        self.solver = solver
        self.tol = tol
        self.max_rounds = max_rounds
        self.clip = clip
        self.user = user
        self.item = item
        self.rating = rating
        self.random_state = random_state

    def fit(self, ratings: pd.DataFrame, item_groups: Any = None) -> Self:
        """Factor what was rated.

        Parameters
        ----------
        ratings : DataFrame
            One rating in each row: user, item, rating.
        item_groups : Series, dict, array or DataFrame, optional
            Labels by item, or a table of flags indexed by item, such as genres, whose rows are
            brought to one length and clustered. Without any, all items are in one table.

        Returns
        -------
        self
        """
        known = self._read(ratings)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        names, group = read_groups(item_groups, known.items, "item", self.n_groups, seed)
        self.item_groups_ = pd.Series(names[group], index=known.items, name="group")
        whole = scipy.sparse.csc_array(
            (known.values, (known.user, known.item)), (len(known.users), len(known.items))
        )
        of_group = [np.flatnonzero(group == g) for g in range(len(names))]
        self.model_ = HMF(
            self.n_shared,
            0 if item_groups is None else self.n_unique,
            shared_axis="samples",
            centre=None,
            missing="absent",
            ridge=self.ridge,
            solver=self.solver,
            tol=self.tol,
            max_rounds=self.max_rounds,
            random_state=seed,
        ).fit({name: whole[:, at].tocsr() for name, at in zip(names, of_group, strict=True)})
        factors = self.model_.factors_
        shared = factors.shared_basis
        self._bases = np.stack([np.hstack([shared, factors.unique_bases[name]]) for name in names])
        self._scores = np.empty((len(known.items), self._bases.shape[2]))
        for name, at in zip(names, of_group, strict=True):
            both = factors.shared_scores[name], factors.unique_scores[name]
            self._scores[at] = np.hstack(both)
        self._group = group
        return self

    def _expected(self, user: Codes, item: Codes) -> Array:
        found = np.einsum("nk,nk->n", self._bases[self._group[item], user], self._scores[item])
        return self._stand_in(found, user, item)
