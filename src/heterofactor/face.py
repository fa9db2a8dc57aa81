"""The scikit-learn face of all models of shared and unique parts, whatever they are made of.

How tables come in, and in which container and with which labels they go back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from heterofactor.brought import is_collection, read_tables
from heterofactor.containers import as_brought
from heterofactor.linalg import Array
from heterofactor.matching import comparable
from heterofactor.splitting import ObservedEntries, opened
from heterofactor.stores import is_stored
from heterofactor.tables import SharedAxis, Tables


class Face(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """What an estimator of many sources does with tables; a subclass has `fit` and `transform`.

    Examples
    --------
    >>> from heterofactor import HMF
    >>> from heterofactor.face import Face
    >>> issubclass(HMF, Face)
    True
    """

    shared_axis: SharedAxis
    fit: Callable[..., Self]
    transform: Callable[..., Any]

    def fit_transform(self, X: Any, y: Any = None, *, sources: Any = None) -> Any:
        """Fit, and transform the same samples; see `fit` and `transform`."""
        return self.fit(X, y, sources=sources).transform(X, sources=sources)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the container of `transform`'s output.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
            None leaves the choice as it is.
        """
        if transform is not None:
            self._chosen_output = transform
        return self

    def _read(self, X: Any, sources: Any, *, reset: bool) -> Tables:
        by_entry = isinstance(X, ObservedEntries)
        X, sources = opened(X, sources)
        in_blocks = getattr(self, "max_memory", None) is not None
        tables = read_tables(X, sources, shared_axis=self.shared_axis, in_blocks=in_blocks)
        if by_entry and tables.has_sparse and getattr(self, "missing", "nan") != "absent":
            raise ValueError(
                "Entries of sparse tables are split, and those that are absent would be taken for "
                "zeros: set missing='absent', or give dense tables."
            )
        if tables.container == "table" and not _is_foreign(X):
            # scikit-learn keeps and compares the number and the names of features
            validate_data(self, X, reset=reset, skip_check_array=True)
        elif reset and self.shared_axis == "features":
            self._remember_features(tables)
        return tables

    def _remember_features(self, tables: Tables) -> None:
        self.n_features_in_ = tables.shared_length
        names = tables.columns[0]
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _targets(self, y: Any, tables: Tables, sources: Any) -> Tables:
        """Return the tables of entries to be predicted; those of X where y is no table."""
        if not is_collection(y) and len(np.shape(y)) != 2:
            return tables
        if not is_collection(y) and sources is not None and np.ndim(sources) == 0:
            sources = np.full(np.shape(y)[0 if self.shared_axis == "features" else 1], sources)
        if isinstance(y, Mapping) and set(y) == set(tables.names):
            y = {name: y[name] for name in tables.names}
        found = read_tables(y, sources, shared_axis=self.shared_axis)
        if comparable(found, tables, refuse=is_collection(y)):
            return found
        return tables

    def __sklearn_tags__(self) -> Any:
        """Say what kinds of input are taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def brought_back(tables: Tables, parts: Sequence[Array], labels: Sequence[Any]) -> Any:
    """Return parts as tables in the container of others.

    Parameters
    ----------
    tables : Tables
        As the user brought them.
    parts : sequence of array
        One for each.
    labels : sequence of (index, columns)
        Of each, where they are not one table.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.face import brought_back
    >>> from heterofactor.brought import read_tables
    >>> tables = read_tables({"north": np.ones((1, 2))})
    >>> brought_back(tables, [np.zeros((1, 2))], [(None, None)])
    {'north': array([[0., 0.]])}
    """
    if tables.container == "table":
        return as_brought(tables.collect(parts), *tables.whole)
    pairs = zip(parts, labels, strict=True)
    return tables.collect([as_brought(part, *label) for part, label in pairs])


def _is_foreign(X: Any) -> bool:
    """Say whether scikit-learn knows nothing of what X is."""
    return is_stored(X) or (is_array_api_obj(X) and not is_numpy_array(X))
