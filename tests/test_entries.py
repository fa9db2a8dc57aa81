"""Tables of which only the observed entries are kept, beside dense ones with holes."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from heterofactor import HMF, kernels
from heterofactor.brought import read_tables
from heterofactor.datasets import make_heterogeneous
from heterofactor.entries import Entries
from heterofactor.losses import Huber, Logistic, Loss, Poisson, Squared
from heterofactor.observing import observed_sources

WIDTHS = (35, 60, 22, 48)
# Both stop at a relative gradient of 1e-10: their answers differ by no more than some of these.
TOLERANCE, CLOSE = 1e-10, 1e-7

Tables = dict[str, Any]


def with_holes(shared_axis: str, seed: int = 0) -> tuple[Tables, Tables]:
    """Make tables of unequal width, with NaN and as sparse ones."""
    data = make_heterogeneous(4, n_shared=2, n_unique=1, noise=0.1, random_state=seed)
    rng = np.random.default_rng(seed)
    dense, sparse = {}, {}
    for width, (name, table) in zip(WIDTHS, data.sources.items(), strict=True):
        table = table[:width, :40]
        if shared_axis == "samples":
            table = table.T
        hole = rng.random(table.shape) < 0.3
        dense[name] = np.where(hole, np.nan, table)
        kept = np.nonzero(~hole)
        sparse[name] = scipy.sparse.csr_array((table[kept], kept), shape=table.shape)
    return dense, sparse


def answering(tables: Tables, loss: Loss) -> Tables:
    """Turn numbers into what can be observed under a loss; holes stay."""
    if isinstance(loss, Huber):
        return tables

    def turned(m: Any) -> Any:
        return (m > 0) * 1.0 if isinstance(loss, Logistic) else np.floor(np.exp(m))

    found = {}
    for name, table in tables.items():
        if scipy.sparse.issparse(table):
            found[name] = table.copy()
            found[name].data = turned(table.data)
        else:
            found[name] = np.where(np.isnan(table), np.nan, turned(table))
    return found


@pytest.mark.parametrize("centre", ["source", "global", None])
@pytest.mark.parametrize("shared_axis", ["features", "samples"])
def test_a_sparse_table_means_what_a_table_with_holes_means(
    shared_axis: str, centre: str | None
) -> None:
    if centre == "global" and shared_axis == "samples":
        pytest.skip("a mean over all sources needs features that all share")
    dense, sparse = with_holes(shared_axis)
    settings: Any = {
        "shared_axis": shared_axis,
        "centre": centre,
        "tol": TOLERANCE,
        "random_state": 0,
    }
    one = HMF(2, 1, **settings).fit(dense)
    other = HMF(2, 1, missing="absent", **settings).fit(sparse)
    for name in dense:
        found = np.asarray(other.reconstruct(name))
        assert found.shape == dense[name].shape
        np.testing.assert_allclose(found, one.reconstruct(name), atol=CLOSE)
    np.testing.assert_allclose(one.score(dense), other.score(sparse), atol=CLOSE)


@pytest.mark.parametrize("loss", [Huber(threshold=0.3), Logistic(), Poisson()], ids=repr)
def test_other_losses_on_sparse_tables(loss: Any) -> None:
    dense, sparse = (answering(tables, loss) for tables in with_holes("features"))
    settings: Any = {"loss": loss, "random_state": 0, "ridge": 0.5, "tol": 1e-6, "max_rounds": 9999}
    one = HMF(2, 1, **settings).fit(dense).score(dense)
    other = HMF(2, 1, missing="absent", **settings).fit(sparse).score(sparse)
    # scores are off by less than the hundredfold of the tolerance, where the objective is flat
    np.testing.assert_allclose(other, one, atol=1e-4)


def test_a_fit_leaves_sparse_tables_as_they_were() -> None:
    _, sparse = with_holes("features")
    before = {name: table.copy() for name, table in sparse.items()}
    HMF(2, 1, missing="absent", loss="trimmed", random_state=0).fit(sparse)
    for name, table in sparse.items():
        np.testing.assert_array_equal(table.data, before[name].data)
        np.testing.assert_array_equal(table.indices, before[name].indices)


def test_without_numba_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _, sparse = with_holes("samples")
    model = HMF(2, 1, shared_axis="samples", missing="absent", tol=TOLERANCE, random_state=0)
    one = model.fit(sparse).reconstruct("source1")
    monkeypatch.setattr(kernels, "_compiled", lambda: None)
    np.testing.assert_allclose(model.fit(sparse).reconstruct("source1"), one, atol=CLOSE)


def test_weights_of_sparse_tables() -> None:
    dense, sparse = with_holes("features")
    rng = np.random.default_rng(1)
    weights = {name: rng.integers(0, 3, table.shape) for name, table in dense.items()}
    one = HMF(2, 1, tol=TOLERANCE, random_state=0).fit(dense, weights=weights)
    other = HMF(2, 1, missing="absent", tol=TOLERANCE, random_state=0)
    other.fit(sparse, weights=weights)
    np.testing.assert_allclose(other.reconstruct("source2"), one.reconstruct("source2"), atol=CLOSE)


def test_stored_nan_is_not_observed() -> None:
    _, sparse = with_holes("features")
    clean = {name: table.copy() for name, table in sparse.items()}
    rng = np.random.default_rng(0)
    for name, table in sparse.items():
        hidden = rng.random(table.nnz) < 0.1
        table.data[hidden] = np.nan
        kept = table.tocoo()
        seen = ~np.isnan(kept.data)
        places = kept.row[seen], kept.col[seen]
        clean[name] = scipy.sparse.csr_array((kept.data[seen], places), shape=table.shape)
    one, other = (
        HMF(2, 1, missing="absent", tol=TOLERANCE, random_state=0).fit(t) for t in (sparse, clean)
    )
    np.testing.assert_allclose(one.reconstruct("source0"), other.reconstruct("source0"), atol=CLOSE)


def test_a_stored_zero_is_observed() -> None:
    table = scipy.sparse.csr_array((np.array([0.0, 2.0]), ([0, 1], [0, 1])), shape=(2, 2))
    source = Entries.stack([table])
    assert source.counts[0].tolist() == [[1.0, 1.0]]


def test_tables_of_very_different_widths_are_not_filled_up() -> None:
    rng = np.random.default_rng(0)
    tables = {
        name: scipy.sparse.random_array((width, 30), density=0.02, rng=rng)
        for name, width in (("wide", 20_000), ("narrow", 50), ("also narrow", 60))
    }
    read = read_tables(tables)
    sources, members = observed_sources(read, [1, 1, 1], Squared(), "source", absent=True)
    assert sorted(members) == [[0], [2, 1]]
    assert [source.shape[2] for source in sources] == [20_000, 60]


def test_sparse_tables_in_single_precision_stay_so() -> None:
    _, sparse = with_holes("features")
    single = {name: table.astype(np.float32) for name, table in sparse.items()}
    model = HMF(2, 1, missing="absent", random_state=0).fit(single)
    assert model.shared_components_.dtype == np.float32
    double = HMF(2, 1, missing="absent", random_state=0).fit(sparse)
    found = model.reconstruct("source1")
    np.testing.assert_allclose(found, double.reconstruct("source1"), atol=1e-3)
