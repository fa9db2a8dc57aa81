"""Blend: weights from ratings that were held out, and the sum that they make."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from heterofactor import RatingModel
from heterofactor.datasets import make_ratings
from heterofactor.ratings.blend import Blend, combined
from heterofactor.ratings.face import RatingFace

MADE = make_ratings(150, 120, n_ratings=6000, n_groups=3, random_state=0)
TASTES = RatingModel(3, 1, n_fits=2, random_state=0)
OFFSETS = RatingModel(0, 0, n_fits=1)


class Noise(RatingFace):
    """Expects anything, and remembers what it was given to fit."""

    def __init__(
        self, clip: bool = True, user: Any = "user", item: Any = "item", rating: Any = "rating"
    ) -> None:
        self.clip = clip
        self.user = user
        self.item = item
        self.rating = rating

    def fit(self, ratings: pd.DataFrame, user_features: Any = None) -> Self:
        self._read(ratings)
        self.given_ = user_features
        return self

    def _expected(self, user: Any, item: Any) -> np.ndarray:
        return 3 + np.sin(1000.0 * user + 77.0 * item)


def fitted(**settings: Any) -> Blend:
    models = [("offsets", OFFSETS), ("tastes", TASTES), ("noise", Noise())]
    return Blend(models, random_state=0, **settings).fit(MADE.ratings, MADE.item_groups)


def test_what_tells_nothing_counts_for_nothing() -> None:
    weights = fitted(n_folds=5).weights_
    # the standard error of a weight is the noise of ratings (0.6) over that of the noise (0.7),
    # by the root of 3,000 held-out ratings: 0.016
    assert abs(weights["noise"]) < 0.05
    assert weights["tastes"] > 0.6 and 0.8 < weights.sum() < 1.2


def test_what_is_expected_is_the_weighted_sum() -> None:
    model = fitted(clip=False)
    pairs = MADE.ratings[:200]
    parts = pd.DataFrame(
        {name: one.set_params(clip=False).predict(pairs) for name, one in model.models_.items()}
    )
    expected = model.intercept_ + parts.to_numpy() @ model.weights_[parts.columns].to_numpy()
    np.testing.assert_allclose(model.predict(pairs), expected, rtol=1e-12)
    table = model.predict_table(pairs["user"].unique())
    one = [table.loc[u, i] for u, i in zip(pairs["user"], pairs["item"], strict=True)]
    np.testing.assert_allclose(one, expected, rtol=1e-12)


def test_models_are_fitted_to_all_ratings_in_the_end() -> None:
    model = fitted()
    alone = clone(TASTES).fit(MADE.ratings, MADE.item_groups)
    np.testing.assert_array_equal(
        model.models_["tastes"].predict(MADE.ratings), alone.predict(MADE.ratings)
    )
    assert not hasattr(TASTES, "users_")


def test_a_blend_is_better_than_its_parts() -> None:
    """Where two models see different things, on ratings that neither fit nor weights have seen."""
    train, test = MADE.ratings[:5000], MADE.ratings[5000:]
    models = [("shared", RatingModel(3, 0, n_fits=1, random_state=0)),
              ("unique", RatingModel(0, 3, n_fits=1, random_state=0))]  # fmt: skip
    blend = Blend(models, n_folds=3, random_state=0).fit(train, MADE.item_groups)
    assert blend.score(test) > max(one.score(test) for one in blend.models_.values())
    assert blend.held_errors_["blend"] < blend.held_errors_[["shared", "unique"]].min()


def test_nothing_that_is_held_out_is_fitted() -> None:
    """A model that remembers its ratings would get all the weight if it had seen those held out."""

    class Memory(Noise):
        def _expected(self, user: Any, item: Any) -> np.ndarray:
            table = np.full((len(self.users_), len(self.items_)), 3.0)
            table[self._known.user, self._known.item] = self._known.values
            return self._stand_in(table[user, item], user, item)

    twice = pd.concat([MADE.ratings, MADE.ratings])
    model = Blend([("tastes", TASTES), ("memory", Memory())], random_state=0).fit(twice)
    assert model.weights_["memory"] < 0.1 < model.weights_["tastes"]


def test_each_model_is_given_the_tables_that_it_takes() -> None:
    features = pd.DataFrame({"age": 1.0}, index=pd.unique(MADE.ratings["user"]))
    features.iloc[::2] = 2.0
    models = [("tastes", TASTES, ("item_groups",)), ("noise", Noise())]
    model = Blend(models, random_state=0)
    model.fit(MADE.ratings, item_groups=MADE.item_groups, user_features=features)
    assert model.models_["noise"].given_ is features
    assert model.models_["tastes"].item_groups_ is not None
    plain = clone(TASTES).fit(MADE.ratings, MADE.item_groups)
    pd.testing.assert_series_equal(model.models_["tastes"].user_offsets_, plain.user_offsets_)


def test_weights_solve_least_squares(seed: int) -> None:
    """With scikit-learn's ridge as witness; positive ones satisfy the conditions of a minimum."""
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(seed)
    predicted = rng.normal(size=(60, 4)) + 3
    target = predicted @ [0.7, -0.4, 0.3, 0.0] + rng.normal(size=60)
    witness = Ridge(alpha=2.0).fit(predicted, target)
    intercept, weights = combined(predicted, target, positive=False, ridge=2.0)
    np.testing.assert_allclose([intercept, *weights], [witness.intercept_, *witness.coef_])
    intercept, weights = combined(predicted, target, ridge=2.0)
    left = target - intercept - predicted @ weights
    slope = -predicted.T @ left + 2.0 * weights
    assert abs(left.sum()) < 1e-9 and (weights >= 0).all() and weights[1] == 0
    np.testing.assert_allclose(slope[weights > 0], 0, atol=1e-9)
    assert (slope[weights == 0] > -1e-9).all()


def test_ratings_of_weight_zero_are_not_there() -> None:
    """Neither for models that know of weights, nor for those that do not, nor for the sum."""
    ratings = MADE.ratings.assign(weight=1.0)
    wrong = ratings[:3000].assign(
        item=lambda t: t["item"] + " again", rating=1.0, weight=0.0, user="wrong"
    )
    models = [("tastes", TASTES), ("noise", Noise())]
    model = Blend(models, random_state=0).fit(pd.concat([ratings, wrong]))
    plain = Blend(models, random_state=0).fit(MADE.ratings)
    pd.testing.assert_series_equal(model.weights_, plain.weights_)
    assert "wrong" not in model.models_["noise"].users_


def test_weights_count_in_the_sum(seed: int) -> None:
    """A rating of weight two is one that is there twice."""
    rng = np.random.default_rng(seed)
    predicted, target = rng.normal(size=(40, 3)), rng.normal(size=40)
    counts = rng.integers(0, 3, 40)
    again = np.repeat(np.arange(40), counts)
    weighted = combined(predicted, target, counts.astype(float), positive=False)
    repeated = combined(predicted[again], target[again], positive=False)
    np.testing.assert_allclose([weighted[0], *weighted[1]], [repeated[0], *repeated[1]], atol=1e-12)


def test_what_cannot_be_is_refused() -> None:
    def fit(models: Any, **settings: Any) -> Any:
        return lambda **given: Blend(models, **settings).fit(MADE.ratings, **given)

    with pytest.raises(ValueError, match="models are called nothing"):
        fit([])()
    with pytest.raises(ValueError, match="models are called 'a', 'a': expected"):
        fit([("a", OFFSETS), ("a", TASTES)])()
    with pytest.raises(ValueError, match=r"n_folds is 4 and held is 0.3: expected at least one"):
        fit([("a", OFFSETS)], n_folds=4, held=0.3)()
    with pytest.raises(ValueError, match="item_groups is given, but no model takes it"):
        fit([("noise", Noise())])(item_groups=MADE.item_groups)
    with pytest.raises(ValueError, match="Model 'a' is to be given user_groups: expected"):
        fit([("a", OFFSETS, ("user_groups",))])(item_groups=MADE.item_groups)


def test_models_may_know_more_than_was_rated() -> None:
    """Or less, and in another order: they are asked by ids."""

    class Reading(Noise):
        """Knows users and items that never rated, before the others, and expects their names."""

        def fit(self, ratings: pd.DataFrame, user_features: Any = None) -> Self:
            known = self._read(ratings)
            users = pd.Index(["aaa", *known.users[::-1]])
            items = pd.Index(["new", *known.items[1:]])
            self._known = replace(known, users=users, items=items)
            return self

        def _expected(self, user: Any, item: Any) -> np.ndarray:
            codes = [
                np.append([float(len(str(one)) + ord(str(one)[-1])) for one in ids], 0.0)
                for ids in (self.users_, self.items_)
            ]
            return codes[0][user] + codes[1][item]

    models = [("tastes", TASTES), ("reading", Reading())]
    model = Blend(models, positive=False, clip=False, random_state=0).fit(MADE.ratings)
    pairs = pd.DataFrame({"user": ["aaa", "user7", "user7"], "item": ["item3", "new", "item0"]})
    read, tastes = (model.models_[name] for name in ("reading", "tastes"))
    expected = [
        model.intercept_
        + model.weights_["tastes"] * tastes._expected(*tastes._places(pairs[at:][:1]))[0]
        + model.weights_["reading"] * read._expected(*read._places(pairs[at:][:1]))[0]
        for at in range(3)
    ]
    np.testing.assert_allclose(model.predict(pairs), expected)
    table = model.predict_table(pairs["user"].unique())
    found = [table.loc[u, i] for u, i in zip(pairs["user"], pairs["item"], strict=True)]
    np.testing.assert_allclose(found, expected)
