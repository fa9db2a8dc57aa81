"""The compiled loops over observed entries, beside their twins in NumPy and plain algebra."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heterofactor import kernels
from heterofactor.kernels import Lines

pytest.importorskip("numba")

# Sums in another order: some hundred roundings of numbers of size ten.
CLOSE = {np.float64: 1e-11, np.float32: 2e-3}


def make_lines(
    rng: np.random.Generator,
    n_lines: int,
    n_across: int,
    dtype: Any,
    *,
    weighted: bool,
    shifted: bool,
    placed: bool,
) -> Lines:
    """Draw entries, some lines without any, in order or with places elsewhere."""
    counts = rng.integers(0, n_across + 1, n_lines) * (rng.random(n_lines) < 0.8)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    parts = [np.sort(rng.choice(n_across, count, replace=False)) for count in counts]
    other = np.concatenate([np.zeros(0, int), *parts]).astype(np.int32)
    entries = len(other)
    none = np.zeros(0, dtype)

    def draw(wanted: bool, size: int) -> np.ndarray:
        return rng.uniform(0.5, 2, size).astype(dtype) if wanted else none

    return Lines(
        indptr,
        other,
        rng.permutation(entries).astype(np.int32) if placed else other[:0],
        draw(weighted, entries),
        rng.standard_normal(entries).astype(dtype),
        draw(shifted, n_lines),
        draw(shifted, n_across),
    )


CASES = {
    "seed": st.integers(0, 1000),
    "rank": st.integers(0, 9),
    "weighted": st.booleans(),
    "shifted": st.booleans(),
    "placed": st.booleans(),
    "dtype": st.sampled_from([np.float64, np.float32]),
}


@given(**CASES)
def test_compiled_predictions_are_those_of_the_twin(
    seed: int, rank: int, weighted: bool, shifted: bool, placed: bool, dtype: Any
) -> None:
    rng = np.random.default_rng(seed)
    lines = make_lines(rng, 7, 11, dtype, weighted=weighted, shifted=shifted, placed=placed)
    W, H = (rng.standard_normal((n, rank)).astype(dtype) for n in (7, 11))
    found = kernels.predict(lines, W, H)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, kernels.predict_plain(lines, W, H), atol=CLOSE[dtype])


@given(**CASES, ridge=st.sampled_from([0.1, 1.0]), fixed=st.booleans())
def test_compiled_solutions_are_those_of_the_twin(
    seed: int,
    rank: int,
    weighted: bool,
    shifted: bool,
    placed: bool,
    dtype: Any,
    ridge: float,
    fixed: bool,
) -> None:
    rng = np.random.default_rng(seed)
    lines = make_lines(rng, 8, 11, dtype, weighted=weighted, shifted=shifted, placed=placed)
    factor = rng.standard_normal((11, rank)).astype(dtype)
    precision = ridge * np.stack([np.eye(rank), 2 * np.eye(rank)]).astype(dtype)
    known = rng.standard_normal((4, 2)).astype(dtype), rng.standard_normal((11, 2)).astype(dtype)
    pair = known if fixed else kernels._nothing(factor)
    found = kernels.solve(lines, factor, precision, known if fixed else None)
    assert found.dtype == dtype
    wanted = kernels.solve_plain(lines, factor, precision, pair)
    np.testing.assert_allclose(found, wanted, atol=CLOSE[dtype] / ridge)


@given(**CASES, shared=st.integers(0, 4), count=st.integers(1, 3))
def test_compiled_arrows_are_those_of_the_twin(
    seed: int,
    rank: int,
    weighted: bool,
    shifted: bool,
    placed: bool,
    dtype: Any,
    shared: int,
    count: int,
) -> None:
    rng = np.random.default_rng(seed)
    lines = make_lines(rng, 4 * count, 13, dtype, weighted=weighted, shifted=shifted, placed=placed)
    factor = rng.standard_normal((13, shared + rank)).astype(dtype)
    precision = np.broadcast_to(np.eye(rank, dtype=dtype), (count, rank, rank)).copy()
    basis = rng.standard_normal((4, shared)).astype(dtype)
    found = kernels.arrow(lines, factor, precision, basis)
    wanted = kernels.arrow_plain(lines, factor, precision, basis)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, atol=20 * CLOSE[dtype])


def test_eliminating_the_unique_rows_leaves_the_joint_solution() -> None:
    rng = np.random.default_rng(0)
    lines = make_lines(rng, 5, 40, np.float64, weighted=True, shifted=False, placed=False)
    factor = rng.standard_normal((40, 5))
    schur, rest, _ = kernels.arrow(lines, factor, np.zeros((1, 0, 0)), np.zeros((5, 2)))
    joint = kernels.solve(lines, factor, np.zeros((1, 0, 0)))
    for row in np.flatnonzero(np.diff(lines.indptr) >= 10):  # where all can be told apart
        shared = np.linalg.solve(schur[row], rest[row])
        np.testing.assert_allclose(shared, joint[row, :2], atol=1e-9)


def test_a_line_without_entries_is_zero() -> None:
    none = np.zeros(0)
    nothing = np.zeros(3, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32)
    lines = Lines(*nothing, none, none, none, none)
    found = kernels.solve(lines, np.ones((4, 2)), np.zeros((1, 0, 0)))
    assert found.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_what_cannot_be_told_apart_is_divided_evenly() -> None:
    none, at = np.zeros(0), np.array([0, 1], np.int32)
    lines = Lines(np.array([0, 2], np.int32), at, at[:0], none, np.array([2.0, 4.0]), none, none)
    twice = np.array([[1.0, 1.0], [2.0, 2.0]])
    found = kernels.solve(lines, twice, np.zeros((1, 0, 0)))
    # rounding is a 50th of the damping, and moves along what is not known
    np.testing.assert_allclose(found, [[1.0, 1.0]], atol=0.05)


def test_the_number_of_threads_changes_no_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr(kernels, "WORTHWHILE", 1)
    lines = make_lines(rng, 60, 13, np.float64, weighted=True, shifted=True, placed=True)
    factor, basis = rng.standard_normal((13, 5)), rng.standard_normal((30, 2))
    precision = np.stack([np.eye(5)] * 2), np.stack([np.eye(3)] * 2)
    answers = []
    for threads in (1, 2, 7):
        monkeypatch.setattr(kernels, "threads_for_a_source", lambda threads=threads: threads)
        answers.append(
            (
                kernels.solve(lines, factor, precision[0]),
                *kernels.arrow(lines, factor, precision[1], basis),
                kernels.predict(lines, np.ones((60, 5)), factor),
                kernels.solve_rows(factor[:, :, None] @ factor[:, None, :] + np.eye(5), factor),
            )
        )
    for other in answers[1:]:
        for one, same in zip(answers[0], other, strict=True):
            np.testing.assert_array_equal(one, same)
