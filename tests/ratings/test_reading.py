"""Ratings are read whatever the order of rows and the names of columns, or refused with advice."""

import numpy as np
import pandas as pd
import pytest

from heterofactor.ratings.features import read_features
from heterofactor.ratings.groups import read_groups
from heterofactor.ratings.offsets import fit_offsets
from heterofactor.ratings.reading import Columns, read_ratings


def table(**columns: list[object]) -> pd.DataFrame:
    given = {"user": ["b", "a", "b"], "item": [1, 1, 2], "rating": [4.0, 2.0, 5.0]}
    return pd.DataFrame(given | columns)


def test_the_order_of_rows_does_not_matter() -> None:
    one = read_ratings(table(), Columns())
    other = read_ratings(table().iloc[[2, 0, 1]], Columns())
    for name in ("user", "item", "values", "weights"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_the_last_rating_of_a_pair_counts() -> None:
    twice = table(item=[1, 1, 1])
    assert read_ratings(twice, Columns()).values.tolist() == [2, 5]
    twice["time"] = [9, 9, 8]
    assert read_ratings(twice, Columns()).values.tolist() == [2, 4]


def test_of_many_ratings_the_last_of_each_pair_is_kept_in_order(seed: int) -> None:
    # enough ids for codes of two bytes, few enough pairs that many come twice
    rng = np.random.default_rng(seed)
    many = pd.DataFrame({"user": rng.integers(0, 700, 5000), "item": rng.integers(0, 9, 5000)})
    many["rating"], many["time"] = rng.random(5000), rng.integers(0, 50, 5000)
    found = read_ratings(many, Columns())
    by_hand = {}
    for row in many.sort_values("time", kind="stable").itertuples():
        by_hand[row.user, row.item] = row.rating
    pairs = sorted(by_hand)
    assert list(zip(found.users[found.user], found.items[found.item], strict=True)) == pairs
    assert found.values.tolist() == [by_hand[pair] for pair in pairs]


def test_ratings_of_weight_zero_are_not_there() -> None:
    ratings = read_ratings(table(weight=[1, 0, 2]), Columns())
    assert ratings.users.tolist() == ["b"]
    assert ratings.weights.tolist() == [1, 2]


def test_columns_may_have_other_names() -> None:
    other = table().rename(columns={"user": "reader", "rating": "stars"})
    assert len(read_ratings(other, Columns(user="reader", rating="stars")).values) == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (table().drop(columns="item"), "ratings has no column 'item', but 'user', 'rating'"),
        (table().drop(columns="rating"), "no column 'rating'.*say what yours are called"),
        (table(rating=[1.0, None, 2.0]), r"'rating' of ratings holds nan \(row 1\)"),
        (table(rating=["good", "bad", "good"]), "'rating' of ratings holds other things"),
        (table(user=["a", None, "b"]), "1 rows without a user or an item.*first is 1.*drop"),
        (table(weight=[1, -1, 1]), "hold -1: expected numbers from zero on"),
        (table(weight=[0, 0, 0]), "There are no ratings"),
        (table().iloc[:0], "There are no ratings"),
    ],
)
def test_what_is_no_rating_is_refused(given: pd.DataFrame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_ratings(given, Columns())


def test_a_matrix_is_refused() -> None:
    with pytest.raises(TypeError, match="ratings is ndarray: expected a DataFrame"):
        read_ratings(np.ones((3, 3)), Columns())


def test_groups_are_the_same_however_labels_are_given() -> None:
    ids = pd.Index([3, 5, 8])
    labels = {8: "z", 3: "y", 5: "y", 99: "not rated"}
    for given in (labels, pd.Series(labels), np.array(["y", "y", "z"])):
        names, codes = read_groups(given, ids, "item", 10, 0)
        assert names[codes].tolist() == ["y", "y", "z"]


def test_flags_of_one_kind_are_one_cluster_named_by_them() -> None:
    flags = pd.DataFrame(
        {"crime": [1, 1, 0, 0, 0], "comedy": [0, 0, 1, 1, 1], "war": [0, 0, 1, 1, 1]},
        index=range(5),
    )
    names, codes = read_groups(flags, pd.Index(range(5)), "item", 10, 0)
    assert names.tolist() == ["comedy + war", "crime"]
    assert codes.tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({1: "a"}, r"no row for 1 of 2 items \(2\)"),
        ({1: "a", 2: None}, "item_groups has no label for 2"),
        (["a"], r"item_groups has shape \(1,\), but 2 items are rated"),
        (pd.DataFrame({"x": [1, 0, 1]}, index=[1, 2, 2]), "several rows for 2"),
    ],
)
def test_groups_that_leave_items_out_are_refused(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_groups(given, pd.Index([1, 2]), "item", 10, 0)


def test_offsets_are_those_of_ridge_regression(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = rng.permutation(20 * 15)[:150]
    frame = pd.DataFrame({"user": pairs // 15, "item": pairs % 15, "rating": rng.normal(size=150)})
    frame["weight"] = rng.uniform(0.5, 2, 150)
    ratings = read_ratings(frame, Columns())
    user_features = rng.normal(size=(len(ratings.users), 2))
    found = fit_offsets(ratings, (3.0, 2.0), (user_features, None))
    # unknowns: weights of features, users' deviations from them, items
    users = np.eye(len(ratings.users))[ratings.user]
    items = np.eye(len(ratings.items))[ratings.item]
    design = np.hstack([users @ user_features, users, items])
    penalty = np.repeat([1.0, 3.0, 2.0], [2, users.shape[1], items.shape[1]])
    left = ratings.values - np.average(ratings.values, weights=ratings.weights)
    normal = (design.T * ratings.weights) @ design + np.diag(penalty)
    expected = np.linalg.solve(normal, design.T @ (ratings.weights * left))
    # rounds leave a little of what users and items have in common
    np.testing.assert_allclose(found.item, expected[2 + users.shape[1] :], atol=1e-4)
    by_user = user_features @ expected[:2] + expected[2 : 2 + users.shape[1]]
    np.testing.assert_allclose(found.user, by_user, atol=1e-4)


def test_unknown_features_count_as_the_mean() -> None:
    users = pd.DataFrame({"age": [20.0, 40.0, None], "same": [1, 1, 1]}, index=list("abc"))
    features = read_features(users, pd.Index(list("abc")), "user")
    assert features is not None
    assert features.shape == (3, 1)  # what is the same for all says nothing
    assert features[2, 0] == 0
