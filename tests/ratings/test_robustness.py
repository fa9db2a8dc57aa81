"""Whatever small table of ratings comes, predictions are numbers on its scale, and add up."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heterofactor import RatingModel
from heterofactor.ratings.reading import Columns, read_ratings

IDS = st.one_of(
    st.integers(0, 5), st.sampled_from("abc"), st.tuples(st.integers(0, 1), st.sampled_from("xy"))
)
ROWS = st.lists(st.tuples(IDS, IDS, st.sampled_from([0.0, 1.0, 4.5])), min_size=1, max_size=15)


def table(rows: list[tuple[Any, Any, float]], **columns: Any) -> pd.DataFrame:
    users, items, ratings = zip(*rows, strict=True)
    return pd.DataFrame(
        {"user": pd.Series(users, dtype=object), "item": pd.Series(items, dtype=object)}
    ).assign(rating=ratings, **columns)


def settings_of(solver: str, **more: Any) -> RatingModel:
    few: dict[str, Any] = {"n_shared": 2, "n_unique": 1, "random_state": 0}
    few |= {"n_fits": 2} if solver == "als" else {"n_rounds": 4}
    return RatingModel(solver=solver, **few | more)


def every_pair(model: RatingModel) -> pd.DataFrame:
    pairs = [(u, i, 0.0) for u in [*model.users_, "no"] for i in [*model.items_, "no"]]
    return table(pairs).drop(columns="rating")


def assert_sound(model: RatingModel) -> None:
    pairs = every_pair(model)
    found = model.predict(pairs)
    low, high = model.scale_
    assert np.isfinite(found).all() and found.min() >= low and found.max() <= high
    parts = model.predict_parts(pairs).sum(axis=1)
    # sums of a hundred numbers of the size of the ratings
    size = 1e-12 * max(1.0, abs(low), abs(high))
    np.testing.assert_allclose(np.clip(parts, low, high), found, atol=size)
    if model.solver == "gibbs":
        bounds = model.predict_interval(pairs)
        assert np.isfinite(bounds.to_numpy()).all()
        assert (bounds["lower"] <= found + size).all() and (found <= bounds["upper"] + size).all()
    assert np.isfinite(model.similar_items(model.items_[0])).all()
    assert len(model.recommend(model.users_[0], 99, exclude_seen=False)) == len(model.items_)


@settings(max_examples=15)
@given(rows=ROWS, solver=st.sampled_from(["als", "gibbs"]), group=st.booleans(), seed=st.integers())
def test_any_table(rows: Any, solver: str, group: bool, seed: int) -> None:
    ratings = table(rows).drop_duplicates(["user", "item"])
    model = settings_of(solver)
    items = read_ratings(ratings, Columns()).items
    groups = np.arange(len(items)) % 2 if group else None
    assert_sound(model.fit(ratings, item_groups=groups))
    found = model.predict(ratings)
    order = np.random.default_rng(abs(seed)).permutation(len(ratings))
    again = settings_of(solver).fit(ratings.iloc[order], item_groups=groups)
    np.testing.assert_array_equal(again.predict(ratings), found)
    new = table([(ratings["user"].iloc[0], "new", 0.0), ("new", "new", 4.5)])
    assert_sound(model.add_ratings(new))


RNG = np.random.default_rng(0)
PAIRS = [(int(k) // 5, int(k) % 5, float(k % 4)) for k in RNG.permutation(30)[:20]]
EDGES: dict[str, tuple[pd.DataFrame, dict[str, Any]]] = {
    "one user": (table([("a", k, float(k)) for k in range(4)]), {}),
    "one item": (table([(k, "a", float(k)) for k in range(4)]), {}),
    "one rating": (table([("a", "b", 3.0)]), {}),
    "users of one rating": (table([(k, k % 3, float(k % 2)) for k in range(9)]), {}),
    "all equal": (table(PAIRS).assign(rating=3), {}),
    "true and false": (table(PAIRS).assign(rating=lambda t: t["rating"] > 1), {}),
    "huge": (table(PAIRS).assign(rating=lambda t: 1e9 * t["rating"]), {}),
    "weights of zero": (table(PAIRS).assign(weight=lambda t: (t["user"] > 0) * 1.0), {}),
    "huge ids": (table([(2**63, 10**30, 1.0), (2**64, 1, 2.0)]), {}),
    "a group of one": (table(PAIRS), {"item_groups": {0: "a", 1: "b", 2: "b", 3: "b", 4: "b"}}),
    "labels of several kinds": (
        table(PAIRS),
        {"item_groups": {0: "a", 1: 1, 2: (1, 2), 3: "a", 4: 1}},
    ),
    "flags of nothing": (table(PAIRS), {"item_groups": pd.DataFrame(np.zeros((5, 2)))}),
    "features of nothing": (
        table(PAIRS),
        {
            "item_features": pd.DataFrame(index=range(6)),
            "user_features": pd.DataFrame(index=range(6)),
        },
    ),
    "features that are missing": (
        table(PAIRS),
        {"item_features": pd.DataFrame({"x": [np.nan] * 6, "y": [None, "a", "b", "a", None, "c"]})},
    ),
}


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "als"},
        {"solver": "gibbs"},
        {"solver": "als", "n_shared": 0, "n_unique": 0},
        {"solver": "als", "n_shared": 20, "n_unique": 9},
        {"solver": "gibbs", "n_shared": 0, "n_rounds": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("case", EDGES)
def test_edges(case: str, settings: dict[str, Any]) -> None:
    ratings, more = EDGES[case]
    model = settings_of(**settings).fit(ratings, **more)
    assert_sound(model)
    user, item = ratings[["user", "item"]].iloc[0]
    low, high = model.scale_
    assert_sound(model.add_ratings(table([(user, "new", high), ("new", item, low)])))


def test_weights_of_zero_leave_users_out() -> None:
    model = settings_of("als").fit(EDGES["weights of zero"][0])
    assert 0 not in model.users_


@pytest.mark.parametrize(
    "times",
    [
        ["2020-01-02", "2020-01-01", "2020-01-01"],
        pd.to_datetime(["2020-01-02", "2020-01-01", None]),
        pd.to_datetime(["2020-01-02", "2020-01-01", None], utc=True),
        ["9", "8", "7"],
        [9, 8, None],
        pd.array([9, 8, None], dtype="Int64"),
        pd.array([10, 9, 8], dtype=object),
    ],
)
def test_times_of_any_kind_tell_the_last(times: Any) -> None:
    twice = pd.DataFrame({"user": [1, 1, 1], "item": [7, 7, 7], "rating": [4, 2, 3], "time": times})
    assert read_ratings(twice, Columns()).values.tolist() == [4.0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"time": ["noon", "x"] * 10}, "first is 'noon'.*neither numbers nor times.*to_datetime"),
        ({"time": ["x", 1] * 10}, "holds neither numbers nor times"),
        ({"rating": "five"}, "holds other things than numbers"),
    ],
)
def test_columns_that_cannot_be_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of("als").fit(table(PAIRS).assign(**columns))


def test_several_columns_of_one_name_are_refused() -> None:
    ratings = table(PAIRS)
    with pytest.raises(ValueError, match="ratings has several columns 'rating': leave one"):
        settings_of("als").fit(pd.concat([ratings, ratings["rating"]], axis=1))
    model = settings_of("als").fit(ratings)
    with pytest.raises(ValueError, match="pairs has several columns 'user'"):
        model.predict(pd.concat([ratings, ratings["user"]], axis=1))


def test_flags_that_are_missing_are_refused() -> None:
    flags = pd.DataFrame({"a": [1.0, np.nan, 0, 1, 0]})
    with pytest.raises(ValueError, match="item_groups has flags that are missing, for 1: fill"):
        settings_of("als").fit(table(PAIRS), item_groups=flags)
