"""Who comes later is known by features, by ratings, or by both, and nobody else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from heterofactor import RatingModel
from heterofactor.datasets import MadeRatings, load_cinema, make_ratings
from heterofactor.files import load, save
from heterofactor.ratings.features import encoding_of
from heterofactor.ratings.tastes import Tastes
from heterofactor.ratings.told import TO_ZERO, Told, tell

SOLVERS = pytest.mark.parametrize("solver", ["als", "gibbs"])
SIDES = pytest.mark.parametrize("side", ["user", "item"])


@pytest.fixture(scope="module")
def made() -> MadeRatings:
    return make_ratings(150, 120, n_ratings=6_000, n_groups=2, random_state=0)


def small(solver: str, **settings: Any) -> RatingModel:
    given: dict[str, Any] = {"n_rounds": 60} if solver == "gibbs" else {"n_fits": 2}
    return RatingModel(3, 1, solver=solver, random_state=0, **given | settings)


def features_of(made: MadeRatings, side: str) -> pd.DataFrame:
    return made.user_features if side == "user" else made.item_features


def cold(made: MadeRatings, side: str) -> tuple[pd.Index, np.ndarray]:
    ids = features_of(made, side).index[::10]
    return ids, made.ratings[side].isin(ids).to_numpy()


@SIDES
@SOLVERS
def test_features_alone_predict(made: MadeRatings, solver: str, side: str) -> None:
    _, held = cold(made, side)
    train, test = made.ratings[~held], made.ratings[held]
    given = {f"{side}_features": features_of(made, side)}
    model = small(solver).fit(train, item_groups=made.item_groups, **given)
    nothing = -model.score(test.assign(**{side: "nobody"}))
    # half of the variance of features is signal: of offsets of 0.45 and of tastes of 0.6
    assert -model.score(test) < nothing - 0.03


@SIDES
@SOLVERS
def test_who_is_added_changes_nobody_else(made: MadeRatings, solver: str, side: str) -> None:
    ids, held = cold(made, side)
    train, test = made.ratings[~held], made.ratings[held]
    table = features_of(made, side)
    groups = made.item_groups.drop(ids) if side == "item" else made.item_groups
    given = {f"{side}_features": table.drop(ids)}
    one, other = (small(solver).fit(train, item_groups=groups, **given) for _ in range(2))
    before = one.predict(train)

    def add(model: RatingModel, features: pd.DataFrame) -> None:
        if side == "item":
            model.add_items(features, groups=made.item_groups)
        else:
            model.add_users(features)

    add(one, table.loc[ids])
    np.testing.assert_array_equal(one.predict(train), before)
    assert -one.score(test) < -other.score(test) - 0.03
    assert one.explain("user1", ids[0] if side == "item" else "item1")["unique"] != 0
    # one by one as all at once; who is known already stays
    for k in range(len(ids)):
        add(other, table.loc[ids[: k + 1]])
    np.testing.assert_allclose(other.predict(made.ratings), one.predict(made.ratings), atol=1e-12)
    assert len(one.users_) == 150 and len(one.items_) == 120


def test_what_nobody_rated_is_like_what_few_have_rated(made: MadeRatings) -> None:
    count = made.ratings["item"].value_counts()
    # the more ratings, the better the item
    rise = 0.5 * np.log(count).reindex(made.ratings["item"]).to_numpy()
    ratings = made.ratings.assign(rating=made.ratings["rating"] + rise)
    ids, held = cold(made, "item")
    features, groups = made.item_features, made.item_groups
    there = small("als").fit(ratings[~held], groups, item_features=features)
    later = small("als").fit(ratings[~held], groups, item_features=features.drop(ids))
    later.add_items(features.loc[ids], groups=groups)
    assert (there.item_offsets_[ids] < later.item_offsets_[ids]).all()


def test_new_users_are_recommended_what_their_features_say(made: MadeRatings) -> None:
    ids, held = cold(made, "user")
    model = small("gibbs").fit(made.ratings[~held], user_features=made.user_features)
    tables = {one: model.recommend(one, 120, exclude_seen=False) for one in ids}
    truth = made.shared_parts.add(made.item_offsets)
    gains = [
        tables[one].corr(truth.loc[one]) - model.item_offsets_.corr(truth.loc[one]) for one in ids
    ]
    assert np.mean(gains) > 0.02


def test_intervals_are_wide_where_little_is_known(made: MadeRatings) -> None:
    _, held = cold(made, "item")
    model = small("gibbs", clip=False, n_rounds=100)
    model.fit(made.ratings[~held], made.item_groups, item_features=made.item_features)
    test = made.ratings[held]

    def width(pairs: pd.DataFrame) -> float:
        bounds = model.predict_interval(pairs)
        return float((bounds["upper"] - bounds["lower"]).mean())

    strangers = test.assign(item="nothing")
    rated = test.assign(item=made.ratings.loc[~held, "item"].iloc[0])
    assert width(rated) < width(test) < width(strangers)
    for pairs in (test, strangers):
        bounds = model.predict_interval(pairs)
        inside = (bounds["lower"] <= test["rating"]) & (test["rating"] <= bounds["upper"])
        # twelve items: the standard error is that of a few dozen ratings, 0.05
        assert 0.82 < inside.mean() < 0.98


def test_an_item_without_a_group_has_no_unique_taste(made: MadeRatings) -> None:
    ids, held = cold(made, "item")
    model = small("als")
    groups = made.item_groups.drop(ids)
    model.fit(made.ratings[~held], groups, item_features=made.item_features.drop(ids))
    model.add_items(made.item_features.loc[ids], groups={ids[0]: "group1", ids[1]: "never seen"})
    assert model.item_groups_[ids[0]] == "group1"
    assert model.item_groups_[ids[1:]].isna().all()
    assert model.explain("user1", ids[1])["unique"] == 0
    assert model.explain("user1", ids[1]).name is None
    # until it is rated
    model.add_ratings(made.ratings[held])
    assert model.item_groups_.notna().all()
    assert model.explain("user1", ids[1])["unique"] != 0


def test_flags_say_to_which_cluster_an_item_belongs(made: MadeRatings) -> None:
    ids, held = cold(made, "item")
    flags = pd.get_dummies(made.item_groups, dtype=float)
    model = small("als", n_groups=2).fit(
        made.ratings[~held], flags.drop(ids), item_features=made.item_features.drop(ids)
    )
    flags.loc[ids[0]] = np.nan
    model.add_items(made.item_features.loc[ids], groups=flags)
    assert pd.isna(model.item_groups_[ids[0]])
    assert (model.item_groups_[ids[1:]] == made.item_groups[ids[1:]]).all()
    with pytest.raises(ValueError, match=r"item_groups is a table: expected the flags \['group0'"):
        model.add_items(made.item_features[:1].set_axis(["new"]), groups=flags[["group0"]])


def test_groups_of_users_come_with_users(made: MadeRatings) -> None:
    ids, held = cold(made, "item")
    turned = made.ratings.rename(columns={"user": "item", "item": "user"})
    model = small("als").fit(
        turned[~held], user_groups=made.item_groups, user_features=made.item_features
    )
    assert (model.user_groups_ == made.item_groups[model.users_]).all()
    assert (model.recommend(ids[0]) > 1).all()
    assert model.explain(ids[0], "user1")["unique"] != 0


@SOLVERS
def test_few_ratings_are_weighed_against_features(made: MadeRatings, solver: str) -> None:
    _, held = cold(made, "user")
    first = held & (made.ratings.groupby("user").cumcount() < 3)
    test = made.ratings[held & ~first]
    told = small(solver).fit(made.ratings[~held], user_features=made.user_features)
    plain = small(solver).fit(made.ratings[~held])
    errors = [-model.add_ratings(made.ratings[first]).score(test) for model in (told, plain)]
    assert errors[0] < errors[1] - 0.01


def test_what_is_told_is_a_ridge_regression(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, vectors = rng.normal(size=(30, 3)), rng.normal(size=(1, 30, 2))
    number = rng.integers(1, 90, 30)
    told = tell(vectors, np.zeros((1, 1, 30, 0)), features, number, np.ones((1, 30), dtype=bool))
    count = number / (number + 20)
    mean = count @ vectors[0] / count.sum()
    # as a fit of all, with rows for the penalty
    frame = np.vstack([np.sqrt(count)[:, None] * features, np.sqrt(20) * np.eye(3)])
    left = np.vstack([np.sqrt(count)[:, None] * (vectors[0] - mean), np.zeros((3, 2))])
    slopes = np.linalg.lstsq(frame, left)[0]
    new = rng.normal(size=(4, 3))
    np.testing.assert_allclose(told.expected(new)[0], mean + new @ slopes, atol=1e-12)


@pytest.mark.parametrize("unsure", [(True, False), (False, True), (True, True)])
def test_the_spread_is_that_of_all_who_could_have_come(unsure: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(0)

    def covariances(*shape: int) -> np.ndarray:
        root = rng.normal(size=shape)
        return 0.3 * root @ root.mT

    told = [
        Told(np.zeros((1, 1, 3)), np.zeros((1, 2, 1, 2)), covariances(1, 2, 3, 3), own)
        for own in (covariances(1, 2, 2, 2, 2), covariances(1, 2, 2, 2, 2))
    ]
    shapes = [(1,), (1, 4), (1, 5), (1, 4, 2), (1, 5, 2), (1, 2, 4, 2), (1, 5, 2)]
    group = np.array([0, 1, 1, 0, 0])
    arrays = [rng.normal(size=shape) for shape in shapes]
    tastes = Tastes(*arrays, group, told=(told[0], told[1]))
    row, column, n = 3, 2, 200_000

    def anyone(mean: np.ndarray, covariance: np.ndarray, drawn: bool) -> np.ndarray:
        return rng.multivariate_normal(mean, covariance * drawn, n)

    _, a, b, p, q, own, w = arrays
    user = anyone(np.append(a[0, row], p[0, row]), told[0].doubt[0, 0], unsure[0])
    item = anyone(np.append(b[0, column], q[0, column]), told[1].doubt[0, 0], unsure[1])
    own_user = anyone(own[0, 1, row], told[0].own_doubt[0, 1, 0], unsure[0])
    own_item = anyone(w[0, column], told[1].own_doubt[0, 1, 0], unsure[1])
    tastes_of_all = (user[:, 1:] * item[:, 1:]).sum(axis=1) + (own_user * own_item).sum(axis=1)
    expected = np.std(user[:, 0] + item[:, 0] + tastes_of_all)
    flags = np.array([unsure[0]]), np.array([unsure[1]])
    found = tastes.spread(np.array([row]), np.array([column]), flags)
    # a few standard errors of a standard deviation of that many draws with heavy tails
    np.testing.assert_allclose(found, expected, rtol=0.02)


def test_means_of_small_groups_are_drawn_to_zero() -> None:
    own, member = np.ones((1, 1, 3, 1)), np.array([[True, True, False], [False, False, True]])
    told = tell(np.zeros((1, 3, 1)), own, None, np.full(3, 1e9), member)
    found = told.own_expected(np.zeros((1, 0)))[0, :, 0, 0]
    np.testing.assert_allclose(found, [2 / (2 + TO_ZERO), 1 / (1 + TO_ZERO)])


def test_features_of_any_kind_are_encoded_as_in_the_fit() -> None:
    table = pd.DataFrame(
        {
            "year": pd.array([1979, None, 1995], dtype="Int64"),
            "kind": pd.Categorical(["space", "pigs", None]),
            "seen": [True, False, True],
            "mixed": [1, "one", (1, 2)],
            "empty": [np.nan] * 3,
            "same": 0.1,
        }
    )
    encoding = encoding_of(table, "item")
    whole = encoding.encode(table, "item")
    # year, seen, two kinds, three mixed; what is empty or the same says nothing
    assert whole.shape == (3, 7)
    assert np.isfinite(whole).all()
    np.testing.assert_allclose(whole.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_array_equal(encoding.encode(table.iloc[[2, 0]], "item"), whole[[2, 0]])
    other = table.iloc[:1].assign(kind="love", mixed="two", year=pd.NA)
    np.testing.assert_array_equal(encoding.encode(other, "item")[0, [0, 2, 3, 4, 5, 6]], 0)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, np.inf, 2.0], "'x' of item_features holds inf: expected finite numbers"),
        (pd.to_datetime(["2020"] * 3), "'x' of item_features holds datetime.*expected the kind"),
    ],
)
def test_features_that_are_none_are_refused(column: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encoding_of(pd.DataFrame({"x": column}), "item")


@SOLVERS
def test_a_model_from_a_file_grows_the_same(tmp_path: Path, solver: str) -> None:
    cinema = load_cinema()
    late = cinema.item_features.index[::9]
    model = small(solver, n_rounds=5, n_groups=3).fit(
        cinema.ratings[~cinema.ratings["item"].isin(late)],
        cinema.item_flags.drop(late),
        item_features=cinema.item_features.drop(late),
        user_features=cinema.user_features,
    )
    save(model, tmp_path / "model")
    new = pd.DataFrame({"age": [30, None], "job": ["nurse", "juggler"]}, index=["Ida", ("a", 1)])
    for one in (model, other := load(tmp_path / "model")):
        one.add_items(cinema.item_features.loc[late], groups=cinema.item_flags).add_users(new)
        one.add_ratings(cinema.ratings[cinema.ratings["item"].isin(late[:3])])
    table = model.predict_table()
    pd.testing.assert_frame_equal(other.predict_table(), table, check_exact=True)
    assert {"Ida", ("a", 1)} < set(table.index)


def test_what_cannot_be_added_is_refused(made: MadeRatings) -> None:
    plain = small("als").fit(made.ratings)
    with pytest.raises(ValueError, match="was fitted without item_features"):
        plain.add_items(made.item_features)
    model = small("als").fit(made.ratings, item_features=made.item_features)
    new = made.item_features.iloc[:2].set_axis(["new", "newer"])
    with pytest.raises(ValueError, match="items are in no groups: leave them out"):
        model.add_items(new, groups={"new": "group0"})
    with pytest.raises(ValueError, match="item_features has no column 'feature0'"):
        model.add_items(new.drop(columns="feature0"))
    with pytest.raises(TypeError, match="item_features is dict: expected a DataFrame"):
        model.add_items({"new": 1})
    with pytest.raises(ValueError, match="item_features has several rows for 'new'"):
        model.add_items(new.set_axis(["new", "new"]))
    with pytest.raises(ValueError, match=r"'feature1' of item_features holds .*expected the kind"):
        model.add_items(new.assign(feature1="long"))
