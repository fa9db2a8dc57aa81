"""Alternation lowers every objective, ends where nothing changes, and finds what there is."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heterofactor import HMF
from heterofactor.datasets import HeterogeneousData, make_heterogeneous
from heterofactor.engines import Serial
from heterofactor.losses import LOSSES, Loss, Poisson, Squared, at_noise
from heterofactor.masked import Masked
from heterofactor.metrics import subspace_error
from heterofactor.rounds import State, run
from heterofactor.solvers import Alternating
from heterofactor.solvers.alternating import standing
from heterofactor.solvers.easing import balanced, shifted
from reference import (
    MASKED_HIDDEN_ERROR,
    MASKED_PROJECTION_ENTRY,
    MASKED_RESIDUAL,
    RANK_SHARED,
    RANKS_UNIQUE,
    Linear,
    mask,
)

R1, R2 = 2, 1


@dataclass
class Problem:
    """Two stacks of matrices with holes, and what is asked of their fit."""

    loss: Loss
    offsets: Any
    ridge: tuple[float, float]
    sources: list[Masked]
    solver: Alternating

    def run(self, rounds: int = 25) -> tuple[State, list[State], list[State]]:
        """Return the shared state at the end, all on the way, and the private ones."""
        rng = np.random.default_rng(1)
        states = [
            {"unique": np.zeros((len(s.matrix), 12, R2)), "seed": np.array(k)}
            for k, s in enumerate(self.sources)
        ]
        engine, seen = Serial(self.sources, states), []
        basis = np.linalg.qr(rng.standard_normal((12, R1)))[0]
        result = run(
            self.solver,
            engine,
            self.loss,
            self.solver.start(basis),
            max_rounds=rounds,
            watch=lambda number, value, shared: seen.append(shared),
        )
        return result.shared, seen, engine.locals()

    def objective(self, basis: np.ndarray, points: list[State]) -> float:
        """Sum up the loss and the penalties, once more and plainly."""
        total = self.ridge[0] * np.sum(basis**2)
        for source, point in zip(self.sources, points, strict=True):
            V, W = np.split(point["scores"], [R1], axis=-1)
            Z = basis @ V.mT + point["unique"] @ W.mT
            if "offset" in point:
                Z = Z + point["offset"]
            weight = 1 if source.weight is None else source.weight
            total += 2 * np.sum(weight * self.loss.value(source.matrix, Z))
            total += self.ridge[0] * np.sum(V**2)
            total += self.ridge[1] * (np.sum(W**2) + np.sum(point["unique"] ** 2))
        return float(total / 2)


def problem(
    name: str,
    seed: int,
    missing: float = 0.3,
    ridge: tuple[float, float] = (0.0, 0.0),
    offsets: Any = None,
    weighted: bool = False,
    **settings: Any,
) -> Problem:
    rng = np.random.default_rng(seed)
    loss = at_noise(LOSSES[name](), 0.3)
    sources, U = [], rng.standard_normal((12, R1))
    for count, n2 in ((2, 15), (1, 9)):
        own = rng.standard_normal((count, 12, R2))
        W = np.concatenate([np.broadcast_to(U, (count, 12, R1)), own], axis=-1)
        Z = W @ rng.standard_normal((count, R1 + R2, n2))
        draw = {
            "logistic": lambda Z=Z: (rng.random(Z.shape) < 1 / (1 + np.exp(-Z))).astype(float),
            "poisson": lambda Z=Z: rng.poisson(np.exp(0.4 * Z)).astype(float),
        }
        M = draw[name]() if name in draw else Z + 0.3 * rng.standard_normal(Z.shape)
        seen = (rng.random(M.shape) >= missing).astype(float)
        if weighted:
            seen = seen * rng.uniform(0.2, 2, M.shape)
        axis = {"rows": 2, "columns": 1}.get(offsets)
        centre = None if axis is None else np.zeros_like(M.mean(axis=axis, keepdims=True))
        sources.append(Masked(M * (seen > 0), seen if missing or weighted else None, centre))
    solver = Alternating(R1, ridge=ridge, offsets=offsets, **settings)
    return Problem(loss, offsets, ridge, sources, solver)


RIDGES = st.sampled_from([(0.0, 0.0), (0.5, 0.5), (0.05, 2.0), (1.0, 0.0)])


@given(
    name=st.sampled_from(list(LOSSES)),
    seed=st.integers(0, 10**6),
    missing=st.sampled_from([0.0, 0.1, 0.5]),
    ridge=RIDGES,
    offsets=st.sampled_from([None, "rows", "columns"]),
    weighted=st.booleans(),
    memory=st.sampled_from([0, 5]),
)
@settings(max_examples=60)
def test_no_sweep_raises_the_objective(memory: int, **drawn: Any) -> None:
    made = problem(**drawn, memory=memory)
    shared, on_the_way, locals_ = made.run()
    values = np.array([float(state["value"]) for state in on_the_way])
    # rounding: the solver allows 3000 units of precision of the value and of the data's scale
    slack = 1e-11 * (1 + np.abs(values[:-1]) + sum(s.energy.sum() for s in made.sources))
    assert np.all(np.diff(values) <= slack)
    if memory == 0 and not isinstance(made.loss, Poisson):
        # plain sweeps need no test of the value: each lowers it; only the Poisson majoriser, which
        # holds within reach, may have a sweep cut short
        assert all(float(state["accepted"]) == 1 for state in on_the_way)
    # the value is that of the point that stands
    points = [standing(shared, local) for local in locals_]
    assert values[-1] == pytest.approx(made.objective(shared["basis"], points), rel=1e-10)


@pytest.mark.parametrize("offsets", [None, "rows", "columns"])
@pytest.mark.parametrize("ridge", [(0.0, 0.0), (0.5, 1.0)])
@pytest.mark.parametrize("name", ["squared", "huber", "absolute", "logistic", "poisson"])
def test_the_end_is_stationary_by_finite_differences(
    name: str, ridge: tuple[float, float], offsets: Any
) -> None:
    if name in ("logistic", "poisson") and (ridge[0] == 0 or offsets == "columns"):
        pytest.skip("the likelihood of a short line of equal answers is greatest at infinity")
    made = problem(name, seed=8, missing=0.1, ridge=ridge, offsets=offsets, tol=1e-10)
    shared, _, locals_ = made.run(rounds=3000)
    assert float(shared["gradient"]) < 1e-9
    points = [standing(shared, local) for local in locals_]
    rng = np.random.default_rng(0)

    def slope(start: np.ndarray, others: list[State]) -> float:
        """Difference the objective along random directions of everything that is fitted."""
        direction = rng.standard_normal(start.shape)
        ways = [{k: rng.standard_normal(v.shape) for k, v in point.items()} for point in others]
        if offsets is None:
            ways = [way | {"offset": 0.0} for way in ways]
        h = 1e-6  # less than the rounded corner of the absolute loss by far

        def at(t: float) -> float:
            moved = [
                {k: v + t * way[k] for k, v in point.items()}
                for point, way in zip(others, ways, strict=True)
            ]
            return made.objective(start + t * direction, moved)

        return abs(at(h) - at(-h)) / (2 * h)

    away = [{k: 1.1 * v for k, v in point.items()} for point in points]
    # rounding of the value over h is 1e-8; elsewhere slopes are of the value's order
    value = abs(made.objective(shared["basis"], points)) + 1
    assert max(slope(shared["basis"], points) for _ in range(5)) < 1e-6 * value
    assert max(slope(1.1 * shared["basis"], away) for _ in range(5)) > 1e-2 * value


@pytest.mark.parametrize("name", LOSSES)
def test_pulls_are_the_gradient_by_finite_differences(name: str, seed: int) -> None:
    made = problem(name, seed, missing=0.3, offsets="rows", weighted=True)
    rng = np.random.default_rng(seed)
    source = made.sources[0]
    W, H, W1, H1 = (rng.standard_normal((2, n, R1)) for n in (12, 15, 12, 15))
    _, LH, LW = source.pull(made.loss, W, H)
    h = 1e-6
    up, down = (source.pull(made.loss, W + t * W1, H + t * H1)[0] for t in (h, -h))
    expected = np.sum(LH * W1, axis=(-2, -1)) + np.sum(LW * H1, axis=(-2, -1))
    # a trimmed entry within h of its threshold would jump; there is none
    assert (up - down) / (2 * h) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_turns_and_shifts_are_the_best() -> None:
    rng = np.random.default_rng(0)
    U, V, Ui, Vi = (rng.standard_normal((n, r)) for n, r in ((9, 3), (7, 3), (9, 2), (7, 2)))

    def turned(T: np.ndarray) -> float:
        return float(np.sum((U @ T) ** 2) + np.sum((V @ np.linalg.inv(T).T) ** 2))

    def moved(A: np.ndarray) -> float:
        return float(2 * np.sum((Ui + U @ A) ** 2) + 3 * np.sum((V - Vi @ A.T) ** 2))

    T, A = balanced(U.T @ U, V.T @ V), shifted((3.0, 2.0), U, Ui, V, Vi)
    for best, penalty in ((T, turned), (A, moved)):
        for _ in range(20):
            assert penalty(best) < penalty(best + 1e-3 * rng.standard_normal(best.shape))


def holes(data: HeterogeneousData, share: float, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([seed, 1])  # the generator's own stream made the parts
    return {
        name: np.where(rng.random(table.shape) < share, np.nan, table)
        for name, table in data.sources.items()
    }


def total_error(model: HMF, data: HeterogeneousData) -> float:
    unique = [
        subspace_error(components.T, data.unique_bases[name])
        for name, components in model.unique_components_.items()
    ]
    shared = subspace_error(model.shared_components_.T, data.shared_basis)
    return shared + float(np.mean(unique))


def recovered(n_sources: int, share: float, spread: float, seed: int) -> float:
    data = make_heterogeneous(n_sources, spread=spread, random_state=seed)
    model = HMF(3, 3, centre=None, tol=1e-13, max_rounds=1000, random_state=0)
    return total_error(model.fit(holes(data, share, seed)), data)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.05, 0.01])
def test_what_is_missing_does_not_matter_without_noise(share: float, seed: int) -> None:
    assert recovered(10, share, 1.0, seed) < 1e-20


@pytest.mark.parametrize("share", [0.5, 0.01])
def test_nor_with_a_hundred_sources(share: float) -> None:
    assert recovered(100, share, 1.0, 0) < 1e-20


@pytest.mark.parametrize(("share", "spread"), [(0.7, 1.0), (0.8, 1.0), (0.5, 10.0)])
def test_few_entries_or_weak_directions_are_enough(share: float, spread: float, seed: int) -> None:
    assert recovered(10, share, spread, seed) < 1e-16


def test_few_entries_of_weak_directions_are_enough() -> None:
    assert recovered(10, 0.7, 10.0, 0) < 1e-12


@pytest.mark.slow
def test_few_entries_of_weak_directions_are_enough_nearly_always() -> None:
    found = [recovered(10, 0.7, 10.0, seed) for seed in range(10)]
    assert sum(error < 1e-12 for error in found) >= 9


def test_masked_reference_data_are_fitted_as_by_established_programs(reference: Linear) -> None:
    observed = mask(reference.sources)
    tables = [
        np.where(seen, M, np.nan) for seen, M in zip(observed, reference.sources, strict=True)
    ]
    model = HMF(RANK_SHARED, RANKS_UNIQUE, centre=None, shared_axis="samples").fit(tables)
    fits = [model.reconstruct(k) for k in range(3)]
    left = [M - Z for M, Z in zip(reference.sources, fits, strict=True)]
    parts = list(zip(left, observed, reference.sources, strict=True))
    residual = sum(np.sum(rest[seen] ** 2) for rest, seen, _ in parts)
    missed = sum(np.sum(rest[~seen] ** 2) for rest, seen, _ in parts)
    hidden = sum(np.sum(M[~seen] ** 2) for _, seen, M in parts)
    U = model.shared_components_
    # the published digits
    assert residual == pytest.approx(MASKED_RESIDUAL, abs=1e-8)
    assert np.sqrt(missed / hidden) == pytest.approx(MASKED_HIDDEN_ERROR, abs=1e-6)
    assert U[:, 0] @ U[:, 0] == pytest.approx(MASKED_PROJECTION_ENTRY, abs=1e-8)


@pytest.mark.parametrize("centre", [None, "source", "global"])
@pytest.mark.parametrize("how", ["solver", "weights"])
def test_complete_data_have_the_answer_of_the_complete_solver(how: str, centre: Any) -> None:
    data = make_heterogeneous(
        6, n_samples=40, n_features=30, n_shared=2, n_unique=2, noise=0.3, random_state=1
    )
    settings = {"centre": centre, "tol": 1e-12}
    expected = HMF(2, 2, **settings).fit(data.sources)
    if how == "solver":
        model = HMF(2, 2, solver="alternating", **settings).fit(data.sources)
    else:
        ones = {name: np.ones(table.shape) for name, table in data.sources.items()}
        model = HMF(2, 2, **settings).fit(data.sources, weights=ones)
    assert model.shared_components_ == pytest.approx(expected.shared_components_, abs=1e-9)
    for name in data.sources:
        assert model.reconstruct(name) == pytest.approx(expected.reconstruct(name), abs=1e-9)


def test_a_ridge_takes_few_rounds_in_spite_of_what_only_it_feels(seed: int) -> None:
    # alternation alone took 90 to 110 rounds here; with the turns and shifts it takes 9
    data = make_heterogeneous(10, noise=0.3, random_state=seed)
    model = HMF(3, 3, ridge=0.1, random_state=0).fit(holes(data, 0.3, seed))
    assert model.converged_
    assert model.n_rounds_ <= 20


def test_squared_is_its_own_majoriser_so_that_one_step_scores() -> None:
    made = problem("squared", seed=0)
    source = made.sources[0]
    W = np.random.default_rng(0).standard_normal((2, 12, R1 + R2))
    scores = source.scores((None, None), W, None, None)
    _, _, slope = source.pull(Squared(), W, scores)
    # the scores' gradient vanishes to the rounding of sums of a dozen entries
    assert np.abs(slope).max() < 1e-10
