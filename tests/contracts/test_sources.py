"""Every kind of source keeps the contract of sources, on each of its ways through the data."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from heterofactor import sources as module
from heterofactor.checks import check_observed, check_source
from heterofactor.checks.observed import written_out
from heterofactor.entries import Entries
from heterofactor.masked import Masked
from heterofactor.observed import Observed
from heterofactor.ondisk import OnDisk
from heterofactor.sources import Dense, Gathered, Source, Sparse
from heterofactor.stored import stored

CENTRED = {"plain": None, "row means": 2, "column means": 1}
# A stack; one matrix; one so wide that its Gram matrix is kept; one that is read in blocks.
SHAPES = {
    "stack": (3, 6, 8),
    "single": (1, 9, 7),
    "gram": (2, 5, 5 * module.GRAM_RATIO),
    "blocks": (1, 200, 700),
}


def made() -> Iterator[tuple[str, Source]]:
    """Yield every kind of source, centre, weight, shape and precision, with a name."""
    for shape_name, shape in SHAPES.items():
        for centred, axis in CENTRED.items():
            for weighted in (False, True):
                for dtype in (np.float64, np.float32):
                    name = f"{shape_name}, {centred}, weighted={weighted}, {dtype.__name__}"
                    yield from in_kinds(name, shape, axis, weighted, dtype)


def in_kinds(
    name: str, shape: tuple[int, int, int], axis: int | None, weighted: bool, dtype: Any
) -> Iterator[tuple[str, Source]]:
    rng = np.random.default_rng(0)
    matrix = (rng.standard_normal(shape) + 1).astype(dtype)
    weight = rng.uniform(0.5, 2, (shape[0], 1, 1)).astype(dtype) if weighted else None
    centre = None if axis is None else matrix.mean(axis=axis, keepdims=True)
    yield f"dense, {name}", Dense(matrix, centre, weight)
    if shape[0] > 1:
        parts = [(0, 1), (1, shape[0])]
        cut = [
            [None if array is None else array[slice(*part)] for part in parts]
            for array in (matrix, centre, weight)
        ]
        yield f"gathered, {name}", Gathered([Dense(*part) for part in zip(*cut, strict=True)])
    if shape[0] == 1:
        for by_rows in (True, False):
            yield from streamed(f"by_rows={by_rows}, {name}", matrix[0], axis, weight, by_rows)
        matrix = matrix * (rng.random(shape) < 0.3)
        centre = None if axis is None else matrix.mean(axis=axis, keepdims=True)
        for kind in (scipy.sparse.csr_array, scipy.sparse.csc_array):
            yield f"{kind.__name__}, {name}", Sparse(kind(matrix[0]), centre, weight)


def streamed(
    name: str, matrix: np.ndarray, axis: int | None, weight: Any, by_rows: bool
) -> Iterator[tuple[str, Source]]:
    """Yield what is read in blocks, where the centre is one of features."""
    if axis is None or (axis == 2) == by_rows:
        table = stored(lambda: matrix.T if by_rows else matrix, "north", 0 if by_rows else 1)
        table = replace(table, block_bytes=matrix.nbytes // 3)
        centre = None
        if axis is not None:
            centre = table.moments.means.astype(matrix.dtype)
        for keeps in (True, False):
            kept = replace(table, keeps_gram=keeps)
            yield f"on disk, keeps_gram={keeps}, {name}", OnDisk(kept, centre, weight)


MADE = dict(made())


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let blocks be cut where a matrix is still small enough to be written out."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 2**14)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", MADE)
def test_source(name: str) -> None:
    check_source(MADE[name])


@pytest.mark.parametrize("axis", CENTRED.values(), ids=CENTRED)
def test_torch_source(axis: int | None) -> None:
    torch = pytest.importorskip("torch")
    matrix = np.random.default_rng(0).standard_normal((2, 6, 8))
    centre = None if axis is None else torch.asarray(matrix.mean(axis=axis, keepdims=True))
    check_source(Dense(torch.asarray(matrix), centre))


def test_a_zero_source() -> None:
    check_source(Dense(np.zeros((2, 4, 5))))


def test_every_kind_of_source_is_here() -> None:
    kinds = {
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if hasattr(kind, "pull") and kind is not Source
    }
    assert {*kinds, OnDisk} == {type(source) for source in MADE.values()}


@pytest.mark.usefixtures("small_blocks")
def test_every_way_through_the_data_is_taken() -> None:
    wide, cut = (
        MADE[f"dense, {shape}, plain, weighted=False, float64"] for shape in ("gram", "blocks")
    )
    assert isinstance(wide, Dense) and wide._gram is not None
    assert isinstance(cut, Dense) and cut._gram is None and len(list(cut._blocks())) > 1


# What was observed of two matrices, and how much it counts.
OBSERVATIONS = ("complete", "holes", "weights")
ENTRIES = ("numbers", "answers", "counts")


def observations(shape: tuple[int, int, int], which: str, what: str, dtype: Any) -> tuple[Any, Any]:
    """Return matrices, and weights that leave lines with one entry, or with none at all."""
    rng = np.random.default_rng(0)
    matrix = {
        "numbers": rng.standard_normal(shape) + 0.5,
        "answers": (rng.random(shape) < 0.6) * 1.0,
        "counts": rng.poisson(2.0, shape) * 1.0,
    }[what]
    weight = (rng.random(shape) < 0.6) * 1.0
    weight[0, 2], weight[-1, :, 1], weight[-1, 4, 1] = 0, 0, 1
    if which == "weights":
        weight *= rng.uniform(0.5, 2, shape)
    return matrix.astype(dtype), None if which == "complete" else weight.astype(dtype)


def observed_kinds(
    shape: tuple[int, int, int], which: str, what: str, axis: int | None, dtype: Any
) -> Iterator[Observed]:
    """Yield every kind of source that holds what was observed."""
    matrix, weight = observations(shape, which, what, dtype)
    centre = None if axis is None else matrix.mean(axis=axis, keepdims=True)
    yield Masked(matrix, weight, centre)
    seen = np.ones(shape) if weight is None else weight
    places = [scipy.sparse.csr_array(part > 0) for part in seen]
    tables, weights = [], []
    for part, counted, place in zip(matrix, seen, places, strict=True):
        rows, columns = place.nonzero()
        tables.append(
            scipy.sparse.csr_array((part[rows, columns], place.indices, place.indptr), shape[1:])
        )
        weights.append(counted[rows, columns])
    yield Entries.stack(tables, weights if which == "weights" else None, centre)


@pytest.mark.parametrize("what", ENTRIES)
@pytest.mark.parametrize("which", OBSERVATIONS)
@pytest.mark.parametrize("axis", CENTRED.values(), ids=CENTRED)
@pytest.mark.parametrize("shape", [(3, 6, 8), (1, 9, 7)], ids=["stack", "single"])
def test_observed_source(
    shape: tuple[int, int, int], axis: int | None, which: str, what: str
) -> None:
    for dtype in (np.float64, np.float32):
        for source in observed_kinds(shape, which, what, axis, dtype):
            check_observed(source)
            matrix, weight = observations(shape, which, what, dtype)
            found, weights = written_out(source)
            seen = np.ones(shape) if weight is None else weight
            np.testing.assert_array_equal(weights, seen)
            # written out as a sum over a weight
            np.testing.assert_allclose(found[seen > 0], matrix[seen > 0], rtol=1e-6)


@pytest.mark.parametrize("which", OBSERVATIONS)
def test_observed_torch_source(which: str) -> None:
    torch = pytest.importorskip("torch")
    matrix, weight = observations((2, 6, 8), which, "counts", np.float64)
    centre = torch.asarray(matrix.mean(axis=-1, keepdims=True))
    weight = None if weight is None else torch.asarray(weight)
    check_observed(Masked(torch.asarray(matrix), weight, centre))
