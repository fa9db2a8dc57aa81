"""Algorithm 1 against the paper's lines, written out once more, one source after the other."""

import numpy as np
import pytest

from heterofactor import HMF
from heterofactor.datasets import make_heterogeneous
from heterofactor.engines import Serial
from heterofactor.losses import Squared
from heterofactor.rounds import run
from heterofactor.solvers import Averaging
from heterofactor.sources import Dense

N1, N2, R1, R2, ETA, BETA = 7, 5, 2, 1, 0.003, 0.4


def lines_of_the_paper(M, Ug, Vg, Ul, Vl, rounds):
    """Follow the paper from given starting matrices; return the shared basis of every round."""
    found = []
    for _ in range(rounds):
        copies = []
        for i in range(len(M)):
            inverse = np.linalg.inv(Ug.T @ Ug)
            old = Ul[i]
            Ul[i] = old - Ug @ inverse @ Ug.T @ old
            Vg[i] = Vg[i] + Vl[i] @ old.T @ Ug @ inverse
            L = Ug @ Vg[i].T + Ul[i] @ Vl[i].T - M[i]
            copy = Ug - ETA * (L @ Vg[i] + 2 * BETA * Ug @ (Ug.T @ Ug - np.eye(R1)))
            steps = (
                L.T @ Ug,
                L @ Vl[i] + 2 * BETA * Ul[i] @ (Ul[i].T @ Ul[i] - np.eye(R2)),
                L.T @ Ul[i],
            )
            Vg[i], Ul[i], Vl[i] = (
                x - ETA * step for x, step in zip((Vg[i], Ul[i], Vl[i]), steps, strict=True)
            )
            copies.append(copy)
        Ug = sum(copies) / len(copies)
        found.append(Ug)
    return found


@pytest.mark.parametrize("stacked", [True, False])
def test_every_round_is_that_of_the_paper(stacked: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    M = rng.normal(size=(3, N1, N2))
    solver = Averaging(R1, step_size=ETA, beta=BETA)
    basis = 0.5 * rng.normal(size=(N1, R1))
    sources = [Dense(M)] if stacked else [Dense(m[None]) for m in M]
    engine = Serial(sources, [{"unique": np.zeros((len(s.matrix), N1, R2))} for s in sources])
    shared = solver.start(basis)
    engine.begin(solver, shared)
    begun = {
        name: np.concatenate([local[name] for local in engine.locals()])
        for name in ("shared_scores", "unique", "unique_scores")
    }
    Vg, Ul, Vl = (list(begun[name].copy()) for name in ("shared_scores", "unique", "unique_scores"))
    for expected in lines_of_the_paper(M, basis, Vg, Ul, Vl, rounds=20):
        shared = solver.merge(shared, engine.round(solver, Squared(), shared))
        assert shared["basis"] == pytest.approx(expected, abs=1e-12)


def test_slope_of_the_objective_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    M = rng.normal(size=(2, N1, N2))
    solver = Averaging(R1, step_size=ETA, beta=BETA)
    local = {
        "unique": rng.normal(size=(2, N1, R2)),
        "shared_scores": rng.normal(size=(2, N2, R1)),
        "unique_scores": rng.normal(size=(2, N2, R2)),
        "norm": np.ones(2),
    }

    def objective(Ug: np.ndarray) -> float:
        answer = solver.step(Dense(M), Squared(), solver.start(Ug), corrected)[1]
        return float(answer["value"])

    Ug = rng.normal(size=(N1, R1))
    # start from a corrected point, where another correction changes nothing
    given = np.linalg.solve(Ug.T @ Ug, Ug.T @ local["unique"])
    corrected = local | {"unique": local["unique"] - Ug @ given}
    moved = solver.step(Dense(M), Squared(), solver.start(Ug), corrected)[1]["basis"]
    direction = Ug @ rng.normal(size=(R1, R1))  # keeps the unique bases orthogonal to Ug
    h = 1e-6
    expected = (objective(Ug + h * direction) - objective(Ug - h * direction)) / (2 * h)
    # both copies of Ug moved by eta times their own gradient
    assert np.sum((2 * Ug - moved) / ETA * direction) == pytest.approx(expected, rel=1e-6)


def test_a_given_step_never_changes_and_a_chosen_one_falls_where_the_objective_rises() -> None:
    M = np.random.default_rng(0).normal(size=(3, N1, N2))
    for solver, expected in ((Averaging(R1, step_size=1e-3), 1e-3), (Averaging(R1), None)):
        engine = Serial([Dense(M)], [{"unique": np.zeros((3, N1, R2))}])
        start = 0.01 * np.random.default_rng(1).normal(size=(N1, R1))
        result = run(solver, engine, Squared(), solver.start(start), max_rounds=500)
        values = np.array([value for value, _ in result.history[1:]])
        if expected is None:
            assert values[-1] < 0.6 * values[0]
        else:
            assert result.shared["eta"] == expected


def test_unique_parts_alone_are_each_sources_own_best_fit() -> None:
    data = make_heterogeneous(3, n_shared=0, n_unique=2, noise=0.1, random_state=0)
    settings = {"centre": None, "random_state": 0, "max_rounds": 20_000}
    found = HMF(0, 2, solver="averaging", tol=1e-7, **settings).fit(data.sources)
    assert found.n_rounds_ > 1
    for name, table in data.sources.items():
        _, values, right = np.linalg.svd(table, full_matrices=False)
        best = (table @ right[:2].T) @ right[:2]
        np.testing.assert_allclose(found.reconstruct(name), best, atol=1e-5 * values[0])
