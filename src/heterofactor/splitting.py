"""Hiding entries instead of rows, so that scikit-learn's searches can hold entries out.

scikit-learn splits what it can index and count. `ObservedEntries` are tables that are indexed and
counted by their observed entries; any part of them is a set of tables with holes again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.utils import check_random_state

from heterofactor.brought import is_collection
from heterofactor.containers import as_brought
from heterofactor.linalg import Array, like, namespace, to_numpy
from heterofactor.numeric import is_sparse, numeric

Places = np.ndarray[Any, Any]


class ObservedEntries:
    """Tables as the collection of their observed entries, for what splits collections.

    A model that is given them fits the tables with all other entries missing; `score` says how
    well the fit predicts them in the tables that were fitted. So, `GridSearchCV`,
    `cross_val_score`, `learning_curve` and every splitter of scikit-learn hold out entries instead
    of samples.

    Parameters
    ----------
    X : dict, list or tuple of tables, 3-d array, or one table
        As for `HMF.fit`. Of a scipy.sparse table, the stored entries are the observed ones, and the
        model needs ``missing="absent"``.
    sources : array-like, optional
        As for `HMF.fit`.

    Attributes
    ----------
    shape : (int,)
        How many entries there are.
    table_of, row_of : array of int
        The number of the table and of the row that each entry is in.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from heterofactor import HMF, EntryKFold, ObservedEntries
    >>> from heterofactor.datasets import make_heterogeneous
    >>> data = make_heterogeneous(
    ...     4, n_samples=40, n_features=30, n_shared=2, n_unique=1, noise=0.1, random_state=0
    ... )
    >>> entries = ObservedEntries(data.sources)
    >>> entries
    ObservedEntries(4800 entries of 4 tables)
    >>> search = GridSearchCV(HMF(n_unique=1), {"n_shared": [1, 2]}, cv=EntryKFold(3))
    >>> search.fit(entries).best_params_
    {'n_shared': 2}
    """

    def __init__(self, X: Any, sources: Any = None) -> None:
        self.X, self.sources = X, sources
        names, tables = _listed(X)
        self._values = [
            scipy.sparse.csr_array(values) if is_sparse(values) else values
            for values in (numeric(table, name) for name, table in zip(names, tables, strict=True))
        ]
        self._labels = [
            (table.index, table.columns) if isinstance(table, pd.DataFrame) else (None, None)
            for table in tables
        ]
        self._places = [_observed(values) for values in self._values]
        self._chosen = np.arange(sum(map(len, self._places)))

    @property
    def shape(self) -> tuple[int]:
        """How many entries there are."""
        return (len(self._chosen),)

    def __len__(self) -> int:
        return len(self._chosen)

    def __repr__(self) -> str:
        return f"ObservedEntries({len(self)} entries of {len(self._values)} tables)"

    def __getitem__(self, key: Any) -> ObservedEntries:
        """Return some of the entries; the others are missing there."""
        if isinstance(key, tuple):  # scikit-learn asks for [key, ...]
            key = key[0]
        part = object.__new__(ObservedEntries)
        part.__dict__.update(self.__dict__)
        part._chosen = np.atleast_1d(self._chosen[key])
        return part

    @property
    def table_of(self) -> Places:
        """The number of the table that each entry is in."""
        ends = np.cumsum([len(places) for places in self._places])
        return np.searchsorted(ends, self._chosen, side="right")

    @property
    def row_of(self) -> Places:
        """The number of the row that each entry is in."""
        rows = [_rows(*pair) for pair in zip(self._values, self._places, strict=True)]
        return np.concatenate(rows)[self._chosen]

    @property
    def tables(self) -> Any:
        """The tables with these entries, as they were given; all others are missing."""
        if len(self._chosen) == sum(map(len, self._places)):
            return self.X
        found, begin = [], 0
        chosen = np.sort(self._chosen)
        for values, places, label in zip(self._values, self._places, self._labels, strict=True):
            end = begin + len(places)
            low, high = np.searchsorted(chosen, [begin, end])
            kept = places[chosen[low:high] - begin]
            found.append(as_brought(_with_holes(values, kept), *label))
            begin = end
        if isinstance(self.X, Mapping):
            return dict(zip(self.X, found, strict=True))
        return found if is_collection(self.X) else found[0]


@dataclass(frozen=True)
class EntryKFold:
    """Hide a part of the entries at a time: every entry once, and some of each row.

    The entries of each row are dealt out to the folds at random, so that a row keeps its share of
    them in every fold, and none (of two entries or more) loses all.

    Parameters
    ----------
    n_splits : int
        How many folds.
    random_state : int, RandomState or None
        Same seed, same folds.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor import HMF, EntryKFold, ObservedEntries
    >>> entries = ObservedEntries(np.outer(np.arange(1.0, 7), [3, 1, 2, 5, 4]))
    >>> model = HMF(n_shared=1, n_unique=0)
    >>> for train, test in EntryKFold(n_splits=3, random_state=0).split(entries):
    ...     score = model.fit(entries[train]).score(entries[test])
    ...     print(len(train), np.isnan(entries[train].tables).sum(), round(score, 6))
    20 10 1.0
    20 10 1.0
    20 10 1.0
    """

    n_splits: int = 5
    random_state: Any = None

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Places, Places]]:
        """Yield the numbers of the entries that are kept and of those that are hidden.

        Parameters
        ----------
        X : ObservedEntries
            What is to be split.
        y, groups : None
            Not used.
        """
        if not isinstance(X, ObservedEntries):
            raise TypeError(
                f"EntryKFold splits entries, but X is a {type(X).__name__}, of which rows would be "
                "split: give ObservedEntries(X), here and to the search."
            )
        if not 2 <= self.n_splits <= len(X):
            raise ValueError(
                f"n_splits is {self.n_splits!r}: expected at least 2, and no more than the "
                f"{len(X)} entries."
            )
        rng = check_random_state(self.random_state)
        order = np.lexsort((rng.permutation(len(X)), X.row_of, X.table_of))
        fold = np.empty(len(X), dtype=int)
        fold[order] = np.arange(len(X)) % self.n_splits
        for number in range(self.n_splits):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds.

        Parameters
        ----------
        X, y, groups
            Not used.
        """
        return self.n_splits


def opened(X: Any, sources: Any) -> tuple[Any, Any]:
    """Return tables and their labels; entries are brought back into their tables.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.splitting import ObservedEntries, opened
    >>> opened(ObservedEntries(np.ones((1, 3)))[:2], None)
    (array([[ 1.,  1., nan]]), None)
    """
    if not isinstance(X, ObservedEntries):
        return X, sources
    if sources is not None:
        raise ValueError(
            "sources= is given beside ObservedEntries: give it to these, as in "
            "ObservedEntries(X, sources)."
        )
    return X.tables, X.sources


def _listed(X: Any) -> tuple[list[Hashable], list[Any]]:
    if isinstance(X, Mapping):
        return list(X), list(X.values())
    tables = list(X) if is_collection(X) else [X]
    return list(range(len(tables))), tables


def _observed(values: Array) -> Places:
    """Return the places of the observed entries: in the table row by row, or among those stored."""
    entries = values.data if is_sparse(values) else to_numpy(values)
    return np.flatnonzero(~np.isnan(entries))


def _rows(values: Array, places: Places) -> Places:
    if is_sparse(values):
        return np.searchsorted(values.indptr, places, side="right") - 1
    return places // int(values.shape[1])


def _with_holes(values: Array, kept: Places) -> Array:
    """Return a table with no entries but those at some places."""
    if is_sparse(values):
        rows, columns = _rows(values, kept), values.indices[kept]
        return scipy.sparse.csr_array((values.data[kept], (rows, columns)), shape=values.shape)
    hidden = np.ones(tuple(values.shape))
    hidden.reshape(-1)[kept] = 0
    xp = namespace(values)
    return xp.where(like(hidden, values) > 0, xp.nan, values)
