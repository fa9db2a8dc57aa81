"""What is known of users and items beside ratings: columns of numbers, flags and categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from heterofactor.ratings.groups import aligned
from heterofactor.ratings.reading import Array, ids_of


@dataclass(frozen=True, eq=False)
class Encoding:
    """How a table of features becomes standardised columns, the same way for who comes later.

    Attributes
    ----------
    names : tuple
        The columns of the table.
    categories : tuple of Index or None
        Of each column, if it has any: every category becomes a flag.
    mean, spread : array
        Of each column, after that; those that are the same for all have a spread of zero.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.features import encoding_of
    >>> users = pd.DataFrame({"age": [20, 40], "job": ["writer", "other"]}, index=["a", "b"])
    >>> encoding_of(users, "user").names
    ('age', 'job')
    """

    names: tuple[Any, ...]
    categories: tuple[pd.Index[Any] | None, ...]
    mean: Array
    spread: Array

    def encode(self, table: pd.DataFrame, what: str) -> Array:
        """Return standardised columns; what is not known counts as the mean."""
        if missing := [name for name in self.names if name not in table.columns]:
            raise ValueError(
                f"{what}_features has no column {', '.join(map(repr, missing))}, but "
                f"{', '.join(map(repr, table.columns[:8]))}: expected those of the fit."
            )
        values = _columns(table, self.names, self.categories, what)
        known = np.where(np.isnan(values), self.mean, values)
        differs = self.spread > 0
        standard: Array = ((known - self.mean)[:, differs]) / self.spread[differs]
        return standard


def encoding_of(table: pd.DataFrame, what: str) -> Encoding:
    """Return how features are standardised, by those that are given.

    Parameters
    ----------
    table : DataFrame
        One row for each user, or item.
    what : {"item", "user"}
        For messages.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.features import encoding_of
    >>> users = pd.DataFrame({"age": [20, 40], "job": ["writer", "other"]}, index=["a", "b"])
    >>> encoding = encoding_of(users, "user")
    >>> more = pd.DataFrame({"job": ["writer", "baker"], "age": [30, None]}, index=["c", "d"])
    >>> encoding.encode(more, "user").tolist()
    [[0.0, -1.0, 1.0], [0.0, 0.0, 0.0]]
    """
    names, categories, values = columns_of(table, what)
    known = ~np.isnan(values)
    number = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, values, 0).sum(axis=0) / number
    spread = np.sqrt(np.where(known, (values - mean) ** 2, 0).sum(axis=0) / number)
    # what differs by rounding alone is the same for all
    return Encoding(names, categories, mean, np.where(spread > 1e-12 * np.abs(mean), spread, 0.0))


def columns_of(
    table: pd.DataFrame, what: str
) -> tuple[tuple[Any, ...], tuple[pd.Index[Any] | None, ...], Array]:
    """Return the names of the columns, the categories of each, and the columns of numbers they are.

    Parameters
    ----------
    table : DataFrame
        One row for each user, or item.
    what : {"item", "user"}
        For messages.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.features import columns_of
    >>> users = pd.DataFrame({"job": ["writer", None], "age": [20, 40]}, index=["a", "b"])
    >>> columns_of(users, "user")[2].tolist()
    [[20.0, 1.0], [40.0, nan]]
    """
    names = tuple(table.columns)
    if len(set(names)) < len(names):
        raise ValueError(f"{what}_features has several columns of one name: rename them.")
    categories = tuple(_categories(table[name]) for name in names)
    return names, categories, _columns(table, names, categories, what)


def read_features(given: Any, ids: pd.Index[Any], what: str) -> Array | None:
    """Return features of some ids as standardised columns.

    Parameters
    ----------
    given : DataFrame or None
        Indexed by id: numbers, flags and categories. What is not known counts as the mean.
    ids : Index
        The rows that are wanted.
    what : {"item", "user"}
        For messages.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.features import read_features
    >>> users = pd.DataFrame({"age": [20, 40], "job": ["writer", "other"]}, index=["a", "b"])
    >>> read_features(users, pd.Index(["a", "b"]), "user").tolist()
    [[-1.0, -1.0, 1.0], [1.0, 1.0, -1.0]]
    """
    if given is None:
        return None
    table = aligned(feature_table(given, what), ids, what, f"{what}_features")
    return encoding_of(table, what).encode(table, what)


def feature_table(given: Any, what: str) -> pd.DataFrame:
    """Return a table of features by id, or refuse what is none.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.features import feature_table
    >>> feature_table(pd.DataFrame({"year": [1979]}, index=["Alien"]), "item").index.tolist()
    ['Alien']
    """
    if not isinstance(given, pd.DataFrame):
        raise TypeError(
            f"{what}_features is {type(given).__name__}: expected a DataFrame indexed by {what}."
        )
    return given.set_axis(ids_of(given.index))


def _categories(column: pd.Series[Any]) -> pd.Index[Any] | None:
    """Return the categories of a column, in an order of their own; None if it holds numbers."""
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return None
    found = ids_of(column.dropna().astype(object).unique())
    order = sorted(range(len(found)), key=lambda k: (type(found[k]).__name__, repr(found[k])))
    return found[order]


def _columns(
    table: pd.DataFrame,
    names: tuple[Any, ...],
    categories: tuple[pd.Index[Any] | None, ...],
    what: str,
) -> Array:
    """Return numbers, then a flag for each category; NaN where nothing is known."""
    numbers: list[Array] = [np.zeros((len(table), 0))]
    flags: list[Array] = []
    for name, kinds in zip(names, categories, strict=True):
        if kinds is None:
            numbers.append(_numbers(table[name], what)[:, None])
        else:
            place = kinds.get_indexer(ids_of(table[name].astype(object)))
            one = (place[:, None] == np.arange(len(kinds))).astype(float)
            one[place < 0] = np.nan
            flags.append(one)
    return np.hstack(numbers + flags)


def _numbers(column: pd.Series[Any], what: str) -> Array:
    where = f"Column {column.name!r} of {what}_features"
    try:
        if pd.api.types.is_datetime64_any_dtype(column):
            raise TypeError("times")
        values = column.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where} holds {column.dtype}: expected the kind of the fit, numbers, flags or "
            "categories."
        ) from error
    if np.isinf(values).any():
        raise ValueError(f"{where} holds {values[np.isinf(values)][0]}: expected finite numbers.")
    return values
