r"""Several models of ratings as one: their weighted sum, with weights from held-out ratings.

.. math:: \min_{c, w} \sum_{\text{held out}} \Bigl(m_{ui} - c - \sum_k w_k f_k(u, i)\Bigr)^2
    + \lambda \sum_k w_k^2
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.utils import check_random_state

from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.inner import Inner, told, with_ids_of
from heterofactor.ratings.reading import Array, Codes, Ratings


class Blend(RatingFace):
    """Predict by a weighted sum of models.

    Each model is fitted to a part of the ratings and predicts the rest, from which the weights are
    found; then all models are fitted to all ratings.

    Parameters
    ----------
    models : sequence of (str, model)
        Models of ratings, not fitted. A third entry may say which of the tables beside the ratings
        a model is given, as names of arguments of `fit`; without it, it is given all of which its
        own `fit` has an argument.
    n_folds : int
        How often a part is held out; each time another one. Every fold is one fit more of all
        models.
    held : float
        The share that is held out each time.
    positive : bool
        Let no weight be negative. Then models that tell nothing new have a weight of zero.
    ridge : float
        Penalty on the squares of the weights.
    clip : bool
        Keep predictions within the scale of the ratings.
    user, item, rating, weight, time : str
        What the columns are called; the models are told. Weights and times may be missing. Weights
        count in the sum, and in models that have a use for them.
    random_state : int, RandomState or None
        For what is held out. The models keep their own.

    Attributes
    ----------
    weights_ : Series
        By the name of the model. They need not add up to one.
    intercept_ : float
        What is added to the weighted sum.
    held_errors_ : Series
        Root of the mean squared error on the ratings that were held out: of each model, and of
        the `blend`, which was fitted to these.
    models_ : dict of RatingFace
        By name, fitted to all ratings.
    users_, items_ : Index
        Who and what is known.
    scale_ : (float, float)
        The least and the greatest rating.

    References
    ----------
    Leo Breiman. Stacked Regressions. Machine Learning 24, 1996.

    Examples
    --------
    >>> from heterofactor import RatingModel
    >>> from heterofactor.datasets import make_ratings
    >>> from heterofactor.ratings.blend import Blend
    >>> made = make_ratings(100, 80, n_ratings=3000, n_groups=3, random_state=0)
    >>> offsets, tastes = RatingModel(0, 0, n_fits=1), RatingModel(3, 1, random_state=0)
    >>> model = Blend([("offsets", offsets), ("tastes", tastes)], random_state=0)
    >>> model.fit(made.ratings, item_groups=made.item_groups).weights_.index.tolist()
    ['offsets', 'tastes']
    """

    def __init__(
        self,
        models: Sequence[tuple[Any, ...]],
        *,
        n_folds: int = 1,
        held: float = 0.1,
        positive: bool = True,
        ridge: float = 0.0,
        clip: bool = True,
        user: Hashable = "user",
        item: Hashable = "item",
        rating: Hashable = "rating",
        weight: Hashable = "weight",
        time: Hashable = "time",
        random_state: Any = None,
    ) -> None:
        self.models = models
        self.n_folds = n_folds
        self.held = held
        self.positive = positive
        self.ridge = ridge
        self.clip = clip
        self.user = user
        self.item = item
        self.rating = rating
        self.weight = weight
        self.time = time
        self.random_state = random_state

    def fit(
        self,
        ratings: pd.DataFrame,
        item_groups: Any = None,
        user_groups: Any = None,
        item_features: pd.DataFrame | None = None,
        user_features: pd.DataFrame | None = None,
    ) -> Self:
        """Find the weights, and fit every model.

        Parameters
        ----------
        ratings : DataFrame
            One row a rating, as for the models.
        item_groups, user_groups, item_features, user_features : optional
            As for `RatingModel`; for the models that take them.

        Returns
        -------
        self
        """
        self._check_settings()
        known = self._read(ratings)
        beside = {
            "item_groups": item_groups,
            "user_groups": user_groups,
            "item_features": item_features,
            "user_features": user_features,
        }
        given = self._shared_out({name: one for name, one in beside.items() if one is not None})
        fresh = {name: told(model, self) for name, model, *_ in self.models}
        # what counts for nothing is kept from models that do not know of weights
        place = self._pairs_of(ratings, known)
        ratings, place = ratings[place >= 0], place[place >= 0]
        parts, held = [], []
        for out in self._folds(known):
            pairs = pd.DataFrame(
                {
                    self.user: known.users[known.user[out]],
                    self.item: known.items[known.item[out]],
                }
            )
            train = ratings[~np.isin(place, out)]
            fitted = [clone(model).fit(train, **given[name]) for name, model in fresh.items()]
            parts.append(np.stack([one._expected(*one._places(pairs)) for one in fitted], axis=1))
            held.append(out)
        predicted, target = np.concatenate(parts), known.values[np.concatenate(held)]
        counts = known.weights[np.concatenate(held)]
        self.intercept_, weights = combined(
            predicted, target, counts, positive=self.positive, ridge=self.ridge
        )
        self.weights_ = pd.Series(weights, index=list(fresh), name="weight")
        blended = self.intercept_ + predicted @ weights
        every = self._clipped(np.column_stack([predicted, blended]))
        squares = (every - target[:, None]) ** 2
        errors = np.sqrt(np.average(squares, axis=0, weights=counts))
        self.held_errors_ = pd.Series(errors, index=[*fresh, "blend"], name="rmse")
        self.models_ = {name: model.fit(ratings, **given[name]) for name, model in fresh.items()}
        self._known = with_ids_of(known, self.models_.values())
        self._inner = {name: Inner.of(model, self) for name, model in self.models_.items()}
        return self

    def _pairs_of(self, ratings: pd.DataFrame, known: Ratings) -> Codes:
        """Return for each row which of the known pairs it rates; -1 where it counts for nothing."""
        pairs = pd.MultiIndex.from_arrays([known.user, known.item])
        return pairs.get_indexer(pd.MultiIndex.from_arrays(self._places(ratings)))

    def _folds(self, known: Ratings) -> Iterator[Codes]:
        """Yield places of the pairs that are held out, each with all its ratings."""
        order = check_random_state(self.random_state).permutation(len(known.values))
        count = max(1, round(self.held * len(order)))
        for k in range(self.n_folds):
            yield np.sort(order[k * count : (k + 1) * count])

    def _shared_out(self, beside: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return for each model the tables that it is given."""
        given = {}
        for name, model, *wanted in self.models:
            takes = set(inspect.signature(model.fit).parameters)
            if wanted and not set(wanted[0]) <= takes & set(beside):
                raise ValueError(
                    f"Model {name!r} is to be given {', '.join(wanted[0])}: expected arguments of "
                    f"its fit that were given to this one ({', '.join(beside) or 'none'})."
                )
            chosen = set(wanted[0]) if wanted else takes
            given[name] = {what: table for what, table in beside.items() if what in chosen}
        for what in beside:
            if not any(what in tables for tables in given.values()):
                raise ValueError(f"{what} is given, but no model takes it: leave it out.")
        return given

    def _check_settings(self) -> None:
        names = [entry[0] for entry in self.models]
        if not names or len(set(names)) < len(names) or "blend" in names:
            raise ValueError(
                f"models are called {', '.join(map(repr, names)) or 'nothing'}: expected at least "
                "one (name, model), no name twice, and none called 'blend'."
            )
        if self.n_folds < 1 or not 0 < self.held < 1 or self.n_folds * self.held > 1:
            raise ValueError(
                f"n_folds is {self.n_folds} and held is {self.held}: expected at least one fold, "
                "and parts that are all of the ratings at most when put together."
            )

    def _expected(self, user: Codes, item: Codes) -> Array:
        parts = [w * one.at(user, item) for one, w in self._weighted()]
        found: Array = self.intercept_ + np.sum(parts, axis=0) + np.zeros(len(user))
        return found

    def _expected_table(self, user: Codes) -> Array:
        parts = [w * one.table(user) for one, w in self._weighted()]
        found: Array = self.intercept_ + np.sum(parts, axis=0)
        return found + np.zeros((len(user), len(self.items_)))

    def _weighted(self) -> list[tuple[Inner, float]]:
        return [(self._inner[name], w) for name, w in self.weights_.items() if w != 0]


def combined(
    predicted: Array,
    target: Array,
    counts: Array | None = None,
    *,
    positive: bool = True,
    ridge: float = 0.0,
) -> tuple[float, Array]:
    """Return the intercept and the weights of predictions that come closest to a target.

    Parameters
    ----------
    predicted : array of shape (n, models)
        What each model predicts.
    target : array of shape (n,)
        What was found.
    counts : array of shape (n,), optional
        How much each counts.
    positive : bool
        Let no weight be negative.
    ridge : float
        Penalty on the squares of the weights, not of the intercept.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.blend import combined
    >>> predicted = np.array([[1.0, 5.0], [2.0, 1.0], [4.0, 2.0]])
    >>> intercept, weights = combined(predicted, np.array([1.5, 2.0, 3.0]))
    >>> round(intercept, 6), weights.round(6).tolist()
    (1.0, [0.5, 0.0])
    """
    counts = np.ones(len(target)) if counts is None else counts
    mean = np.average(predicted, axis=0, weights=counts)
    middle = float(np.average(target, weights=counts))
    root, n_models = np.sqrt(counts), predicted.shape[1]
    # a ridge is as many more observations of zero
    design = np.vstack([(predicted - mean) * root[:, None], np.sqrt(ridge) * np.eye(n_models)])
    values = np.concatenate([(target - middle) * root, np.zeros(n_models)])
    weights: Array
    if positive:
        weights, _ = nnls(design, values)
    else:
        weights = np.linalg.lstsq(design, values)[0]
    return float(middle - mean @ weights), weights
