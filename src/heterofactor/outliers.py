r"""Outliers as a third, sparse part beside the shared and the unique one.

The trimmed loss and Huber's are squared losses of what a sparse part S leaves of the errors E, with
a price on S: on the number of its entries (S then takes up an error beyond the threshold whole), or
on their sizes (S takes up what is beyond the threshold). Both have a majoriser of weights w at most
one, and :math:`S = (1 - w) E`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from heterofactor.linalg import Array, to_numpy
from heterofactor.losses import Huber, Loss, Trimmed
from heterofactor.numeric import is_sparse
from heterofactor.observing import _at_entries

# Entries whose predictions are made at once, where only stored ones are observed.
CHUNK = 2**18


def has_outliers(loss: Loss) -> bool:
    """Say whether a loss leaves a sparse part.

    Examples
    --------
    >>> from heterofactor.losses import Squared, Trimmed
    >>> from heterofactor.outliers import has_outliers
    >>> has_outliers(Squared()), has_outliers(Trimmed())
    (False, True)
    """
    return isinstance(loss, Trimmed | Huber)


def outliers(
    loss: Loss,
    table: Array,
    weight: Any,
    frames: tuple[Array, Array],
    centre: Array | None,
    *,
    absent: bool,
) -> tuple[scipy.sparse.csr_array, float]:
    """Return the sparse part of one table, and how much of the errors it takes up.

    The part is zero but where an error is beyond the threshold; its share is that of the sum of
    the squared errors.

    Parameters
    ----------
    loss : Loss
        One that `has_outliers`, with its threshold.
    table : array or scipy.sparse array of shape (n_samples, n_features)
        NaN where nothing was observed.
    weight : array of a shape that fits the table, or scipy.sparse array, optional
        Zero where nothing was observed as well.
    frames : (array of shape (n_samples, r), array of shape (n_features, r))
        Whose product is what was fitted.
    centre : array of shape (n_features,), optional
        What is added to that.
    absent : bool
        Whether entries that a sparse table does not store were not observed.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Trimmed
    >>> from heterofactor.outliers import outliers
    >>> table, nothing = np.array([[0.5, 7.0], [np.nan, -0.2]]), (np.zeros((2, 0)),) * 2
    >>> part, share = outliers(Trimmed(threshold=1.0), table, None, nothing, None, absent=False)
    >>> part.toarray(), round(share, 3)
    (array([[0., 7.],
           [0., 0.]]), 0.994)
    """
    rows, columns = (to_numpy(frame) for frame in frames)
    offset = np.zeros(columns.shape[0], rows.dtype) if centre is None else to_numpy(centre)
    if is_sparse(table) and absent:
        stored = scipy.sparse.csr_array(table)
        at_row = np.repeat(np.arange(stored.shape[0]), np.diff(stored.indptr))
        left = np.zeros_like(stored.data)
        for begin in range(0, stored.nnz, CHUNK):
            some = slice(begin, begin + CHUNK)
            places = at_row[some], stored.indices[some]
            fitted = (rows[places[0]] * columns[places[1]]).sum(axis=1) + offset[places[1]]
            left[some] = stored.data[some] - fitted
        part, share = _beyond(loss, left, 1.0 if weight is None else _at_entries(stored, weight))
        kept = part != 0
        places = at_row[kept], stored.indices[kept]
        return scipy.sparse.csr_array((part[kept], places), stored.shape), share
    dense = table.toarray() if is_sparse(table) else to_numpy(table)
    counts = weight.toarray() if is_sparse(weight) else 1.0 if weight is None else weight
    part, share = _beyond(loss, dense - rows @ columns.T - offset, counts)
    return scipy.sparse.csr_array(part), share


def with_outliers(table: pd.DataFrame, shares: dict[Any, float]) -> pd.DataFrame:
    """Return a table of explained variance in which outliers are apart from the residual.

    Parameters
    ----------
    table : DataFrame
        With a column ``residual``, outliers included.
    shares : dict of float
        By source, how much of its residual the outliers are; nothing changes where it is empty.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.outliers import with_outliers
    >>> with_outliers(pd.DataFrame({"unique": [0.6], "residual": [0.4]}, ["north"]), {"north": 0.5})
           unique  outliers  residual
    north     0.6       0.2       0.2
    """
    if not shares:
        return table
    apart = table["residual"] * np.array(list(shares.values()))
    table = table.assign(residual=table["residual"] - apart)
    table.insert(list(table.columns).index("residual"), "outliers", apart)
    return table


def _beyond(loss: Loss, left: Array, weight: Any) -> tuple[Array, float]:
    """Return what is beyond the threshold of each error, and its share of all of them."""
    weight = weight * ~np.isnan(left)
    left = np.where(weight > 0, left, 0)
    weights, _ = loss.majorise(left, left * 0)
    part = (1 - weights) * left
    total = float(np.sum(weight * left**2))
    return part, float(np.sum(weight * part * (2 * left - part))) / (total or 1.0)
