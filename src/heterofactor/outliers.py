r"""Outliers as a third, sparse part beside the shared and the unique one.

The trimmed loss and Huber's are squared losses of what a sparse part S leaves of the errors E, with
a price on S: on the number of its entries (S then takes up an error beyond the threshold whole), or
on their sizes (S takes up what is beyond the threshold). Both have a majoriser of weights w at most
one, and :math:`S = (1 - w) E`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
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
) -> scipy.sparse.csr_array:
    """Return the sparse part of one table: zero but where an error is beyond the threshold.

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
    >>> outliers(Trimmed(threshold=1.0), table, None, nothing, None, absent=False).toarray()
    array([[0., 7.],
           [0., 0.]])
    """
    rows, columns = (to_numpy(frame) for frame in frames)
    offset = np.zeros(columns.shape[0], rows.dtype) if centre is None else to_numpy(centre)
    if is_sparse(table) and absent:
        stored = scipy.sparse.csr_array(table)
        at_row = np.repeat(np.arange(stored.shape[0]), np.diff(stored.indptr))
        part = np.zeros_like(stored.data)
        for begin in range(0, stored.nnz, CHUNK):
            some = slice(begin, begin + CHUNK)
            places = at_row[some], stored.indices[some]
            fitted = (rows[places[0]] * columns[places[1]]).sum(axis=1) + offset[places[1]]
            part[some] = _beyond(loss, stored.data[some], fitted)
        if weight is not None:
            part *= _at_entries(stored, weight) > 0
        kept = part != 0
        places = at_row[kept], stored.indices[kept]
        return scipy.sparse.csr_array((part[kept], places), stored.shape)
    dense = table.toarray() if is_sparse(table) else to_numpy(table)
    part = _beyond(loss, dense, rows @ columns.T + offset)
    if weight is not None:
        part = part * ((weight.toarray() if is_sparse(weight) else weight) > 0)
    return scipy.sparse.csr_array(part)


def _beyond(loss: Loss, observed: Array, fitted: Array) -> Array:
    hole = np.isnan(observed)
    known = np.where(hole, fitted, observed)
    weights, _ = loss.majorise(known, fitted)
    return (1 - weights) * (known - fitted)
