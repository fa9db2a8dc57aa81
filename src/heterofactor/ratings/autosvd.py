r"""AutoSVD++: tastes for items that begin at what an auto-encoder makes of the items' features.

.. math:: m_{ui} \approx \mu + a_u + b_i + (\beta\, c_i + \varepsilon_i)^\top
    \Big(p_u + |N_u|^{-1/2} \sum_{j \in N_u} y_j\Big)

where :math:`c_i` are the scores of item i's features in a contractive auto-encoder, trained
beforehand, and :math:`N_u` are the items that user u has rated.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from heterofactor.ratings.contractive import contractive_scores
from heterofactor.ratings.descent import sweep
from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.reading import Array, Codes
from heterofactor.ratings.side import unit_columns, unit_of, with_unrated

# Spread of the tastes at the start.
START = 0.05


class AutoSVD(RatingFace):
    """AutoSVD++, and AutoSVD, which does without what users have rated.

    Items that were never rated but have features are known as well: their offset is zero, and
    users are expected to like them as their features say. For a user who was never seen, the
    mean of the item stands in.

    Parameters
    ----------
    n_components : int
        Length of tastes, and of the auto-encoder's scores.
    implicit : bool
        What users have rated counts, beside how: AutoSVD++. Otherwise AutoSVD.
    feature_weight : float
        The weight of the auto-encoder's scores.
    contraction : float
        What the squares of their slopes count while the auto-encoder is trained.
    ridge_offsets, ridge : float
        Penalties on the squares of offsets and tastes, counted once for each rating.
    learning_rate : float
        The size of the steps.
    max_rounds : int
        Steps for each rating. More is not better: the penalties do not prevent overfitting alone.
    user, item, rating : str
        Names of the columns.
    random_state : int, RandomState or None
        Same seed, same answer.

    Attributes
    ----------
    users_, items_ : Index
        Who and what is known; items without ratings come last.
    item_features_ : array of shape (n_items, n_components)
        The auto-encoder's scores; zero where there are no features.
    mean_, user_offsets_, item_offsets_ : float and arrays
        What is expected before any taste.
    user_tastes_, item_tastes_ : array
        The two sides of the product above.
    scale_ : (float, float)
        The lowest and the highest rating seen.
    history_ : DataFrame
        The root of the mean squared error of ratings during each round.

    Notes
    -----
    The defaults are for AutoSVD++; AutoSVD takes more and larger steps: ``contraction=0.1``,
    ``ridge_offsets=0.1``, ``ridge=0.1``, ``learning_rate=0.01`` and ``max_rounds=40`` did best.

    As published: the model, the contractive auto-encoder trained beforehand, one step at a time,
    and the ratings of a user together. The authors' program has no auto-encoder, but its result for
    other data; chosen here: tied weights (as in Rifai et al., ICML 2011) and half the sum of
    squared errors, lowered by L-BFGS over all items; numbers are moved to between 0 and 1,
    categories are flags. Also chosen here: users and their ratings are taken in a new random order
    each round; tastes begin as normal numbers around zero; ratings are brought to the span of one
    to five stars, for which rates and penalties are meant.

    References
    ----------
    Shuai Zhang, Lina Yao, Xiwei Xu. AutoSVD++: An Efficient Hybrid Collaborative Filtering Model
    via Contractive Auto-encoders. SIGIR 2017.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.autosvd import AutoSVD
    >>> ratings = pd.DataFrame({
    ...     "user": ["ann", "ann", "bob", "bob"],
    ...     "item": ["tea", "ale", "tea", "ale"],
    ...     "rating": [5, 1, 1, 5],
    ... })
    >>> drinks = pd.DataFrame({"hot": [1, 0, 1]}, index=["tea", "ale", "mate"])
    >>> model = AutoSVD(2, ridge=0.01, feature_weight=1, learning_rate=0.05, random_state=0)
    >>> model.set_params(max_rounds=500).fit(ratings, drinks).predict_table().round()
         ale  tea  mate
    ann  1.0  5.0   4.0
    bob  5.0  1.0   2.0
    """

    def __init__(
        self,
        n_components: int = 40,
        *,
        implicit: bool = True,
        feature_weight: float = 0.2,
        contraction: float = 0.01,
        ridge_offsets: float = 0.005,
        ridge: float = 0.015,
        learning_rate: float = 0.005,
        max_rounds: int = 15,
        user: str = "user",
        item: str = "item",
        rating: str = "rating",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.implicit = implicit
        self.feature_weight = feature_weight
        self.contraction = contraction
        self.ridge_offsets = ridge_offsets
        self.ridge = ridge
        self.learning_rate = learning_rate
        self.max_rounds = max_rounds
        self.user = user
        self.item = item
        self.rating = rating
        self.random_state = random_state

    def fit(self, ratings: pd.DataFrame, item_features: pd.DataFrame | None = None) -> Self:
        """Train the auto-encoder on features, and the tastes on ratings.

        Parameters
        ----------
        ratings : DataFrame
            One rating in each row: user, item, rating.
        item_features : DataFrame, optional
            Indexed by item: numbers, flags or categories. Without it this is SVD++ (or SVD).

        Returns
        -------
        self
        """
        known = self._known = with_unrated(self._read(ratings), item_features=item_features)
        rng = check_random_state(self.random_state)
        n_users, n_items, rank = len(known.users), len(known.items), self.n_components
        columns = unit_columns(item_features, known.items, "item")
        self.item_features_ = (
            contractive_scores(columns, rank, self.contraction, rng)
            if columns.shape[1]
            else np.zeros((n_items, rank))
        )
        fixed = self.feature_weight * self.item_features_

        unit = unit_of(known)
        values = known.values / unit
        mean = float(values.mean())
        offsets = np.zeros(n_users), np.zeros(n_items)
        user_tastes, item_tastes = (rng.normal(0, START, (n, rank)) for n in (n_users, n_items))
        seen = rng.normal(0, START, (n_items if self.implicit else 0, rank))
        item_tastes[np.bincount(known.item, minlength=n_items) == 0] = 0
        indptr = np.searchsorted(known.user, np.arange(n_users + 1))
        errors: list[float] = []
        for _ in range(self.max_rounds):
            order = rng.permutation(len(values))
            order = order[np.argsort(known.user[order], kind="stable")]
            with np.errstate(all="ignore"):  # what overflows is told below
                total = sweep(
                    rng.permutation(n_users),
                    indptr,
                    known.item[order],
                    values[order],
                    mean,
                    *offsets,
                    user_tastes,
                    item_tastes,
                    fixed,
                    seen,
                    self.learning_rate,
                    self.ridge_offsets,
                    self.ridge,
                )
            if not np.isfinite(total):
                raise ValueError(
                    f"The tastes grew without bound in round {len(errors) + 1}: expected a smaller "
                    f"learning_rate than {self.learning_rate:g} for these ratings."
                )
            errors.append(unit * np.sqrt(total / len(values)))
        self.history_ = pd.DataFrame(
            {"rmse": errors}, index=pd.RangeIndex(1, len(errors) + 1, name="round")
        )
        if self.implicit:
            np.add.at(user_tastes, known.user, seen[known.item] / _roots(known.user)[:, None])
        self.mean_ = unit * mean
        self.user_offsets_, self.item_offsets_ = (unit * each for each in offsets)
        self.user_tastes_, self.item_tastes_ = unit * user_tastes, item_tastes + fixed
        return self

    def _expected(self, user: Codes, item: Codes) -> Array:
        tastes = np.einsum("ij,ij->i", self.user_tastes_[user], self.item_tastes_[item])
        offsets = self.mean_ + self.user_offsets_[user] + self.item_offsets_[item]
        return self._stand_in(offsets + tastes, user, item)

    def _expected_table(self, user: Codes) -> Array:
        offsets = self.mean_ + self.user_offsets_[user, None] + self.item_offsets_
        found = offsets + self.user_tastes_[user] @ self.item_tastes_.T
        return self._stand_in(found, user[:, None], np.arange(len(self.items_)))


def _roots(user: Codes) -> Array:
    """Return for each rating the root of the number of ratings of its user."""
    roots: Array = np.sqrt(np.bincount(user))[user]
    return roots
