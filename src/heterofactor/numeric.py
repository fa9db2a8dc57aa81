"""A table's entries as floating-point numbers, of one of two precisions, or a clear refusal."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from array_api_compat import is_array_api_obj

from heterofactor.linalg import Array, namespace


def is_sparse(table: Any) -> bool:
    """Say whether a table is one of scipy.sparse."""
    return bool(scipy.sparse.issparse(table))


def numeric(table: Any, name: Hashable, ndim: int = 2) -> Array:
    """Return a table as floating-point numbers, without a copy where it is so already.

    Parameters
    ----------
    table : array, DataFrame or scipy.sparse matrix
    name
        Of the source, for what is said of a table that cannot be taken.
    ndim : int
        The number of dimensions that it should have.

    Examples
    --------
    >>> from heterofactor.numeric import numeric
    >>> numeric([[1, 2], [3, 4]], "north").dtype
    dtype('float64')
    >>> numeric([1, 2], "north")
    Traceback (most recent call last):
        ...
    ValueError: Source 'north' has 1 dimension(s), shape (2,): expected 2, ...
    """
    if is_sparse(table):
        values = _canonical(table)
    elif isinstance(table, pd.DataFrame):
        values = _frame_values(table, name)
    elif isinstance(table, np.ma.MaskedArray):  # what is masked is missing
        values = np.ma.filled(table if table.dtype.kind == "f" else table.astype(float), np.nan)
    elif is_array_api_obj(table):
        values = table
    else:
        try:
            values = np.asarray(table)
        except ValueError as error:
            raise ValueError(f"Source {name!r} is not a table: {error}") from error
    if values.ndim != ndim:
        raise ValueError(
            f"Source {name!r} has {values.ndim} dimension(s), shape {tuple(values.shape)}: "
            f"expected {ndim}, samples in rows and features in columns. Reshape your data with "
            "X.reshape(-1, 1) if it has one feature, or X.reshape(1, -1) if it is one sample."
        )
    if min(values.shape) == 0:
        raise ValueError(
            f"Source {name!r} is empty: 0 sample(s) or 0 feature(s) (shape={tuple(values.shape)}) "
            "while a minimum of 1 is required. Leave it out."
        )
    return _floating(values, name)


def _canonical(table: Any) -> Any:
    """Return a sparse table in a format of fast products, each entry stored once."""
    values = (scipy.sparse.csc_array if table.format == "csc" else scipy.sparse.csr_array)(table)
    if not values.has_canonical_format:
        values = values.copy()
        values.sum_duplicates()
    return values


def _frame_values(table: pd.DataFrame, name: Hashable) -> Array:
    for column, dtype in table.dtypes.items():
        is_real = pd.api.types.is_numeric_dtype(dtype) and getattr(dtype, "kind", "f") != "c"
        if not is_real:
            raise ValueError(
                f"Source {name!r}: column {column!r} holds {dtype} values, not real numbers: drop "
                "it, or encode it as numbers."
            )
    dtypes = set(table.dtypes)
    plain = len(dtypes) == 1 and isinstance(dtypes.pop(), np.dtype)
    return table.to_numpy(dtype=None if plain else float, na_value=np.nan)


def _floating(values: Array, name: Hashable) -> Array:
    kind = getattr(values.dtype, "kind", None) or _kind(values)
    if kind == "c":
        raise ValueError(
            f"Source {name!r} holds complex numbers. Complex data not supported: give real and "
            "imaginary parts as features of their own."
        )
    if kind in "fbiu":
        single = kind == "f" and itemsize(values) <= 4
        return _cast(values, "float32" if single else "float64")
    try:
        if kind not in "OSU":  # dates would become numbers of days
            raise ValueError(
                "only numbers, and text or objects that can be read as such, are taken"
            )
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"Source {name!r} holds values that are not numbers ({values.dtype}): {error}."
        ) from error


def _kind(values: Array) -> str:
    xp = namespace(values)
    for kind, letter in (("complex floating", "c"), ("real floating", "f"), ("bool", "b")):
        if xp.isdtype(values.dtype, kind):
            return letter
    return "i"


def _cast(values: Array, dtype: str) -> Array:
    """Return values in another precision, without a copy where they are in it already."""
    if not is_array_api_obj(values):  # sparse, or not held in memory
        return values.astype(dtype, copy=False)
    xp = namespace(values)
    return xp.astype(values, getattr(xp, dtype), copy=False)


def one_precision(values: list[Array]) -> list[Array]:
    """Bring tables to the wider of their precisions."""
    if len({itemsize(table) for table in values}) == 1:
        return values
    return [_cast(table, "float64") for table in values]


def itemsize(values: Array) -> int:
    """Return how many bytes a floating-point entry takes."""
    if isinstance(values.dtype, np.dtype):
        return int(values.dtype.itemsize)
    return int(namespace(values).finfo(values.dtype).bits) // 8
