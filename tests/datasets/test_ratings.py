"""Made ratings are what their truth says, and their parts can be told apart."""

import numpy as np
import pytest

from heterofactor.datasets import make_ratings

SMALL = {"n_users": 40, "n_items": 60, "n_ratings": 1_200, "n_groups": 3}


def test_ratings_are_the_sum_of_their_parts(seed: int) -> None:
    made = make_ratings(**SMALL, noise=0.0, step=None, random_state=seed)
    ratings = made.ratings
    users, items = ratings["user"], ratings["item"]
    expected = made.mean + made.user_offsets[users].to_numpy() + made.item_offsets[items].to_numpy()
    for part in (made.shared_parts, made.unique_parts):
        rows, columns = part.index.get_indexer(users), part.columns.get_indexer(items)
        expected = expected + part.to_numpy()[rows, columns]
    np.testing.assert_allclose(ratings["rating"], expected, rtol=1e-12)


def test_every_pair_is_rated_at_most_once(seed: int) -> None:
    ratings = make_ratings(**SMALL, random_state=seed).ratings
    assert len(ratings) == 1_200
    assert not ratings.duplicated(["user", "item"]).any()
    assert set(ratings["rating"]) == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_parts_are_at_right_angles_and_leave_offsets_alone(seed: int) -> None:
    made = make_ratings(**SMALL, random_state=seed)
    shared, unique = made.shared_parts.to_numpy(), made.unique_parts.to_numpy()
    for part, strength in ((shared, 0.6), (unique, 0.6)):
        np.testing.assert_allclose(np.sqrt(np.mean(part**2)), strength)
        # sums of 40 to 60 numbers of size one: rounding only
        np.testing.assert_allclose(part.mean(axis=0), 0, atol=1e-14)
        np.testing.assert_allclose(part.mean(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(shared.T @ unique, 0, atol=1e-11)


def test_unique_tastes_have_their_own_dimensions_in_each_group() -> None:
    made = make_ratings(**SMALL, n_shared=2, n_unique=1, random_state=0)
    assert np.linalg.matrix_rank(made.shared_parts) == 2
    assert np.linalg.matrix_rank(made.unique_parts) == 3
    for group in set(made.item_groups):
        assert np.linalg.matrix_rank(made.unique_parts.loc[:, made.item_groups == group]) == 1


def test_one_seed_gives_one_set() -> None:
    one, two, other = (make_ratings(**SMALL, random_state=k).ratings for k in (0, 0, 1))
    assert one.equals(two)
    assert not one.equals(other)


@pytest.mark.parametrize("wrong", [{"n_ratings": 2_401}, {"n_users": 6}, {"n_ratings": 0}])
def test_sizes_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*: expected"):
        make_ratings(**{**SMALL, **wrong})
