"""Losses do what they are for: outliers, answers of yes and no, and counts."""

from typing import Any

import numpy as np
import pytest

from heterofactor import HMF
from heterofactor.datasets import HeterogeneousData, make_heterogeneous
from heterofactor.losses import LOSSES, Huber, Logistic, at_noise, ridges
from heterofactor.metrics import subspace_error
from reference import RANK_SHARED, RANKS_UNIQUE, Linear, outliers

# Relative errors of the shared and the unique part that RJIVE has on the reference data with
# outliers, at its optimum.
RJIVE_SHARED, RJIVE_UNIQUE = 0.03309, 0.07516


def total_error(model: HMF, data: HeterogeneousData) -> float:
    unique = [
        subspace_error(components.T, data.unique_bases[name])
        for name, components in model.unique_components_.items()
    ]
    shared = subspace_error(model.shared_components_.T, data.shared_basis)
    return shared + float(np.mean(unique))


def with_outliers(data: HeterogeneousData, seed: int) -> dict[str, np.ndarray]:
    """Add to 5 % of the entries 20 times the noise."""
    rng = np.random.default_rng([seed, 2])  # the generator's own stream made the parts
    found = {}
    for name, table in data.sources.items():
        gross = np.sign(rng.standard_normal(table.shape)) * (rng.random(table.shape) < 0.05)
        found[name] = table + 20 * data.noise_parts[name].std() * gross
    return found


@pytest.mark.parametrize("loss", ["huber", "trimmed", "absolute"])
def test_gross_outliers_do_little_harm_under_robust_losses(loss: str, seed: int) -> None:
    data = make_heterogeneous(10, noise=0.2, random_state=seed)
    clean = total_error(HMF(3, 3, centre=None).fit(data.sources), data)
    model = HMF(3, 3, loss=loss, centre=None).fit(with_outliers(data, seed))
    # under the squared loss, 20 times
    assert total_error(model, data) < 2 * clean


@pytest.mark.parametrize("loss", ["huber", "trimmed", "absolute"])
def test_reference_data_with_outliers_are_taken_apart_better_than_by_rjive(
    loss: str, reference: Linear
) -> None:
    tables = outliers(reference.sources)
    model = HMF(RANK_SHARED, RANKS_UNIQUE, loss=loss, centre=None, shared_axis="samples")
    model.fit(tables)
    for part, truth, limit in (
        ("shared", reference.shared, RJIVE_SHARED),
        ("unique", reference.unique, RJIVE_UNIQUE),
    ):
        left = [model.reconstruct(k, part=part) - table for k, table in enumerate(truth)]
        off = sum(np.sum(table**2) for table in left) / sum(np.sum(table**2) for table in truth)
        assert np.sqrt(off) < limit


def observed(kind: str, data: HeterogeneousData, strength: float, seed: int) -> dict[str, Any]:
    """Draw answers or counts whose log-odds or logarithms have a deviation of `strength`."""
    rng = np.random.default_rng([seed, 3])  # the generator's own stream made the parts
    found = {}
    for name, table in data.sources.items():
        Z = strength * table / table.std()
        if kind == "logistic":
            found[name] = (rng.random(Z.shape) < 1 / (1 + np.exp(-Z))).astype(float)
        else:
            found[name] = rng.poisson(np.exp(Z)).astype(float)
    return found


@pytest.mark.parametrize(("kind", "strength"), [("logistic", 2.0), ("poisson", 0.6)])
def test_answers_and_counts_are_taken_apart_better_under_their_own_loss(
    kind: str, strength: float, seed: int
) -> None:
    data = make_heterogeneous(10, n_features=60, random_state=seed)
    tables = observed(kind, data, strength, seed)
    errors = [total_error(HMF(3, 3, loss=loss).fit(tables), data) for loss in ("squared", kind)]
    assert errors[1] < errors[0]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "strength"), [("logistic", 2.0), ("poisson", 0.6)])
def test_nearly_always(kind: str, strength: float) -> None:
    better = 0
    for seed in range(20):
        data = make_heterogeneous(10, n_features=60, random_state=seed)
        tables = observed(kind, data, strength, seed)
        errors = [total_error(HMF(3, 3, loss=loss).fit(tables), data) for loss in ("squared", kind)]
        better += errors[1] < errors[0]
    assert better >= 19


@pytest.mark.parametrize("shared_axis", ["features", "samples"])
@pytest.mark.parametrize("centre", [None, "source"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("solver", ["alternating", "averaging"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.filterwarnings("ignore:The fit has not converged")
@pytest.mark.filterwarnings("ignore:The fit of some entries has become certain")
def test_every_loss_falls_under_every_solver_for_it(
    loss: str, solver: str, missing: float, centre: Any, shared_axis: Any
) -> None:
    data = make_heterogeneous(
        3, n_samples=25, n_features=20, n_shared=2, n_unique=1, noise=0.2, random_state=1
    )
    tables = {name: table / table.std() for name, table in data.sources.items()}
    if loss in ("logistic", "poisson"):
        tables = observed(loss, data, 0.7, 1)
    rng = np.random.default_rng(0)
    for name, table in tables.items():
        seen = np.where(rng.random(table.shape) < missing, np.nan, table)
        tables[name] = seen if shared_axis == "features" else seen.T
    model = HMF(
        2,
        1,
        loss=loss,
        solver=solver,
        centre=centre,
        shared_axis=shared_axis,
        max_rounds=200,
        random_state=0,
    ).fit(tables)
    values = model.history_["value"].to_numpy()
    values = values[np.isfinite(values)]
    # rounding of sums of 1500 entries
    assert np.all(np.diff(values) <= 1e-9 * np.abs(values[0]))
    # the alternation begins near its end
    assert values[-1] < values[0]
    assert np.isfinite(model.reconstruct("source0")).all()


def test_a_threshold_left_to_the_data_is_that_of_the_noise(seed: int) -> None:
    data = make_heterogeneous(5, noise=0.2, random_state=seed)
    model = HMF(3, 3, loss="huber", centre=None).fit(with_outliers(data, seed))
    noise = np.mean([part.std() for part in data.noise_parts.values()])
    # outliers and the entries that the fit has used up leave it within a fifth or so
    assert model.loss_.threshold == pytest.approx(1.345 * noise, rel=0.25)
    assert at_noise(Huber(), noise).threshold == pytest.approx(1.345 * noise)


def test_losses_with_a_link_have_a_ridge_unless_told_otherwise() -> None:
    assert ridges(None, Logistic()) == (2.0, 2.0)
    assert ridges(0.0, Logistic()) == (0.0, 0.0)
    data = make_heterogeneous(10, n_features=60, random_state=0)
    tables = observed("logistic", data, 2.0, 0)
    sizes = []
    for ridge in (None, 2.0, 8.0):
        model = HMF(3, 3, loss="logistic", ridge=ridge).fit(tables)
        parts = [model.transform(table, sources=name) for name, table in tables.items()]
        sizes.append(np.sum(np.concatenate(parts) ** 2))
    assert sizes[0] == pytest.approx(sizes[1])
    assert sizes[2] < sizes[1]
