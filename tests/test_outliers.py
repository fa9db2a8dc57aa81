"""Gross outliers come back as a third, sparse part, and leave the others alone."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from heterofactor import HMF
from heterofactor.datasets import make_heterogeneous
from heterofactor.losses import Huber, Trimmed
from heterofactor.metrics import subspace_error

NOISE = 0.1


def made(shared_axis: Any = "features", share: float = 0.1) -> tuple[Any, dict[Any, Any], Any]:
    """Return data, its tables with gross errors and holes, and where the errors are."""
    sizes = {"features": (60, 40), "samples": (40, 60)}[shared_axis]
    data = make_heterogeneous(
        5, n_samples=sizes[0], n_features=sizes[1], n_shared=2, n_unique=1, noise=NOISE,
        shared_axis=shared_axis, random_state=0,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    tables, wrong = {}, {}
    for name, table in data.sources.items():
        size = table.std()
        wrong[name] = rng.random(table.shape) < share
        errors = rng.choice([-1, 1], table.shape) * rng.uniform(10, 100, table.shape) * size
        hole = rng.random(table.shape) < 0.1
        tables[name] = np.where(hole, np.nan, table + 1 + wrong[name] * errors)
        wrong[name] &= ~hole
    return data, tables, wrong


@pytest.mark.parametrize("shared_axis", ["features", "samples"])
def test_trimming_finds_gross_errors_and_fits_as_if_they_were_holes(shared_axis: Any) -> None:
    data, tables, wrong = made(shared_axis)
    model = HMF(2, 1, loss="trimmed", shared_axis=shared_axis, random_state=0).fit(tables)
    assert list(model.outliers_) == list(tables)
    for name, table in tables.items():
        found = model.outliers_[name]
        assert isinstance(found, scipy.sparse.csr_array)
        left = table - model.reconstruct(name)
        beyond = np.abs(np.nan_to_num(left)) > model.loss_.threshold
        np.testing.assert_allclose(found.toarray(), np.where(beyond, left, 0), atol=1e-12)
        assert (found.toarray()[wrong[name]] != 0).all()
        # three standard deviations: one normal error in 370 is taken for an outlier
        assert (found.toarray()[~wrong[name]] != 0).mean() < 0.02
    # the errors are of no account: what they hit might as well not have been observed
    holes = {
        name: np.where(model.outliers_[name].toarray() != 0, np.nan, table)
        for name, table in tables.items()
    }
    clean = HMF(2, 1, shared_axis=shared_axis, random_state=0).fit(holes)
    assert subspace_error(model.shared_components_.T, clean.shared_components_.T) < 1e-12
    truth = data.shared_basis
    if shared_axis == "samples":  # features are centred over the samples
        truth = np.linalg.qr(truth - truth.mean(axis=0))[0]
    assert subspace_error(model.shared_components_.T, truth) < 0.01


def test_huber_takes_up_what_is_beyond_its_threshold() -> None:
    _, tables, _ = made()
    model = HMF(2, 1, loss=Huber(threshold=0.2), random_state=0).fit(tables)
    for name, table in tables.items():
        left = np.nan_to_num(table - model.reconstruct(name))
        beyond = np.sign(left) * np.maximum(np.abs(left) - 0.2, 0)
        np.testing.assert_allclose(model.outliers_[name].toarray(), beyond, atol=1e-10)


@pytest.mark.parametrize("loss", ["trimmed", Huber(threshold=0.2)], ids=["trimmed", "huber"])
def test_outliers_are_apart_from_the_residual_and_all_adds_up(loss: Any) -> None:
    _, tables, _ = made()
    model = HMF(2, 1, loss=loss, random_state=0).fit(tables)
    shares = model.explained_variance_ratio_
    assert list(shares.columns) == ["shared", "unique", "outliers", "residual"]
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    for name, table in tables.items():
        left = table - model.reconstruct(name)
        rest = left - model.outliers_[name].toarray()
        # as if every entry had been observed
        seen = np.isfinite(table).mean()
        found = model.explained_variance_.loc[name]
        assert found["residual"] == pytest.approx(np.nansum(rest**2) / seen, rel=1e-6)
        whole = np.nansum(left**2) / seen
        assert found["outliers"] + found["residual"] == pytest.approx(whole, rel=1e-6)
        parts = found[["shared", "unique", "outliers", "residual"]]
        assert found["total"] == pytest.approx(parts.sum())
    model.set_params(loss="squared", max_rounds=2000, tol=1e-3, n_shared=1, n_unique=0).fit(tables)
    assert list(model.explained_variance_.columns) == ["shared", "unique", "residual", "total"]


def test_every_kind_of_table_has_the_same_outliers() -> None:
    _, tables, _ = made()
    expected = HMF(2, 1, loss="trimmed", random_state=0).fit(tables).outliers_
    stacked = np.concatenate(list(tables.values()))
    rows = np.repeat(list(tables), 60)
    filled = {name: np.nan_to_num(table) for name, table in tables.items()}
    weights = {name: np.isfinite(table) for name, table in tables.items()}
    sparse = {name: scipy.sparse.csc_array(table) for name, table in filled.items()}
    model = HMF(2, 1, loss="trimmed", missing="absent", random_state=0)
    for X, arguments in (
        ({name: pd.DataFrame(table) for name, table in tables.items()}, {}),
        (stacked, {"sources": rows}),
        (filled, {"weights": weights}),
        ({n: scipy.sparse.csr_array(t) for n, t in filled.items()}, {"weights": weights}),
        (sparse, {}),
        (sparse, {"weights": {n: scipy.sparse.csr_array(w * 2.0) for n, w in weights.items()}}),
    ):
        found = model.fit(X, **arguments).outliers_
        for name, part in expected.items():
            assert found[name].shape == part.shape
            # the threshold is found by the fit, to its tolerance
            np.testing.assert_allclose(found[name].toarray(), part.toarray(), atol=1e-6)


def test_outliers_are_of_the_last_fit_and_of_sources_that_are_added() -> None:
    _, tables, wrong = made()
    last = list(tables)[-1]
    some = {name: table for name, table in tables.items() if name != last}
    model = HMF(2, 1, loss="trimmed", random_state=0).fit(some)
    model.add_source(last, tables[last])
    assert list(model.outliers_) == list(tables)
    assert (model.outliers_[last].toarray()[wrong[last]] != 0).all()
    model.set_params(loss="squared", tol=1e-2).fit({n: t[:, :20] for n, t in some.items()})
    assert not hasattr(model, "outliers_")


def test_complete_tables_have_outliers_too() -> None:
    data, _, _ = made(share=0.0)
    tables = {name: table.copy() for name, table in data.sources.items()}
    tables["source0"][3, 4] += 50
    model = HMF(2, 1, loss=Trimmed(threshold=5.0), random_state=0).fit(tables)
    assert [part.nnz for part in model.outliers_.values()] == [1, 0, 0, 0, 0]
    assert model.outliers_["source0"][3, 4] == pytest.approx(50, rel=0.05)
