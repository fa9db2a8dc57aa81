"""What users bring: lists, dicts, labelled tables, DataFrames, sparse matrices.

`read_tables` turns all of them into `Tables`, with names, row and column labels kept, and refuses
what cannot be meant.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
from array_api_compat import is_array_api_obj

from heterofactor.linalg import Array, namespace
from heterofactor.numeric import is_sparse, itemsize, numeric, one_precision
from heterofactor.stored import Stored, stored
from heterofactor.stores import is_stored, streams
from heterofactor.tables import STACKED_BYTES, SharedAxis, Tables, chosen


def is_collection(X: Any) -> bool:
    """Say whether `X` is several tables, and not one.

    A nested list of numbers is one table; scipy's dictionary-of-keys format is one as well.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.brought import is_collection
    >>> is_collection([[1, 2], [3, 4]]), is_collection([np.eye(2), np.eye(2)])
    (False, True)
    """
    if is_sparse(X):
        return False
    if isinstance(X, Mapping):
        return True
    if isinstance(X, (list, tuple)):
        return not X or len(getattr(X[0], "shape", ())) == 2 or is_stored(X[0])
    return getattr(X, "ndim", 0) == 3


def read_tables(
    X: Any, sources: Any = None, *, shared_axis: SharedAxis = "features", in_blocks: bool = False
) -> Tables:
    """Read what a user brought.

    Parameters
    ----------
    X : dict, list or tuple of tables, 3-d array, or one table
        A table is an array, a DataFrame or a scipy.sparse matrix, with samples in rows, or one
        that is not held in memory: a path, a callable, or an object that is read by slices.
    sources : array-like, optional
        For one table: the name of the source of each row (of each column where the samples are
        shared). For a list: the names of the sources.
    shared_axis : {"features", "samples"}
        Which axis the sources have in common.
    in_blocks : bool
        Read memory maps block by block, too.

    Returns
    -------
    Tables

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.brought import read_tables
    >>> tables = read_tables(np.arange(8.0).reshape(4, 2), sources=["b", "a", "b", "a"])
    >>> tables.names, tables.values[0].tolist()
    (['b', 'a'], [[0.0, 1.0], [4.0, 5.0]])
    """
    if shared_axis not in ("features", "samples"):
        raise ValueError(f"shared_axis is {shared_axis!r}: expected 'features' or 'samples'.")
    if is_collection(X):
        tables = _read_collection(X, sources, shared_axis, in_blocks)
    elif streams(X, in_blocks) and (is_stored(X) or np.ndim(sources) == 0):
        tables = _read_collection([X], _one_name(sources), shared_axis, in_blocks)
        tables = replace(tables, container="table", whole=(None, tables.columns[0]))
    else:
        tables = _read_table(X, sources, shared_axis)
    _check_shared(tables)
    return tables


def _one_name(sources: Any) -> Any:
    """Return the name of a table that cannot be taken apart, in a list."""
    if sources is not None and np.ndim(sources) != 0:
        raise ValueError(
            "sources= names the source of each row of a table that is not held in memory: give a "
            "dict with a table for each source."
        )
    return None if sources is None else [sources]


def _read_collection(
    X: Any, sources: Any, shared_axis: SharedAxis, in_blocks: bool = False
) -> Tables:
    if isinstance(X, Mapping):
        if sources is not None:
            raise ValueError(
                "X is a dict, whose keys name the sources, and sources= is given as well: "
                "leave out sources=."
            )
        names, found = list(X), list(X.values())
    else:
        found = _unstacked(X)
        names = list(range(len(found))) if sources is None else _names(sources)
        if len(names) != len(found):
            raise ValueError(
                f"sources= names {len(names)} sources, but X is a list of {len(found)} tables: "
                "give one name for each table."
            )
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"Two tables are named {twice!r}: give each source its own name.")
    if not found:
        raise ValueError("There is no source: X is empty. Give at least one table.")
    stack = None
    if getattr(X, "ndim", 0) == 3 and shared_axis == "features":
        stack = numeric(X, "X", ndim=3)
        found = _unstacked(stack)
    axis = 0 if shared_axis == "features" else 1
    values = [
        stored(table, name, axis) if streams(table, in_blocks) else numeric(table, name)
        for name, table in zip(names, found, strict=True)
    ]
    _check_library(names, values)
    return Tables(
        names,
        one_precision(values),
        [_labels(table, "index") for table in found],
        [
            value.columns if isinstance(value, Stored) else _labels(table, "columns")
            for table, value in zip(found, values, strict=True)
        ],
        shared_axis,
        "dict" if isinstance(X, Mapping) else "list",
        stack=stack,
    )


def _read_table(X: Any, labels: Any, shared_axis: SharedAxis) -> Tables:
    values = numeric(X, "X")
    index, columns = _labels(X, "index"), _labels(X, "columns")
    if labels is None:
        return Tables(
            [0], [values], [index], [columns], shared_axis, "table", whole=(index, columns)
        )
    axis, what = (0, "row") if shared_axis == "features" else (1, "column")
    length = values.shape[axis]
    if isinstance(labels, (list, tuple)):  # as they are: NumPy makes text of mixed or missing ones
        labels = pd.Series(labels, dtype=object)
    labels = np.asarray(labels)
    if labels.shape != (length,):
        raise ValueError(
            f"sources= has shape {labels.shape}, but X has {length} {what}s: give the name of the "
            f"source of each {what}."
        )
    codes, names = pd.factorize(labels)
    if (codes < 0).any():
        place = int(np.flatnonzero(codes < 0)[0])
        raise ValueError(
            f"sources= is missing for {what} {place}: give every {what} the name of its source, "
            f"or leave these {what}s out."
        )
    counts = np.bincount(codes, minlength=len(names))
    sorted_already = bool((np.diff(codes) >= 0).all())
    order = np.arange(length) if sorted_already else np.argsort(codes, kind="stable")
    positions = np.split(order, np.cumsum(counts)[:-1])
    stack = None
    if axis == 0:
        arranged = values if sorted_already else chosen(values, order, 0)
        edges = [0, *np.cumsum(counts).tolist()]
        parts = [arranged[a:b, :] for a, b in pairwise(edges)]
        small = counts[0] * values.shape[1] * itemsize(values) <= STACKED_BYTES
        if small and (counts == counts[0]).all() and not is_sparse(values):
            shape = (len(names), int(counts[0]), values.shape[1])
            stack = namespace(arranged).reshape(arranged, shape)
        rows = [None if index is None else index[p] for p in positions]
        heads = [columns] * len(names)
    else:
        parts = [chosen(values, p, 1) for p in positions]
        rows = [index] * len(names)
        heads = [None if columns is None else columns[p] for p in positions]
    # a date's tolist would be a count of nanoseconds
    names = list(names) if names.dtype.kind in "mM" else names.tolist()
    whole = (index, columns)
    return Tables(names, parts, rows, heads, shared_axis, "table", positions, stack, whole)


def _unstacked(X: Any) -> list[Any]:
    """Return the tables of a list, or of a 3-d array."""
    return list(namespace(X).unstack(X) if is_array_api_obj(X) else X)


def _names(sources: Any) -> list[Hashable]:
    """Return the names of a list of tables, as Python objects."""
    return list(sources.tolist() if hasattr(sources, "tolist") else sources)


def _labels(table: Any, which: Literal["index", "columns"]) -> pd.Index | None:
    return getattr(table, which) if isinstance(table, pd.DataFrame) else None


def _check_library(names: Sequence[Hashable], values: Sequence[Array]) -> None:
    """Refuse tables of another library than NumPy beside such as are not held in memory."""
    if not any(isinstance(value, Stored) for value in values):
        return
    for name, value in zip(names, values, strict=True):
        if not (is_sparse(value) or isinstance(value, (np.ndarray, Stored))):
            raise TypeError(
                f"Source {name!r} is a {type(value).__module__} array, but others are not held in "
                "memory and read as NumPy arrays: give all of them as such."
            )


def _check_shared(tables: Tables) -> None:
    """Refuse sources that do not share the axis they are said to share."""
    axis = 1 if tables.shared_axis == "features" else 0
    labels = tables.columns if axis == 1 else tables.index
    expected = int(tables.values[0].shape[axis])
    first, reference = next(
        (pair for pair in zip(tables.names, labels, strict=True) if pair[1] is not None),
        (None, None),
    )
    for name, table, own in zip(tables.names, tables.values, labels, strict=True):
        if table.shape[axis] != expected:
            raise ValueError(
                f"Source {name!r} has {table.shape[axis]} {tables.shared_axis}, but source "
                f"{tables.names[0]!r} has {expected}: the sources must share their "
                f"{tables.shared_axis}.{_transposed_reading(tables)}"
            )
        if reference is not None and own is not None and not own.equals(reference):
            place = next(k for k, (a, b) in enumerate(zip(reference, own, strict=True)) if a != b)
            raise ValueError(
                f"Source {name!r} names its {tables.shared_axis} differently from source "
                f"{first!r}: number {place} is {own[place]!r}, not {reference[place]!r}. Bring "
                "them into one order, for instance with "
                f"{'table[first.columns]' if axis else 'table.loc[first.index]'}."
            )


def _transposed_reading(tables: Tables) -> str:
    other, axis = ("samples", 0) if tables.shared_axis == "features" else ("features", 1)
    lengths = {int(table.shape[axis]) for table in tables.values}
    if len(lengths) > 1:
        return ""
    return f" They all have {lengths.pop()} {other}: did you mean shared_axis={other!r}?"
