"""AutoSVD++: its auto-encoder, its steps, and what it finds."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime

from heterofactor.ratings.autosvd import AutoSVD
from heterofactor.ratings.contractive import contractive_scores, value_and_slope
from heterofactor.ratings.descent import sweep

SLOW: dict[str, Any] = {"learning_rate": 0.02, "ridge": 0.02, "ridge_offsets": 0.02}


def made(seed: int = 0, share: float = 0.3, noise: float = 0.3) -> tuple[pd.DataFrame, ...]:
    """Return ratings, features of items on which all tastes depend, and the truth of all pairs."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 4, 120)
    tastes = rng.choice([-1.0, 1.0], (80, 4))
    truth = 3 + tastes[:, kinds]
    user, item = np.nonzero(rng.random(truth.shape) < share)
    values = truth[user, item] + noise * rng.normal(size=len(user))
    table = pd.DataFrame({"user": user, "item": item, "rating": values})
    everything = pd.DataFrame(
        {"user": np.repeat(np.arange(80), 120), "item": np.tile(np.arange(120), 80)}
    ).assign(rating=truth.ravel())
    return table, pd.DataFrame({"kind": kinds}).astype(str), everything


def error(model: Any, table: pd.DataFrame) -> float:
    return -float(model.score(table))


def test_the_auto_encoder_has_the_slope_of_its_value() -> None:
    rng = np.random.default_rng(0)
    X, weights = rng.random((6, 5)), rng.normal(size=5 * 3 + 3 + 5)
    _, slope = value_and_slope(weights, X, 3, 0.7)
    numeric = approx_fprime(weights, lambda moved: value_and_slope(moved, X, 3, 0.7)[0], 1e-7)
    # forward differences of 1e-7 are off by about as much times the curvature
    np.testing.assert_allclose(slope, numeric, atol=1e-6)


def test_the_penalty_is_the_squared_length_of_the_slopes_of_scores() -> None:
    rng = np.random.default_rng(1)
    X, weights = rng.random((1, 4)), rng.normal(size=4 * 2 + 2 + 4)
    W, b = weights[:8].reshape(4, 2), weights[8:10]

    def scores(x: Any) -> Any:
        return 1 / (1 + np.exp(-(x @ W + b)))

    jacobian = approx_fprime(X[0], scores, 1e-7)
    with_it, without = (value_and_slope(weights, X, 2, c)[0] for c in (1.0, 0.0))
    assert with_it - without == pytest.approx((jacobian**2).sum() / 2, abs=1e-6)


def test_contraction_makes_scores_flat() -> None:
    X = np.random.default_rng(0).integers(0, 2, (50, 6)).astype(float)
    loose, tight = (
        contractive_scores(X, 3, contraction, np.random.RandomState(0))
        for contraction in (0.001, 10.0)
    )
    assert tight.std(axis=0).max() < 0.1 * loose.std(axis=0).max()


def problem(implicit: bool, ridge: float) -> tuple[Any, Any, Any]:
    """Return ratings, parameters, and the objective of the parameters, all drawn."""
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((4, 5)) < 0.7)
    values = rng.normal(size=len(user))
    shapes = {"a": (4,), "b": (5,), "p": (4, 2), "q": (5, 2), "y": (5 if implicit else 0, 2)}
    state = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    fixed = rng.normal(size=(5, 2))
    sizes = np.bincount(user, minlength=4)

    def objective(state: Any) -> float:
        around = state["p"].copy()
        if implicit:
            np.add.at(around, user, state["y"][item] / np.sqrt(sizes[user])[:, None])
        tastes = (around[user] * (state["q"] + fixed)[item]).sum(axis=1)
        errors = values - 0.3 - state["a"][user] - state["b"][item] - tastes
        penalised = (state["a"][user], state["b"][item], state["p"][user], state["q"][item])
        return float((errors**2).sum() + ridge * sum((each**2).sum() for each in penalised)) / 2

    indptr = np.searchsorted(user, np.arange(5))
    return (np.arange(4), indptr, item, values, 0.3, fixed), state, objective


@pytest.mark.parametrize(("implicit", "ridge"), [(True, 0.0), (False, 0.4)])
def test_small_steps_go_down_the_slope(implicit: bool, ridge: float) -> None:
    """A round of tiny steps is a tiny step on all ratings; the y have no ridge of their own."""
    (users, indptr, item, values, mean, fixed), state, objective = problem(implicit, ridge)
    rate, after = 1e-7, {name: array.copy() for name, array in state.items()}
    arrays = after["a"], after["b"], after["p"], after["q"], fixed, after["y"]
    sweep(users, indptr, item, values, mean, *arrays, rate, ridge, ridge)
    for name, array in state.items():
        if not array.size:
            continue

        def value(flat: Any, name: str = name, shape: Any = array.shape) -> float:
            return objective(state | {name: flat.reshape(shape)})

        numeric = approx_fprime(array.ravel(), value, 1e-6)
        moved = (state[name] - after[name]).ravel() / rate
        # later ratings see what earlier ones moved: 1e-7; differences of 1e-6: 1e-5
        np.testing.assert_allclose(moved, numeric, atol=1e-4)


def test_the_ridge_of_what_was_seen_lets_the_mean_decay() -> None:
    """With every error zero, only the penalty moves the sum over a user's y."""
    ones, none = np.ones((2, 1)), np.zeros((2, 1))
    seen, indptr = np.array([[3.0], [1.0]]), np.array([0, 2])
    arrays = np.zeros(1), np.zeros(2), np.zeros((1, 1)), none, 0 * ones, seen
    sweep(np.array([0]), indptr, np.array([0, 1]), np.zeros(2), 0.0, *arrays, 0.1, 0.0, 0.5)
    assert seen.sum() == pytest.approx(4 * 0.95**2)


def test_compiled_or_not_the_answer_is_the_same() -> None:
    found = []
    for run in (sweep, getattr(sweep, "py_func", sweep)):
        (users, indptr, item, values, mean, fixed), state, _ = problem(True, 0.1)
        arrays = state["a"], state["b"], state["p"], state["q"], fixed, state["y"]
        total = run(users, indptr, item, values, mean, *arrays, 0.05, 0.1, 0.1)
        found.append(np.concatenate([[total], *(each.ravel() for each in state.values())]))
    # the compiler may fuse a product and a sum: the last digits of double precision
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


@pytest.mark.parametrize("implicit", [True, False])
def test_the_truth_is_recovered(implicit: bool) -> None:
    table, _, everything = made()
    model = AutoSVD(4, implicit=implicit, max_rounds=80, random_state=0, **SLOW).fit(table)
    # noise of 0.3 in 36 ratings of each user, four tastes: about 0.3 * sqrt(4 / 36 + 4 / 24)
    assert error(model, everything) < 0.25


def test_features_help_where_ratings_are_few() -> None:
    table, features, everything = made(share=0.08)
    settings: dict[str, Any] = {"max_rounds": 60, "random_state": 0, **SLOW}
    model = AutoSVD(6, feature_weight=1.0, contraction=0.01, **settings)
    with_them, without = (
        error(model.fit(table, features), everything),
        error(model.fit(table), everything),
    )
    assert with_them < 0.8 * without


def test_what_was_rated_counts_where_it_says_something() -> None:
    """Who rates the first items is told from who rates the next ones by nothing but that."""
    rng = np.random.default_rng(0)
    likes = rng.choice([-1.0, 1.0], 200)
    kinds = np.repeat([0.0, 0.0, -1.0, 1.0], 20)
    truth = 3 + np.outer(likes, kinds)
    chance = np.full(truth.shape, 0.04)
    chance[likes < 0, :20], chance[likes > 0, 20:40] = 0.3, 0.3
    there = rng.random(truth.shape) < chance
    user, item = np.nonzero(there)
    values = truth[there] + 0.3 * rng.normal(size=len(user))
    table = pd.DataFrame({"user": user, "item": item, "rating": values})
    rest = np.nonzero(~there & (kinds != 0))
    hidden = pd.DataFrame({"user": rest[0], "item": rest[1], "rating": truth[rest]})
    settings: dict[str, Any] = {"max_rounds": 60, "random_state": 0, **SLOW}
    found = [
        error(AutoSVD(2, implicit=implicit, **settings).fit(table), hidden)
        for implicit in (True, False)
    ]
    assert found[0] < 0.8 * found[1]


def test_items_without_ratings_are_liked_as_their_features_say() -> None:
    table, features, everything = made()
    rated = table[table["item"] >= 10]
    model = AutoSVD(6, feature_weight=1.0, contraction=0.01, max_rounds=50, random_state=0, **SLOW)
    found = model.fit(rated, features)
    assert sorted(found.items_) == list(range(120))
    cold = everything[everything["item"] < 10]
    # without features each of these is off by one
    assert error(found, cold) < 0.6
    assert not set(range(10)) & set(model.fit(rated).items_)


def test_the_scale_of_ratings_does_not_matter() -> None:
    """On a scale from 10 to 90, the same settings find the same."""
    table, features, everything = made()
    model = AutoSVD(4, max_rounds=10, random_state=0, **SLOW)
    wide = table.assign(rating=20 * table["rating"] - 10)
    found = model.fit(wide, features).predict(everything)
    np.testing.assert_allclose(found, 20 * model.fit(table, features).predict(everything) - 10)


def test_steps_that_are_too_large_are_told() -> None:
    with pytest.raises(ValueError, match="expected a smaller learning_rate than 5 for"):
        AutoSVD(learning_rate=5.0, max_rounds=30, random_state=0).fit(made()[0])


def test_what_cannot_be_is_refused() -> None:
    table, features, _ = made()
    with pytest.raises(ValueError, match=r"item_features has no row for 1 of 120 items \(3\)"):
        AutoSVD().fit(table, features.drop(index=3))
    with pytest.raises(TypeError, match="item_features is dict: expected a DataFrame"):
        AutoSVD().fit(table, {"kind": 1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has several rows for 3"):
        AutoSVD().fit(table, pd.concat([features, features.loc[[3]]]))
