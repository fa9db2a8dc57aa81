"""Which source of a fit each new table is of, and whether its features are those of the fit."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from heterofactor.tables import Tables


def matched(tables: Tables, known: Sequence[Hashable], named: bool) -> list[Any]:
    """Return the name of each table's source; None for a source never seen.

    Parameters
    ----------
    tables : Tables
        New samples.
    known : sequence
        The names of the sources of the fit.
    named : bool
        Whether the user has named the sources apart from the tables.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.matching import matched
    >>> from heterofactor.brought import read_tables
    >>> matched(read_tables(np.ones((2, 3))), ["north"], False)
    ['north']
    >>> matched(read_tables(np.ones((2, 3))), ["north", "south"], False)
    [None]
    """
    by_features = tables.shared_axis == "features"
    if named or tables.container == "dict":
        unseen = [name for name in tables.names if name not in known]
        if unseen and by_features:
            warnings.warn(
                f"Source {unseen[0]!r} was not in the fit, whose sources are {_some(known)}: its "
                "samples get shared scores only. Add it with add_source.",
                stacklevel=4,
            )
            return [name if name in known else None for name in tables.names]
        check_known(tables.names, known)
        return tables.names
    if tables.container == "list" and len(tables.names) != len(known):
        raise ValueError(
            f"X is a list of {len(tables.names)} tables, but the fit has {len(known)} sources: "
            "give one table for each, or a dict of tables by name."
        )
    if len(tables.names) == len(known):
        return list(known)
    if not by_features:
        raise ValueError(
            "Where the samples are shared, new samples need to say which columns are of which "
            "source: give a dict of tables, or sources=."
        )
    return [None]


def check_known(names: Sequence[Any], known: Sequence[Hashable]) -> None:
    """Refuse names that are no sources of the fit.

    Examples
    --------
    >>> from heterofactor.matching import check_known
    >>> check_known(["west"], ["north", "south"])
    Traceback (most recent call last):
    ValueError: There is no source 'west' in the fit; its sources are 'north', 'south'. Add it ...
    """
    for name in names:
        if name not in known:
            raise ValueError(
                f"There is no source {name!r} in the fit; its sources are {_some(known)}. Add it "
                "with add_source."
            )


def check_features(
    tables: Tables, place: int, expected: int, columns: pd.Index | None, model: str
) -> None:
    """Refuse a table whose features are not those of the fit.

    Parameters
    ----------
    tables : Tables
        New samples.
    place : int
        Of the table.
    expected : int
        How many features the source of the fit has.
    columns : pandas.Index, optional
        Their names.
    model : str
        The name of the class.
    """
    table, found = tables.values[place], tables.columns[place]
    if table.shape[1] != expected:
        raise ValueError(
            f"X has {table.shape[1]} features, but {model} is expecting {expected} features as "
            "input."
        )
    if found is not None and columns is not None and not found.equals(columns):
        first = int(np.argmax([a != b for a, b in zip(found, columns, strict=True)]))
        raise ValueError(
            "The feature names should match those that were passed during fit: number "
            f"{first} is {found[first]!r}, not {columns[first]!r}. Bring the columns into the "
            "order of the fit."
        )


def comparable(targets: Tables, tables: Tables, *, refuse: bool) -> bool:
    """Say whether tables of entries to be predicted fit the tables of samples.

    Parameters
    ----------
    targets, tables : Tables
        To be of the same names and shapes.
    refuse : bool
        Raise an error where they are not.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.matching import comparable
    >>> from heterofactor.brought import read_tables
    >>> one, other = (read_tables(np.ones((2, n))) for n in (3, 4))
    >>> comparable(one, one, refuse=False), comparable(one, other, refuse=False)
    (True, False)
    """
    targets.complete  # noqa: B018 - refuses what is infinite
    shapes, wanted = ([t.shape for t in which.values] for which in (targets, tables))
    fits = shapes == wanted and (targets.container != "dict" or targets.names == tables.names)
    if refuse and not fits:
        found, expected = (
            ", ".join(
                f"{name!r} {tuple(map(int, table.shape))}"
                for name, table in zip(which.names[:5], which.values, strict=False)
            )
            for which in (targets, tables)
        )
        raise ValueError(
            f"y= has the tables {found}, but X has {expected}: give the entries to be predicted in "
            "tables of the same names and shapes, NaN for all others."
        )
    return fits


def _some(known: Sequence[Hashable]) -> str:
    return ", ".join(map(repr, known[:10]))
