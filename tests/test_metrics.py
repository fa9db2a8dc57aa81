"""Distances of subspaces depend on the spaces alone, and resolve angles down to rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heterofactor.metrics import principal_angles, subspace_error


def frame(rng: np.random.Generator, n: int, rank: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(n, rank)))[0]


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(0, 8), st.integers(0, 8))
def test_the_error_is_the_squared_distance_of_the_projections(drawn, n, rank, other):
    rng = np.random.default_rng(drawn)
    A, B = frame(rng, n, min(rank, n)), frame(rng, n, min(other, n))
    expected = np.sum((A @ A.T - B @ B.T) ** 2)
    assert subspace_error(A, B) == pytest.approx(expected, abs=1e-13)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_the_error_does_not_depend_on_how_a_space_is_written(drawn, rank):
    rng = np.random.default_rng(drawn)
    A, B = rng.normal(size=(7, rank)), rng.normal(size=(7, 2))
    # orthogonal times scales up to 100: any invertible matrix of moderate condition
    mixed = A @ (frame(rng, rank, rank) * rng.uniform(1, 100, rank))
    assert subspace_error(mixed, B) == pytest.approx(subspace_error(A, B), abs=1e-10)
    assert subspace_error(B, A) == pytest.approx(subspace_error(A, B), abs=1e-12)


@pytest.mark.parametrize("angle", [1e-12, 1e-9, 1e-4, 0.1, 1.0])
def test_angles_down_to_rounding_are_resolved(angle):
    one, other = np.eye(4)[:, :2], np.eye(4)[:, :2]
    other[:, 1] = [0, np.cos(angle), np.sin(angle), 0]
    # |P - P'|^2 = 2 sin^2; a difference of projections would leave 1e-32 for everything below 1e-8
    assert subspace_error(one, other) == pytest.approx(2 * np.sin(angle) ** 2, rel=1e-3)
    assert principal_angles(one, other)[0] == pytest.approx(np.degrees(angle), rel=1e-3)


def test_equal_spaces_are_at_no_distance(seed):
    A = np.random.default_rng(seed).normal(size=(30, 4))
    assert subspace_error(A, A @ np.triu(np.ones((4, 4)))) < 1e-28  # (some ulp)^2


def test_orthogonal_spaces_are_at_the_sum_of_their_ranks():
    assert subspace_error(np.eye(6)[:, :2], np.eye(6)[:, 2:5]) == 5.0


def test_a_space_inside_another_is_at_the_difference_of_their_ranks():
    assert subspace_error(np.eye(6)[:, :2], np.eye(6)[:, :5]) == 3.0


def test_an_empty_space_is_at_the_rank_of_the_other():
    assert subspace_error(np.zeros((3, 0)), np.eye(3)) == 3.0
    assert principal_angles(np.zeros((3, 0)), np.eye(3)).size == 0


def test_angles_come_in_degrees_and_the_largest_first():
    angles = np.array([60.0, 25.0, 0.0])
    one, other = np.eye(6)[:, :3], np.zeros((6, 3))
    other[:3] = np.diag(np.cos(np.radians(angles)))
    other[3:] = np.diag(np.sin(np.radians(angles)))
    np.testing.assert_allclose(principal_angles(one, other), angles, atol=1e-12)


def test_the_error_is_twice_the_sum_of_squared_sines(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(9, 3)), rng.normal(size=(9, 3))
    sines = np.sin(np.radians(principal_angles(A, B)))
    assert subspace_error(A, B) == pytest.approx(2 * np.sum(sines**2), rel=1e-10)
