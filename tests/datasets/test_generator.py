"""The made data are what they say: parts, bases, noise, spread, misalignment, errors."""

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heterofactor.datasets import HeterogeneousData, make_heterogeneous

EXACT = 1e-12  # orthonormality: some 1000 ulp, far above what QR leaves at these sizes


def paper(table: np.ndarray, data: HeterogeneousData) -> np.ndarray:
    """Turn a table so that the shared axis is in its rows."""
    return table.T if data.shared_axis == "features" else table


def assert_truth_holds(data: HeterogeneousData) -> None:
    U = data.shared_basis
    np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=EXACT)
    for name, source in data.sources.items():
        W = data.unique_bases[name]
        np.testing.assert_allclose(W.T @ W, np.eye(W.shape[1]), atol=EXACT)
        np.testing.assert_allclose(U.T @ W, 0, atol=EXACT)
        shared, unique, noise = (
            parts[name] for parts in (data.shared_parts, data.unique_parts, data.noise_parts)
        )
        np.testing.assert_array_equal(source, shared + unique + noise)
        for basis, part in ((U, paper(shared, data)), (W, paper(unique, data))):
            # the part lies in its basis: what the projection leaves is rounding
            np.testing.assert_allclose(part, basis @ (basis.T @ part), atol=1e-11)
            assert np.linalg.matrix_rank(part) == basis.shape[1]


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    n_sources = draw(st.integers(1, 4))
    n_shared = draw(st.integers(0, 3))
    ranks = draw(st.lists(st.integers(n_shared == 0, 3), min_size=n_sources, max_size=n_sources))
    room = n_shared + max(ranks)
    length = draw(st.integers(room, room + 8))
    sizes = draw(st.lists(st.integers(room, 12), min_size=n_sources, max_size=n_sources))
    axis = draw(st.sampled_from(["features", "samples"]))
    return {
        "n_sources": n_sources,
        "n_samples": sizes if axis == "features" else length,
        "n_features": length if axis == "features" else sizes,
        "n_shared": n_shared,
        "n_unique": ranks,
        "noise": draw(st.sampled_from([0.0, 0.3, 2.0])),
        "alignment": draw(st.sampled_from([0.0, 0.5**0.5, 0.99])),
        "spread": draw(st.sampled_from([1.0, 10.0])),
        "scores": draw(st.sampled_from(["gaussian", "orthonormal"])),
        "shared_axis": axis,
        "random_state": draw(st.integers(0, 2**32 - 1)),
    }


@given(arguments())
def test_truth_holds_for_any_arguments(arguments: dict[str, Any]) -> None:
    data = make_heterogeneous(**arguments)
    assert_truth_holds(data)
    assert 0 <= data.misalignment <= 1
    for name, source in data.sources.items():
        signal = np.linalg.norm(data.shared_parts[name] + data.unique_parts[name])
        noise = np.linalg.norm(data.noise_parts[name])
        np.testing.assert_allclose(noise, arguments["noise"] * signal, rtol=1e-12)
        i = int(name.removeprefix("source"))
        own = "n_samples" if data.shared_axis == "features" else "n_features"
        assert paper(source, data).shape == (len(data.shared_basis), arguments[own][i])


def test_truth_holds_at_the_default_sizes(seed: int) -> None:
    data = make_heterogeneous(noise=0.1, random_state=seed)
    assert list(data.sources) == [f"source{i}" for i in range(10)]
    assert {source.shape for source in data.sources.values()} == {(100, 120)}
    assert data.shared_basis.shape == (120, 3)
    assert_truth_holds(data)


def test_unique_basis_survives_a_common_direction_opposite_to_its_own() -> None:
    # in a complement of one dimension C and C_i can differ by sign alone: they must not cancel
    for seed in range(20):
        data = make_heterogeneous(2, 6, 4, 3, 1, alignment=0.5**0.5, random_state=seed)
        assert_truth_holds(data)
        assert data.misalignment == pytest.approx(0, abs=EXACT)


def singular_values(data: HeterogeneousData, parts: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [np.linalg.svd(part, compute_uv=False)[:3] for part in parts.values()]


def test_spread_is_the_ratio_of_singular_values_of_orthonormal_scores() -> None:
    data = make_heterogeneous(3, scores="orthonormal", spread=9.0, random_state=0)
    for parts in (data.shared_parts, data.unique_parts):
        for values in singular_values(data, parts):
            np.testing.assert_allclose(values, [3, 1, 1 / 3])


def test_orthonormal_scores_are_orthogonal_between_shared_and_unique() -> None:
    data = make_heterogeneous(3, scores="orthonormal", random_state=0)
    for name in data.sources:
        shared = data.shared_parts[name] @ data.shared_basis
        unique = data.unique_parts[name] @ data.unique_bases[name]
        np.testing.assert_allclose(shared.T @ shared, np.eye(3), atol=EXACT)
        np.testing.assert_allclose(unique.T @ unique, np.eye(3), atol=EXACT)
        np.testing.assert_allclose(shared.T @ unique, 0, atol=EXACT)


def test_spread_scales_the_columns_of_gaussian_scores() -> None:
    even = make_heterogeneous(2, 20000, 10, random_state=0)
    wide = make_heterogeneous(2, 20000, 10, spread=100.0, random_state=0)
    for data, expected in ((even, [1, 1, 1]), (wide, [10, 1, 0.1])):
        deviations = (data.shared_parts["source0"] @ data.shared_basis).std(axis=0)
        np.testing.assert_allclose(deviations, expected, rtol=0.03)  # 1 / sqrt(2 n) is 0.005
    np.testing.assert_array_equal(even.shared_basis, wide.shared_basis)


def test_misalignment_falls_as_alignment_rises(seed: int) -> None:
    thetas = [
        make_heterogeneous(6, alignment=a, random_state=seed).misalignment
        for a in (0.0, 0.3, 0.6, 0.8, 0.9, 0.99, 0.9999)
    ]
    assert all(later < earlier for earlier, later in pairwise(thetas))
    assert thetas[-1] < 1e-3


def test_misalignment_is_that_of_the_mean_projection(seed: int) -> None:
    data = make_heterogeneous(4, n_unique=[1, 2, 3, 2], alignment=0.5, random_state=seed)
    mean = sum(W @ W.T for W in data.unique_bases.values()) / 4
    assert data.misalignment == pytest.approx(1 - np.linalg.eigvalsh(mean)[-1], abs=1e-12)


def test_misalignment_has_its_limits() -> None:
    assert make_heterogeneous(1, random_state=0).misalignment == pytest.approx(0, abs=EXACT)
    assert make_heterogeneous(5, n_unique=0, random_state=0).misalignment == 1


def test_misalignment_of_a_long_shared_axis_needs_no_square_matrix() -> None:
    # 200,000 squared would be 300 GB
    data = make_heterogeneous(2, 6, 200_000, 1, 1, random_state=0)
    assert data.misalignment == pytest.approx(0.5, abs=0.01)


def test_stacked_is_the_sources_below_one_another() -> None:
    data = make_heterogeneous(3, n_samples=[7, 9, 8], noise=0.1, random_state=0)
    X, labels = data.stacked()
    assert X.shape == (24, 120)
    assert labels.shape == (24,)
    for name, source in data.sources.items():
        np.testing.assert_array_equal(X[labels == name], source)


def test_stacked_is_the_sources_side_by_side_if_they_share_samples() -> None:
    data = make_heterogeneous(3, 20, [7, 9, 8], noise=0.1, shared_axis="samples", random_state=0)
    X, labels = data.stacked()
    assert X.shape == (20, 24)
    for name, source in data.sources.items():
        np.testing.assert_array_equal(X[:, labels == name], source)


def test_the_two_axes_are_one_model_transposed() -> None:
    one = make_heterogeneous(3, [8, 9, 10], 12, noise=0.2, random_state=0)
    two = make_heterogeneous(3, 12, [8, 9, 10], noise=0.2, shared_axis="samples", random_state=0)
    np.testing.assert_array_equal(one.shared_basis, two.shared_basis)
    for name in one.sources:
        np.testing.assert_array_equal(one.sources[name], two.sources[name].T)


@pytest.mark.parametrize(
    "make", [int, np.int64, np.random.default_rng, np.random.RandomState], ids=lambda m: m.__name__
)
def test_same_random_state_gives_the_same_data(make: Any) -> None:
    one, two = (make_heterogeneous(2, noise=0.1, random_state=make(7)) for _ in range(2))
    other = make_heterogeneous(2, noise=0.1, random_state=make(8))
    for name in one.sources:
        np.testing.assert_array_equal(one.sources[name], two.sources[name])
        assert not np.allclose(one.sources[name], other.sources[name])


def test_generator_moves_on_and_none_is_new_each_time() -> None:
    rng, legacy = np.random.default_rng(0), np.random.RandomState(0)
    for state in (rng, legacy, None):
        one, two = (make_heterogeneous(1, random_state=state) for _ in range(2))
        assert not np.allclose(one.sources["source0"], two.sources["source0"])


def test_noise_leaves_the_signal_as_it_was() -> None:
    clean, noisy = (make_heterogeneous(3, noise=x, random_state=3) for x in (0.0, 0.5))
    for name in clean.sources:
        assert not clean.noise_parts[name].any()
        np.testing.assert_array_equal(clean.shared_parts[name], noisy.shared_parts[name])
        np.testing.assert_array_equal(clean.unique_parts[name], noisy.unique_parts[name])


def test_single_precision_is_the_rounded_double() -> None:
    double, single = (
        make_heterogeneous(2, noise=0.1, dtype=d, random_state=0) for d in (np.float64, "float32")
    )
    for name in double.sources:
        assert single.sources[name].dtype == single.unique_bases[name].dtype == np.float32
        np.testing.assert_allclose(single.sources[name], double.sources[name], atol=1e-5)
    assert double.shared_basis.dtype == np.float64
    assert single.shared_basis.dtype == np.float32


def test_one_rank_or_size_for_all_equals_a_sequence_of_it() -> None:
    one = make_heterogeneous(3, 10, 12, 2, 1, random_state=0)
    for many in ([10] * 3, (10,) * 3, np.full(3, 10)):
        two = make_heterogeneous(3, many, 12, 2, [1, 1, 1], random_state=0)
        for name in one.sources:
            np.testing.assert_array_equal(one.sources[name], two.sources[name])


def test_sources_are_different() -> None:
    data = make_heterogeneous(4, alignment=0.9, random_state=0)
    for one, two in combinations(data.sources, 2):
        assert not np.allclose(data.shared_parts[one], data.shared_parts[two])
        assert not np.allclose(data.unique_parts[one], data.unique_parts[two])


def test_data_are_frozen() -> None:
    data = make_heterogeneous(1, random_state=0)
    with pytest.raises(AttributeError):
        data.sources = {}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_sources": 0}, r"n_sources=0 found; expected one int of at least 1: pass"),
        ({"n_sources": 2.5}, r"n_sources=2\.5 found"),
        ({"n_sources": True}, r"n_sources=True found"),
        ({"n_shared": -1}, r"n_shared=-1 found; expected one int of at least 0"),
        ({"n_shared": "auto"}, r"n_shared='auto' found"),
        ({"n_unique": -2}, r"n_unique=-2 found; .* or a sequence of one per source"),
        ({"n_unique": "auto"}, r"n_unique='auto' found"),
        ({"n_unique": [1, 2]}, r"n_unique has 2 entries; expected 10, one per source"),
        ({"n_unique": [1] * 9 + [-1]}, r"n_unique\[9\]=-1 found"),
        ({"n_samples": [5] * 11}, r"n_samples has 11 entries; expected 10"),
        ({"n_samples": [5] * 9 + [5.5]}, r"n_samples\[9\]=5\.5 found"),
        ({"n_samples": None}, r"n_samples=None found"),
        ({"n_features": [9] * 10}, r"n_features=\[9, .* expected one int .* share their features"),
        (
            {"n_samples": [9] * 10, "shared_axis": "samples"},
            r"n_samples=\[9, .* expected one int .* share their samples",
        ),
        ({"n_features": [9, 9], "shared_axis": "samples"}, r"n_features has 2 entries"),
        (
            {"n_features": 5},
            r"source0 has n_shared \+ n_unique = 3 \+ 3 = 6, but n_features=5; expected a sum of "
            r"at most 5: lower a rank or raise n_features",
        ),
        ({"n_samples": [9] * 9 + [4]}, r"source9 has .* = 6, but n_samples=4"),
        ({"n_samples": 4, "shared_axis": "samples"}, r"source0 has .* = 6, but n_samples=4"),
        ({"n_shared": 0, "n_unique": [1] * 9 + [0]}, r"source9 has n_shared=0 and n_unique=0"),
        ({"noise": -0.1}, r"noise=-0\.1 found; expected a number in \[0, inf\)"),
        ({"noise": np.nan}, r"noise=nan found"),
        ({"noise": np.inf}, r"noise=inf found"),
        ({"noise": "white"}, r"noise='white' found"),
        ({"alignment": 1.0}, r"alignment=1\.0 found; expected a number in \[0, 1\)"),
        ({"alignment": -0.5}, r"alignment=-0\.5 found"),
        ({"spread": 0.5}, r"spread=0\.5 found; expected a number in \[1, inf\)"),
        ({"scores": "normal"}, r"scores='normal' found; expected 'gaussian' or 'orthonormal'"),
        ({"shared_axis": 0}, r"shared_axis=0 found; expected 'features' or 'samples'"),
        ({"dtype": int}, r"dtype=<class 'int'> found; expected float64 or float32"),
        ({"dtype": "double precision"}, r"dtype='double precision' found"),
        ({"random_state": "seven"}, r"random_state='seven' found; expected an int"),
        ({"random_state": -1}, r"random_state=-1 found; expected an int of at least 0"),
    ],
)
def test_wrong_argument_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_heterogeneous(**arguments)
