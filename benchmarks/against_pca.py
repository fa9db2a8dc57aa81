"""HMF beside scikit-learn's PCA of the stacked table: what it costs to tell the sources apart."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measure import peak_memory, race
from report import Bound, Table
from sklearn.decomposition import PCA

from heterofactor import HMF
from heterofactor.datasets import make_heterogeneous

RANK = 3  # shared and unique; PCA gets both together
# sources, features (n1), samples (n2), and how much slower than randomised PCA HMF may be
CASES = [(100, 120, 100, 1.0), (50, 500, 1000, 0.5), (20, 2000, 2000, 0.5)]
LIMIT_TO_FASTEST = 2.0
MANY = (20_000, 50, 20)
LIMIT_OF_MANY = 4.0
LARGEST = (20, 2000, 2000)
LIMIT_OF_MEMORY = 0.25
# Above this number of multiplications a full decomposition takes minutes.
SANE = 3e10

Rows = list[dict[str, Any]]


def fit_hmf(X: Any, labels: Any = None) -> HMF:
    return HMF(RANK, RANK, tol=1e-8, random_state=0).fit(X, sources=labels)


def fit_pca(X: Any, solver: str) -> PCA:
    return PCA(2 * RANK, svd_solver=solver, random_state=0).fit(X)


def few_sources(repeats: int) -> Table:
    """Time HMF, given a dict of tables or the stacked table, and PCA of the stacked table."""
    rows: Rows = []
    for n_sources, n1, n2, limit in CASES:
        tables, X, labels = _make(n_sources, n1, n2)
        contestants = {
            "dict of tables": partial(fit_hmf, tables),
            "table + labels": partial(fit_hmf, X, labels),
        }
        rows += _race(contestants, X, f"{n_sources}, {n1}, {n2}", repeats, limit, LIMIT_TO_FASTEST)
    return Table(
        "few",
        "HMF beside PCA of the stacked table",
        "Seconds, best (median) of the repeats, on data with noise 0.1; `HMF(3, 3, tol=1e-8)` "
        "beside `PCA(6)`. Ratios are HMF's best time over PCA's, with what they should not exceed.",
        rows,
    )


def many_sources(repeats: int) -> Table:
    """Time both on very many small sources, in one table with integer labels."""
    n_sources, n1, n2 = MANY
    _, X, _ = _make(n_sources, n1, n2)
    labels = np.repeat(np.arange(n_sources), n2)
    contestants = {"table + labels": partial(fit_hmf, X, labels)}
    rows = _race(contestants, X, f"{n_sources}, {n1}, {n2}", repeats, LIMIT_OF_MANY, LIMIT_OF_MANY)
    note = "As above, for thousands of sources in one table with integer labels."
    return Table("many", "Very many small sources", note, rows)


def memory() -> Table:
    """Measure the peak above the data, in fresh processes."""
    tables, X, labels = _make(*LARGEST)
    size = X.nbytes
    with tempfile.TemporaryDirectory() as folder:
        # the data come from files: to make them takes more than any fit
        np.save(Path(folder, "labels.npy"), labels)
        np.save(Path(folder, "X.npy"), X)
        for number, table in enumerate(tables.values()):
            np.save(Path(folder, f"table{number}.npy"), table)
        del tables, X
        load_tables = partial(_load_tables, Path(folder), LARGEST[0])
        load_stack = partial(_load_stack, Path(folder))
        uses: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
            "HMF, dict of tables": (load_tables, _use_tables),
            "HMF, table + labels": (load_stack, _use_stack),
        }
        for solver in ("randomized", "covariance_eigh"):
            uses[f"PCA, {solver}"] = (load_stack, partial(_use_pca, solver))
        rows: Rows = []
        for name, (load, use) in uses.items():
            peak = peak_memory(load, _warm_up, use)
            share = peak / size
            shown = Bound(share, at_most=LIMIT_OF_MEMORY) if name.startswith("HMF") else share
            rows.append({"what": name, "peak above the data (MB)": peak / 1e6, "of data": shown})
    note = (
        f"N, n1, n2 = {', '.join(map(str, LARGEST))}: {size / 1e6:.0f} MB of data. The largest "
        "resident memory of a fresh process during the fit, less what it held with the data."
    )
    return Table("memory", "Peak memory above the data", note, rows)


def _make(n_sources: int, n1: int, n2: int) -> tuple[dict[str, Any], Any, Any]:
    data = make_heterogeneous(n_sources, n_samples=n2, n_features=n1, noise=0.1, random_state=0)
    X, labels = data.stacked()
    return data.sources, X, labels


def _pca_solvers(X: Any) -> list[str]:
    solvers = ["randomized", "covariance_eigh", "arpack"]
    return [*solvers, "full"] if X.shape[0] * X.shape[1] ** 2 <= SANE else solvers


def _race(
    contestants: Mapping[str, Callable[[], HMF]],
    X: Any,
    case: str,
    repeats: int,
    to_randomised: float,
    to_fastest: float,
) -> Rows:
    every = dict(contestants) | {name: partial(fit_pca, X, name) for name in _pca_solvers(X)}
    times = race(every, repeats)
    fastest = min(_pca_solvers(X), key=lambda name: times[name].best)
    rows: Rows = []
    for name in contestants:
        model, own = times[name].answer, times[name].best
        rows.append(
            {
                "N, n1, n2": case,
                "HMF is given": name,
                "HMF": times[name].seconds,
                "randomised PCA": times["randomized"].seconds,
                "ratio": Bound(own / times["randomized"].best, at_most=to_randomised),
                "fastest PCA": times[fastest].seconds,
                "which": fastest,
                "ratio to it": Bound(own / times[fastest].best, at_most=to_fastest),
                "rounds": model.n_rounds_,
                "relative gradient": model.diagnostics_.stationarity,
            }
        )
    return rows


def _load_tables(folder: Path, count: int) -> dict[int, Any]:
    return {number: np.load(folder / f"table{number}.npy") for number in range(count)}


def _load_stack(folder: Path) -> tuple[Any, Any]:
    return np.load(folder / "X.npy"), np.load(folder / "labels.npy")


def _use_tables(tables: dict[int, Any]) -> HMF:
    return fit_hmf(tables)


def _use_stack(loaded: tuple[Any, Any]) -> HMF:
    return fit_hmf(*loaded)


def _use_pca(solver: str, loaded: tuple[Any, Any]) -> PCA:
    return fit_pca(loaded[0], solver)


def _warm_up() -> None:
    tables, X, _ = _make(4, 300, 300)
    fit_hmf(tables)
    for solver in ("randomized", "covariance_eigh"):
        fit_pca(X, solver)
