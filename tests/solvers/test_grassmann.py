"""The default solver: its gradient, its value, its unique bases, its steps."""

import numpy as np
import pytest

from heterofactor.engines import Serial
from heterofactor.linalg import complement, orthonormal
from heterofactor.losses import Squared
from heterofactor.rounds import Result, State, run
from heterofactor.solvers import Grassmann
from heterofactor.sources import Dense

N1, R1, RANK = 8, 2, 2


def problem(seed: int, noise: float = 0.3) -> list[np.ndarray]:
    """Matrices of one shared and one unique direction more than are asked for."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(N1, R1 + 1))
    return [
        np.hstack([shared, rng.normal(size=(N1, RANK + 1))]) @ rng.normal(size=(R1 + RANK + 2, n))
        + noise * rng.normal(size=(N1, n))
        for n in (9, 12, 15)
    ]


def captured(matrices: list[np.ndarray], basis: np.ndarray) -> float:
    """Return the energy that a shared basis and the best unique bases for it capture."""
    total = 0.0
    for M in matrices:
        off = M - basis @ (basis.T @ M)
        total += np.sum((basis.T @ M) ** 2) + np.sum(np.linalg.svd(off)[1][:RANK] ** 2)
    return total


def answer(matrices: list[np.ndarray], basis: np.ndarray) -> State:
    """Return what the sources answer to a basis once their unique bases are exact."""
    solver = Grassmann(R1, max_inner=200)
    shared = solver.start(basis)
    shared["inner_tolerance"] = np.asarray(1e-13)
    engine = Serial([Dense(M[None]) for M in matrices], [{"unique": np.zeros((1, N1, RANK))}] * 3)
    engine.begin(solver, shared)
    return engine.round(solver, Squared(), shared)


def solve(matrices: list[np.ndarray], basis: np.ndarray, tol: float = 1e-10) -> Result:
    engine = Serial([Dense(M[None]) for M in matrices], [{"unique": np.zeros((1, N1, RANK))}] * 3)
    solver = Grassmann(R1, tol=tol)
    return run(solver, engine, Squared(), solver.start(basis), max_rounds=200)


def random_basis(seed: int) -> np.ndarray:
    return orthonormal(np.random.default_rng(seed).normal(size=(N1, R1)))


def test_value_is_the_captured_energy(seed: int) -> None:
    matrices, basis = problem(seed), random_basis(seed)
    assert answer(matrices, basis)["value"] == pytest.approx(-captured(matrices, basis), rel=1e-10)


def test_gradient_agrees_with_finite_differences(seed: int) -> None:
    matrices, basis = problem(seed), random_basis(seed)
    gradient = answer(matrices, basis)["gradient"]
    riemannian = 2 * (gradient - basis @ (basis.T @ gradient))
    rng = np.random.default_rng(seed)
    for _ in range(5):
        direction = rng.normal(size=(N1, R1))
        direction -= basis @ (basis.T @ direction)
        h = 1e-5
        ahead, behind = (captured(matrices, orthonormal(basis + s * direction)) for s in (h, -h))
        # central differences of values near 1e3 resolve slopes to about 1e-8 relative
        expected = (ahead - behind) / (2 * h)
        assert np.sum(riemannian * direction) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_gradient_is_exact_to_first_order_in_the_unique_bases(seed: int) -> None:
    """At the truth the gradient is zero; unique bases off by a little leave its square."""
    rng = np.random.default_rng(seed)
    basis = random_basis(seed)
    own = complement(basis, rng.normal(size=(N1, RANK)))
    M = np.hstack([basis, own]) @ rng.normal(size=(R1 + RANK, 12))
    error = rng.normal(size=own.shape)
    solver = Grassmann(R1, max_inner=0)
    sizes = []
    for little in (1e-2, 1e-3):
        local = {"unique": own[None], "image": (own + little * error)[None]}
        _, message = solver.step(Dense(M[None]), Squared(), solver.start(basis), local)
        gradient = message["gradient"]
        sizes.append(np.linalg.norm(gradient - basis @ (basis.T @ gradient)))
    # a tenth of the error leaves a hundredth; to first order alone it would leave a tenth
    assert sizes[1] < 0.02 * sizes[0]


def test_more_sources_of_the_same_kind_change_no_relative_gradient() -> None:
    histories = []
    for copies in (1, 50):
        stack = np.repeat(problem(0)[0][None], copies, axis=0)
        engine = Serial([Dense(stack)], [{"unique": np.zeros((copies, N1, 1))}])
        solver = Grassmann(R1)
        result = run(solver, engine, Squared(), solver.start(random_basis(0)), max_rounds=3)
        histories.append([gradient for _, gradient in result.history])
    # the first unique bases are drawn at random, for each source another one
    assert histories[1] == pytest.approx(histories[0], rel=0.5)


def test_curvature_is_the_hessian_where_only_the_factors_carry_energy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    basis = random_basis(seed)
    own = complement(basis, rng.normal(size=(N1, RANK)))
    M = np.hstack([basis, own]) @ rng.normal(size=(R1 + RANK, 12))
    direction = rng.normal(size=(N1, R1))
    direction -= basis @ (basis.T @ direction)
    h = 1e-3
    ahead, here, behind = (captured([M], orthonormal(basis + s * direction)) for s in (h, 0, -h))
    second = (ahead - 2 * here + behind) / h**2
    curvature = answer([M] * 3, basis)["curvature"] / 3
    off = direction - own @ (own.T @ direction)
    # second differences with steps of 1e-3 are good to about 1e-5 relative
    assert second == pytest.approx(-2 * np.sum(off * (off @ curvature)), rel=1e-3)


def test_basis_may_be_turned_within_its_span(seed: int) -> None:
    matrices, basis = problem(seed), random_basis(seed)
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(R1, R1)))[0]
    one, two = answer(matrices, basis), answer(matrices, basis @ turn)
    assert two["value"] == pytest.approx(one["value"], rel=1e-12)
    assert two["gradient"] == pytest.approx(one["gradient"] @ turn, abs=1e-6)


def test_accepted_values_never_rise(seed: int) -> None:
    result = solve(problem(seed, noise=1.0), random_basis(seed + 10))
    values = np.array([value for value, _ in result.history])
    assert (np.diff(values) <= 1e-12 * np.abs(values[0])).all()
    assert result.converged


def test_stationary_point_is_a_fixed_point_of_the_alternating_method(seed: int) -> None:
    """At the answer the shared basis spans an invariant space of sum (I - P_i) S_i (I - P_i)."""
    matrices = problem(seed)
    basis = solve(matrices, random_basis(seed)).shared["basis"]
    total = np.zeros((N1, N1))
    for M in matrices:
        own = np.linalg.svd(M - basis @ (basis.T @ M))[0][:, :RANK]
        left = M - own @ (own.T @ M)
        total += left @ left.T
    outside = total @ basis - basis @ (basis.T @ total @ basis)
    # a relative gradient of 1e-10, in the units of the total energy
    assert np.linalg.norm(outside) < 1e-8 * np.linalg.norm(total)


def test_unreachable_tolerance_stops_at_the_precision() -> None:
    result = solve(problem(0), random_basis(0), tol=1e-30)
    assert result.converged
    assert result.history[-1][1] < 1e-13


@pytest.mark.parametrize("rank", [0, 1, N1 - R1])
def test_unique_rank_from_none_to_all_that_is_left(rank: int) -> None:
    M = problem(0)[0]
    solver = Grassmann(R1, tol=1e-10)
    engine = Serial([Dense(M[None])], [{"unique": np.zeros((1, N1, rank))}])
    result = run(solver, engine, Squared(), solver.start(random_basis(0)), max_rounds=300)
    best = np.sum(np.linalg.svd(M)[1][: R1 + rank] ** 2)
    # one source alone: shared and unique together are its principal components
    assert -result.shared["value"] == pytest.approx(best, rel=1e-10)
