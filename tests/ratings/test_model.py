"""RatingModel predicts, recommends, explains and learns on, and finds tastes that were put in."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from heterofactor import RatingModel
from heterofactor.datasets import MadeRatings, load_movielens_100k, make_ratings
from heterofactor.files import load, save


@pytest.fixture(scope="module")
def made() -> MadeRatings:
    return make_ratings(90, 70, n_ratings=2_500, n_groups=3, random_state=0)


@pytest.fixture(scope="module")
def model(made: MadeRatings) -> RatingModel:
    return small().fit(made.ratings, item_groups=made.item_groups)


def small(**settings: Any) -> RatingModel:
    given = {"n_shared": 3, "n_unique": 2, "ridge": (3.0, 3.0), "n_rounds": 20, "n_fits": 1}
    return RatingModel(**given | {"random_state": 0} | settings)


def rmse(model: RatingModel, ratings: pd.DataFrame) -> float:
    return -model.score(ratings)


def test_shared_and_unique_tastes_are_recovered() -> None:
    # the size of MovieLens 100K, one pair in five observed
    made = make_ratings(n_ratings=943 * 1682 // 5, random_state=0)
    model = small().fit(made.ratings, item_groups=made.item_groups)
    users, items = np.indices(made.shared_parts.shape).reshape(2, -1)
    pairs = pd.DataFrame({"user": made.user_offsets.index[users]})
    pairs["item"] = made.item_offsets.index[items]
    found = model.predict_parts(pairs)
    for part, truth in (("shared", made.shared_parts), ("unique", made.unique_parts)):
        assert np.corrcoef(found[part], truth.to_numpy().ravel())[0, 1] > 0.95


def test_predictions_come_row_by_row(model: RatingModel, made: MadeRatings) -> None:
    pairs = made.ratings[["item", "user"]].sample(200, random_state=0)
    predicted = model.predict(pairs)
    shuffled = np.random.default_rng(0).permutation(200)
    np.testing.assert_array_equal(model.predict(pairs.iloc[shuffled]), predicted[shuffled])
    one = [float(model.predict(pairs.iloc[[k]])[0]) for k in range(5)]
    np.testing.assert_allclose(one, predicted[:5], rtol=1e-12)


def test_the_order_of_ratings_does_not_matter(model: RatingModel, made: MadeRatings) -> None:
    shuffled = made.ratings.sample(frac=1, random_state=1)
    other = small().fit(shuffled, item_groups=made.item_groups)
    np.testing.assert_array_equal(other.predict(made.ratings), model.predict(made.ratings))


def test_predictions_stay_on_the_scale(made: MadeRatings) -> None:
    loose = small(clip=False, offset_ridge=(0.1, 0.1))
    loose.fit(made.ratings, item_groups=made.item_groups)
    every = pd.MultiIndex.from_product([loose.users_, loose.items_]).to_frame(index=False)
    every.columns = ["user", "item"]
    free = loose.predict(every)
    assert free.max() > 5
    tight = clone(loose).set_params(clip=True).fit(made.ratings, item_groups=made.item_groups)
    np.testing.assert_array_equal(tight.predict(every), np.clip(free, 1, 5))


def test_unknown_ids_fall_back_on_offsets(model: RatingModel) -> None:
    pairs = pd.DataFrame(
        {"user": ["user1", "nobody", "nobody"], "item": ["nothing", "item2", "nothing"]}
    )
    mean = model.mean_
    expected = [mean + model.user_offsets_["user1"], mean + model.item_offsets_["item2"], mean]
    np.testing.assert_allclose(model.predict(pairs), expected)


def test_an_explanation_adds_up(model: RatingModel, made: MadeRatings) -> None:
    row = made.ratings.iloc[7]
    terms = model.explain(row["user"], row["item"])
    assert terms.name == made.item_groups[row["item"]]
    np.testing.assert_allclose(terms[:-1].sum(), terms["expected"])
    predicted = model.predict(made.ratings.iloc[[7]])
    np.testing.assert_allclose(np.clip(terms["expected"], 1, 5), predicted[0])
    assert terms["unique"] != 0


def test_the_best_unseen_items_are_recommended(model: RatingModel, made: MadeRatings) -> None:
    seen = set(made.ratings.loc[made.ratings["user"] == "user5", "item"])
    unseen = [item for item in model.items_ if item not in seen]
    pairs = pd.DataFrame({"user": "user5", "item": unseen})
    best = model.recommend("user5", n=4)
    np.testing.assert_allclose(best.to_numpy(), np.sort(model.predict(pairs))[::-1][:4])
    assert not seen & set(best.index)
    assert len(model.recommend("user5", n=1000)) == len(unseen)
    assert len(model.recommend("user5", n=1000, exclude_seen=False)) == len(model.items_)


def test_strangers_are_recommended_what_most_like(model: RatingModel) -> None:
    assert model.recommend("nobody", n=1).index[0] == model.item_offsets_.idxmax()


def test_similar_items_appeal_to_the_same_users(model: RatingModel) -> None:
    item = model.items_[4]
    every = pd.MultiIndex.from_product([model.items_, model.users_]).to_frame(index=False)
    every.columns = ["item", "user"]
    parts = model.predict_parts(every)
    tastes = (parts["shared"] + parts["unique"]).to_numpy().reshape(len(model.items_), -1)
    unit = tastes / np.linalg.norm(tastes, axis=1, keepdims=True)
    expected = pd.Series(unit @ unit[4], index=model.items_).drop(item)
    found = model.similar_items(item, n=200)
    assert found.is_monotonic_decreasing
    np.testing.assert_allclose(found, expected[found.index], atol=1e-12)


def test_similar_items_of_what_was_never_rated_are_refused(model: RatingModel) -> None:
    with pytest.raises(KeyError, match="Item 'nothing' was never rated"):
        model.similar_items("nothing")


def test_groups_of_users_are_groups_of_items_the_other_way_round(made: MadeRatings) -> None:
    turned = made.ratings.rename(columns={"user": "item", "item": "user"})
    one = small(offset_ridge=(4.0, 3.0)).fit(made.ratings, item_groups=made.item_groups)
    other = small(offset_ridge=(3.0, 4.0)).fit(turned, user_groups=made.item_groups)
    # offsets are fitted in turns, which begin with the users
    np.testing.assert_allclose(one.predict(made.ratings), other.predict(turned), atol=1e-3)
    assert other.item_groups_ is None
    assert other.user_groups_ is not None
    user, item = made.ratings.loc[0, "user"], made.ratings.loc[0, "item"]
    terms, of_other = one.explain(user, item), other.explain(item, user)
    np.testing.assert_allclose(terms["user"], of_other["item"], atol=1e-3)
    assert of_other.name == terms.name
    found, expected = other.similar_items(user, 90), one.users_.drop(user)
    assert set(found.index) == set(expected)


@pytest.mark.parametrize("side", ["item_groups", "user_groups"])
@pytest.mark.parametrize("solver", ["als", "gibbs"])
def test_tables_are_predictions_side_by_side(made: MadeRatings, side: str, solver: str) -> None:
    ratings, features = made.ratings, made.item_features
    groups = made.item_groups.drop("item7")
    if side == "user_groups":
        ratings = ratings.rename(columns={"user": "item", "item": "user"})
    cold = ratings[side[:4]] == "item7"  # without a group, known by its features
    given = {side: groups, f"{side[:4]}_features": features}
    model = small(solver=solver, n_rounds=5, clip=False).fit(ratings[~cold], **given)
    users = ["nobody", *model.users_[[3, -1, 5]], model.users_[3]]
    table = model.predict_table(users)
    assert table.columns.equals(model.items_)
    for place, user in enumerate(users):
        pairs = pd.DataFrame({"user": user, "item": model.items_})
        np.testing.assert_allclose(table.iloc[place], model.predict(pairs), atol=1e-12)
    pd.testing.assert_frame_equal(table.iloc[1:], model.predict_table().loc[users[1:]])


def test_without_groups_nothing_is_unique(made: MadeRatings) -> None:
    model = small().fit(made.ratings)
    assert model.item_groups_ is None
    assert model.explain("user1", "item1")["unique"] == 0


def test_users_are_learned_from_ratings_as_in_a_fit() -> None:
    made = make_ratings(200, 100, n_ratings=8_000, n_groups=3, random_state=0)
    late = made.ratings["user"].isin(made.ratings["user"].value_counts().index[:20])
    held = late & (np.arange(len(late)) % 3 == 0)
    rest = made.ratings[held]
    model = small().fit(made.ratings[~late], item_groups=made.item_groups)
    before = rmse(model, rest)
    model.add_ratings(made.ratings[late & ~held])
    whole = small().fit(made.ratings[~held], item_groups=made.item_groups)
    # of what a fit of all gains, most is gained without one
    assert before - rmse(model, rest) > 0.8 * (before - rmse(whole, rest)) > 0.1


def test_an_item_is_learned_in_the_group_where_it_fits() -> None:
    made = make_ratings(400, 60, n_ratings=12_000, n_groups=2, unique_strength=0.8, random_state=0)
    popular = made.ratings["item"].value_counts().index[:10]
    new = made.ratings["item"].isin(popular)
    model = small().fit(made.ratings[~new], item_groups=made.item_groups)
    others = model.predict(made.ratings[~new])
    model.add_ratings(made.ratings[new])
    # of an item with next to no taste of its own, ratings cannot tell
    assert (model.item_groups_[popular] == made.item_groups[popular]).sum() >= 9
    assert rmse(model, made.ratings[new]) < made.ratings.loc[new, "rating"].std()
    # who rated nothing but new items on this occasion stays
    np.testing.assert_array_equal(model.predict(made.ratings[~new]), others)


def test_what_is_not_in_new_ratings_stays(model: RatingModel, made: MadeRatings) -> None:
    fitted = small().fit(made.ratings, item_groups=made.item_groups)
    fitted.add_ratings(pd.DataFrame({"user": ["new"], "item": ["item3"], "rating": [5.0]}))
    np.testing.assert_array_equal(fitted.predict(made.ratings), model.predict(made.ratings))
    assert fitted.user_offsets_["new"] > 0
    assert "item3" not in fitted.recommend("new", n=100).index


def test_features_say_where_offsets_of_rare_items_are() -> None:
    rng = np.random.default_rng(0)
    made = make_ratings(80, 200, n_ratings=4_000, n_groups=2, random_state=0)
    quality = pd.DataFrame({"quality": made.item_offsets + 0.1 * rng.standard_normal(200)})
    count = made.ratings["item"].value_counts()
    rare = made.ratings["item"].map(count) < 8
    held = rare & (rng.random(len(rare)) < 0.5)
    plain = small().fit(made.ratings[~held])
    told = small().fit(made.ratings[~held], item_features=quality.loc[plain.items_])
    known = made.ratings[held & made.ratings["item"].isin(plain.items_)]
    assert rmse(told, known) < rmse(plain, known) - 0.01


def test_weights_count_like_repeated_ratings(made: MadeRatings) -> None:
    some = made.ratings["user"].isin(["user1", "user2", "user3"])
    light = made.ratings.assign(weight=np.where(some, 1e-9, 1.0))
    pairs = made.ratings[some]
    gone = small().fit(made.ratings[~some]).predict(pairs)
    np.testing.assert_allclose(small().fit(light).predict(pairs), gone, atol=1e-4)


def test_ranks_can_be_searched(made: MadeRatings) -> None:
    grid = {"n_shared": [0, 3], "ridge": [(5.0, 5.0)]}
    search = GridSearchCV(small(n_unique=0), grid, cv=3).fit(made.ratings)
    assert search.best_params_["n_shared"] == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_shared": -1}, "n_shared is -1: expected an integer of at least 0"),
        ({"ridge": 3.0}, r"ridge is 3\.0: expected two positive numbers"),
        ({"ridge": (1.0, -1.0)}, "ridge is .*: expected two positive numbers"),
        ({"solver": "sgd"}, "solver is 'sgd'"),
        ({"user": "who"}, "no column 'who'"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    made: MadeRatings, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        small(**settings).fit(made.ratings)


def test_groups_on_both_sides_are_refused(made: MadeRatings) -> None:
    with pytest.raises(ValueError, match="item_groups and user_groups are both given"):
        small().fit(made.ratings, item_groups=made.item_groups, user_groups={})


IDS = {
    "integers": lambda k: 3 * k + 2**60,
    "tuples": lambda k: ("shelf", k % 3, k),
    "days": lambda k: pd.Timestamp("2020-01-01") + pd.Timedelta(days=k),
    "dates": lambda k: date.fromordinal(700_000 + k),
    "mixed": lambda k: k if k % 2 else f"number {k}",
    "booleans": lambda k: k % 2 == 0,
}


@pytest.mark.parametrize("solver", ["als", "gibbs"])
@pytest.mark.parametrize("kind", IDS)
def test_ids_of_any_kind_come_back_from_a_file(
    made: MadeRatings, tmp_path: Path, solver: str, kind: str
) -> None:
    names = pd.Series({item: IDS[kind](k) for k, item in enumerate(made.item_groups.index)})
    ratings = made.ratings.assign(item=made.ratings["item"].map(names), time=0)
    flags = pd.DataFrame({"even": np.arange(70) % 2 == 0, "late": np.arange(70) > 40})
    flags = flags.set_axis(pd.Index(names.to_numpy(), tupleize_cols=False))
    model = small(solver=solver, n_groups=2, n_rounds=5, random_state=np.random.RandomState(3))
    model.fit(ratings, item_groups=flags[~flags.index.duplicated()])
    save(model, tmp_path / "model")
    other = load(tmp_path / "model")
    item = ratings["item"].iloc[0]
    pairs = ratings.sample(frac=1, random_state=0)
    np.testing.assert_array_equal(other.predict(pairs), model.predict(pairs))
    pd.testing.assert_index_equal(other.items_, model.items_, exact=True)
    pd.testing.assert_series_equal(other.similar_items(item), model.similar_items(item))
    pd.testing.assert_series_equal(other.explain("user1", item), model.explain("user1", item))
    assert other.explain("user1", item).name is not None
    # known is known by its id
    assert model.recommend("user1", exclude_seen=False).index.isin(names).all()
    more = pd.DataFrame({"user": ["new"] * 2, "item": [item, "never"], "rating": [5.0, 1.0]})
    learned = (one.add_ratings(more).predict(more) for one in (model, other))
    np.testing.assert_array_equal(*learned)


@pytest.mark.real
def test_held_out_ratings_of_movielens(shared_data: Any) -> None:
    movies = load_movielens_100k(shared_data / "ml-100k")
    order = np.random.RandomState(0).permutation(100_000)
    test, train = movies.ratings.iloc[order[:10_000]], movies.ratings.iloc[order[10_000:]]
    model = RatingModel(random_state=0).fit(train, item_groups=movies.item_flags)
    # offsets alone: 0.9365; the experiment has the means over 20 splits
    assert rmse(model, test) < 0.905
    assert len(set(model.item_groups_)) == 10
