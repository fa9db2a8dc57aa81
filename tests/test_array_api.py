"""Arrays of any library of the array API standard go through and come back as what they were.

array-api-strict is the judge: it has what the standard has, and nothing more.
"""

import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from heterofactor import HMF
from heterofactor import sources as module
from heterofactor.brought import read_tables
from heterofactor.checks import check_source
from heterofactor.datasets import make_heterogeneous
from heterofactor.linalg import to_numpy
from heterofactor.sources import Dense
from heterofactor.start import CLEAR

# Strict arrays are NumPy's underneath: the same operations in nearly the same order.
EXACT = 1e-10
# torch adds up in another order, and a fit is as exact as its relative gradient of 1e-8 at the end;
# in single precision it ends near 1e-5.
WITHIN = {"float64": 1e-6, "float32": 1e-2}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "scaled": {"scale": "source"},
    "global centre": {"centre": "global"},
    "no centre": {"centre": None},
    "restarts": {"n_restarts": 1, "engine": "serial"},
    "unequal ranks": {"n_unique": [1, 0, 2, 2]},
    "nothing shared": {"n_shared": 0},
    "averaging": {"solver": "averaging", "tol": 1e-3, "max_rounds": 300},
    "samples": {"shared_axis": "samples"},
    "samples, scaled": {"shared_axis": "samples", "scale": "source"},
    "samples, no centre": {"shared_axis": "samples", "centre": None},
    "samples, averaging": {
        "shared_axis": "samples",
        "solver": "averaging",
        "tol": 1e-3,
        "max_rounds": 300,
    },
}
LABELS = np.tile(["c", "a", "d", "b"], 12)


def dict_of_arrays(tables: list[np.ndarray], wrap: Callable) -> tuple[Any, Any]:
    return {f"source{k}": wrap(table) for k, table in enumerate(tables)}, None


def list_of_arrays(tables: list[np.ndarray], wrap: Callable) -> tuple[Any, Any]:
    return [wrap(table) for table in tables], None


def three_dimensions(tables: list[np.ndarray], wrap: Callable) -> tuple[Any, Any]:
    return wrap(np.stack(tables)), None


def labelled_rows(tables: list[np.ndarray], wrap: Callable) -> tuple[Any, Any]:
    return wrap(np.stack(tables, axis=1).reshape(48, -1)), LABELS


def sorted_rows(tables: list[np.ndarray], wrap: Callable) -> tuple[Any, Any]:
    return wrap(np.concatenate(tables)), np.sort(LABELS)


def labelled_columns(tables: list[np.ndarray], wrap: Callable) -> tuple[Any, Any]:
    return wrap(np.stack(tables, axis=2).reshape(-1, 48)), LABELS


def arrangements(shared_axis: str) -> list[Callable]:
    every = [dict_of_arrays, list_of_arrays, three_dimensions]
    return every + (
        [labelled_columns] if shared_axis == "samples" else [labelled_rows, sorted_rows]
    )


CASES = [
    pytest.param(settings, arrange, id=f"{name}-{arrange.__name__}")
    for name, settings in SETTINGS.items()
    for arrange in arrangements(settings.get("shared_axis", "features"))
]
# Rounding decides which of two starts that end in the same place is called the better one.
CASES_WITHOUT_TIES = [case for case in CASES if "n_restarts" not in case.values[0]]


@pytest.fixture
def strict() -> ModuleType:
    return pytest.importorskip("array_api_strict")


def tables(seed: int, shared_axis: str = "features", **options: Any) -> list[np.ndarray]:
    """Return five tables of twelve samples and nine features (or the other way round)."""
    options = {"noise": 0.1, **options}
    data = make_heterogeneous(5, 12, 9, n_shared=2, n_unique=2, **options, random_state=seed)
    rows = list(data.sources.values())
    return rows if shared_axis == "features" else [table.T for table in rows]


def everything(X: Any, sources: Any, new: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return all that a model answers, for a fit of `X` and `new`, a source more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few rounds are enough to compare
        model = HMF(**{"n_shared": 2, "n_unique": 2, "random_state": 0, **settings})
        model.fit(X, sources=sources)
    names = model.source_names_
    found = {
        "shared components": model.shared_components_,
        "unique components": model.unique_components_,
        "centres": model.centres_,
        "scores": model.transform(X, sources=sources),
        "parts": model.transform_parts(X, sources=sources),
        "score": model.score(X, sources=sources),
        "table": model.reconstruct(names[1]),
        "tables": model.reconstruct(),
        "shared": model.reconstruct(part="shared"),
        "unique": model.reconstruct(part="unique"),
        "variance": model.explained_variance_,
        "shares": model.explained_variance_ratio_,
        "components": model.factors_.component_variance(),
        "stationarity": model.diagnostics_.stationarity,
        "misalignment": model.diagnostics_.misalignment,
        "agreement": model.diagnostics_.agreement,
    }
    if model.shared_axis == "features":
        found["one source"] = model.transform(new, sources=names[0])
        with pytest.warns(UserWarning, match="was not in the fit"):
            found["unseen"] = model.transform(new, sources="new")
    model.add_source("new", new, n_unique=1)
    return found | {
        "new basis": model.unique_components_["new"],
        "new table": model.reconstruct("new"),
        "new variance": model.explained_variance_,
    }


def assert_alike(found: Any, expected: Any, kind: type, within: float, what: str) -> None:
    """Check that containers are the same, and arrays in them of a kind and equal to NumPy's."""
    if isinstance(expected, np.ndarray):
        assert isinstance(found, kind), f"{what} is of {type(found)}"
        np.testing.assert_allclose(to_numpy(found), expected, rtol=0, atol=within, err_msg=what)
        return
    assert type(found) is type(expected), what
    if isinstance(expected, Mapping):
        assert list(found) == list(expected), what
        for name in expected:
            assert_alike(found[name], expected[name], kind, within, f"{what}, {name}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), what
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_alike(one, other, kind, within, f"{what}, {place}")
    elif isinstance(expected, pd.DataFrame):
        scale = max(1.0, float(np.nanmax(np.abs(expected.to_numpy()), initial=0)))
        pd.testing.assert_frame_equal(found, expected, rtol=0, atol=within * scale)
    elif expected is not None:
        assert found == pytest.approx(expected, rel=0, abs=within), what


@pytest.mark.parametrize(("settings", "arrange"), CASES)
def test_strict_arrays_go_through_and_come_back(
    strict: ModuleType, settings: dict[str, Any], arrange: Callable, seed: int
) -> None:
    axis = settings.get("shared_axis", "features")
    *fitted, new = tables(seed, axis)
    found, expected = (
        everything(*arrange(fitted, wrap), wrap(new), settings)
        for wrap in (strict.asarray, np.asarray)
    )
    assert_alike(found, expected, type(strict.asarray(0.0)), EXACT, "the model")


def test_strict_arrays_go_through_where_the_start_is_in_doubt(
    strict: ModuleType, seed: int
) -> None:
    *fitted, new = tables(seed, alignment=0.0, noise=2.0)
    found, expected = (
        everything(*list_of_arrays(fitted, wrap), wrap(new), {"max_rounds": 30})
        for wrap in (strict.asarray, np.asarray)
    )
    assert expected["agreement"] < CLEAR
    assert_alike(found, expected, type(strict.asarray(0.0)), EXACT, "the model")


def test_strict_single_precision_stays_single(strict: ModuleType, seed: int) -> None:
    fitted = [strict.asarray(table, dtype=strict.float32) for table in tables(seed)]
    model = HMF(2, 2, random_state=0).fit(fitted)
    for array in (model.shared_components_, model.reconstruct(0), *model.transform(fitted)):
        assert array.dtype == strict.float32


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8"])
def test_strict_integers_are_read_as_numbers(strict: ModuleType, dtype: str) -> None:
    values = strict.asarray(np.arange(6).reshape(2, 3) % 2, dtype=getattr(strict, dtype))
    (found,) = read_tables(values).values
    assert found.dtype == strict.float64


def test_strict_entries_that_are_not_finite_are_named(strict: ModuleType) -> None:
    table = np.ones((3, 2))
    table[1, 0] = np.inf
    with pytest.raises(ValueError, match="infinity: 1 of its entries, the first in row 1, col"):
        read_tables(strict.asarray(table)).complete  # noqa: B018


def test_strict_arrays_become_pandas_where_asked(strict: ModuleType) -> None:
    fitted = [strict.asarray(table) for table in tables(0)]
    model = HMF(2, 2, random_state=0).set_output(transform="pandas").fit(fitted)
    assert all(isinstance(scores, pd.DataFrame) for scores in model.transform(fitted))


@pytest.mark.parametrize("axis", [None, 1, 2], ids=["plain", "column means", "row means"])
@pytest.mark.parametrize("shape", [(2, 6, 8), (1, 5, 30), (1, 200, 700)], ids=str)
def test_strict_sources_keep_the_contract(
    strict: ModuleType, axis: int | None, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 2**14)
    matrix = np.random.default_rng(0).standard_normal(shape)
    centre = None if axis is None else strict.asarray(matrix.mean(axis=axis, keepdims=True))
    check_source(Dense(strict.asarray(matrix), centre))


@pytest.mark.parametrize(("settings", "arrange"), CASES_WITHOUT_TIES)
@pytest.mark.parametrize("dtype", WITHIN)
def test_torch_goes_through_and_comes_back(
    settings: dict[str, Any], arrange: Callable, dtype: str
) -> None:
    torch = pytest.importorskip("torch")
    *fitted, new = tables(0, settings.get("shared_axis", "features"))
    found, expected = (
        everything(*arrange(fitted, wrap), wrap(new), settings)
        for wrap in (lambda table: torch.tensor(table, dtype=getattr(torch, dtype)), np.asarray)
    )
    assert found["shared components"].dtype == getattr(torch, dtype)
    assert_alike(found, expected, torch.Tensor, WITHIN[dtype], "the model")
