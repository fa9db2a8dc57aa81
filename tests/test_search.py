"""The search: starts in doubt, restarts, interruptions, the loop itself."""

import numpy as np
import pytest

from heterofactor.datasets import HeterogeneousData, make_heterogeneous
from heterofactor.engines import Serial
from heterofactor.losses import Squared
from heterofactor.metrics import subspace_error
from heterofactor.rounds import run
from heterofactor.search import Found, newcomer, search
from heterofactor.solvers import Averaging, Grassmann
from heterofactor.sources import Dense
from heterofactor.start import OnSketch, Spectral, spectral_start

CLEAR = make_heterogeneous(5, 60, 30, 2, 2, noise=0.05, random_state=1)
DOUBTFUL = make_heterogeneous(5, 40, 30, 2, 2, noise=0.6, spread=10, alignment=0.5, random_state=1)


class InterruptedAfter(Serial):
    """An engine whose user presses Ctrl-C in a certain round of all rounds."""

    left = 0

    def round(self, stage, loss, shared):
        if InterruptedAfter.left == 0:
            raise KeyboardInterrupt
        InterruptedAfter.left -= 1
        return super().round(stage, loss, shared)


def searched(
    data: HeterogeneousData, solver: object = None, engine: type = Serial, **more
) -> Found:
    sources = [Dense(table.T[None].copy()) for table in data.sources.values()]
    settings = {"max_rounds": 500, "n_restarts": 0, "seeds": np.random.SeedSequence(0), **more}
    solver = solver or Grassmann(2)
    example = np.zeros((30, 0))
    return search(sources, [2] * 5, solver, engine, Squared(), example, **settings)


def test_a_clear_start_is_the_spectral_one() -> None:
    found = searched(CLEAR)
    assert found.start.name == "spectral"
    assert found.start.eigenvalues[1] > 0.9
    assert {name for name, _, _ in found.history} == {"spectral"}


def test_a_start_in_doubt_is_the_best_of_several_on_the_sketches() -> None:
    found, restarted = searched(DOUBTFUL), searched(DOUBTFUL, n_restarts=8)
    assert found.start.eigenvalues[1] < 0.8
    best = min(value for _, value, _ in restarted.history)
    assert found.result.shared["value"] == pytest.approx(best, rel=1e-9)


def test_restarts_are_random_starts_of_their_own() -> None:
    found = searched(CLEAR, n_restarts=3)
    assert {n for n, _, _ in found.history} == {"spectral", "random 1", "random 2", "random 3"}
    lowest = {n: min(v for m, v, _ in found.history if m == n) for n, _, _ in found.history}
    assert float(found.result.shared["value"]) == min(lowest.values())


def test_algorithm_1_starts_small_and_random() -> None:
    found = searched(CLEAR, Averaging(2, tol=1e-3))
    assert found.start.name == "random"
    assert found.start.eigenvalues is None
    assert np.abs(found.start.basis).max() < 0.1


@pytest.mark.parametrize("rounds", [0, 2, 4, 6, 12])
def test_an_interruption_at_any_time_keeps_an_answer(rounds: int) -> None:
    InterruptedAfter.left = rounds

    class Once(InterruptedAfter):
        """Lets the rounds go on once it was interrupted, as a user would who presses once."""

        def round(self, stage, loss, shared):
            try:
                return super().round(stage, loss, shared)
            except KeyboardInterrupt:
                InterruptedAfter.left = 10**6
                raise

    found = searched(CLEAR, engine=Once, n_restarts=2)
    assert found.interrupted
    basis = found.shared["basis"]
    assert basis.T @ basis == pytest.approx(np.eye(2), abs=1e-12)
    assert np.isfinite(found.locals[0]["unique_scores"]).all()
    if rounds >= 6:  # beyond the start: what was found so far is already close
        assert subspace_error(basis, CLEAR.shared_basis) < 0.05


def test_watch_sees_every_round_and_the_history_is_what_it_saw() -> None:
    source = Dense(np.random.default_rng(0).normal(size=(4, 6, 9)))
    engine, solver, seen = Serial([source], [{"unique": np.zeros((4, 6, 1))}]), Grassmann(2), []
    start = solver.start(np.eye(6)[:, :2])
    result = run(
        solver, engine, Squared(), start, max_rounds=7, watch=lambda *args: seen.append(args)
    )
    assert [number for number, _, _ in seen] == list(range(1, 8))
    assert [value for _, value, _ in seen] == [value for value, _ in result.history]
    assert not result.converged
    assert "max_rounds=7" in result.stopped


def test_sketch_is_the_leading_space_of_each_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stack = rng.normal(size=(3, 40, 4)) @ rng.normal(size=(3, 4, 50))
    stack += 0.01 * rng.normal(size=stack.shape)
    spectral = Spectral(2)
    shared = spectral.begin(stack[0], 2, rng)
    local = spectral.init(Dense(stack), shared, {"unique": np.zeros((3, 40, 2))})
    for matrix, sketch in zip(stack, local["sketch"], strict=True):
        # found to a few per cent: it only has to start well
        assert subspace_error(sketch, np.linalg.svd(matrix)[0][:, :4]) < 1e-2


@pytest.mark.parametrize("rank", [0, 1, 2, 4])
def test_on_sketches_a_round_is_that_of_the_solver_on_their_factors(rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    stack = rng.normal(size=(3, 20, 30))
    spectral = Spectral(2)
    local = {"unique": np.zeros((3, 20, rank))}
    local = spectral.init(Dense(stack), spectral.begin(stack[0], rank, rng), local)
    solver = Grassmann(2, max_inner=300)
    shared = solver.start(np.linalg.qr(rng.normal(size=(20, 2)))[0])
    shared["inner_tolerance"] = np.asarray(1e-12)
    stage = OnSketch(solver, tol=1e-6)
    local = stage.init(Dense(stack), shared, local)
    _, found = stage.step(Dense(stack), Squared(), shared, local)
    engine = Serial([Dense(local["factor"])], [{"unique": local["unique"]}])
    engine.begin(solver, shared)
    expected = engine.round(solver, Squared(), shared)
    size = -expected["value"]
    # unique bases are found to 1e-12; the curvature is damped by 1e-5 of the energy
    for name, close in (("value", 1e-10), ("gradient", 1e-10), ("curvature", 1e-4)):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=close * size)


def test_sketches_of_wide_sources_are_followed_close_to_the_answer() -> None:
    found = searched(CLEAR)
    start = found.history[0][2]
    # what a sketch leaves out of noise of a twentieth is well below a thousandth of the energy
    assert start < 1e-4
    assert found.result.converged


def test_directions_without_energy_are_not_taken_for_shared_ones() -> None:
    rng = np.random.default_rng(0)
    stack = rng.normal(size=(4, 12, 1)) @ rng.normal(size=(4, 1, 9))  # one direction each, its own
    engine = Serial([Dense(stack)], [{"unique": np.zeros((4, 12, 2))}])
    start = spectral_start(engine, Squared(), 1, 2, stack[0], rng)
    expected = np.linalg.eigvalsh(
        sum(np.outer(u, u) for u in np.linalg.svd(stack)[0][:, :, 0]) / 4
    )[-1]
    assert start.eigenvalues[0] == pytest.approx(expected, abs=0.02)
    assert start.eigenvalues[0] < 0.9


def test_a_newcomer_gets_the_best_unique_basis(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, basis = rng.normal(size=(12, 30)), np.linalg.qr(rng.normal(size=(12, 3)))[0]
    local = newcomer(Dense(matrix[None]), 2, basis, 1e-12)
    best = np.linalg.svd(matrix - basis @ basis.T @ matrix)[0][:, :2]
    # gaps between the singular values of noise are small: angles of about 1e-12 / gap
    assert subspace_error(local["unique"][0], best) < 1e-16
    assert local["energy"][0] == pytest.approx(np.sum(matrix**2))
