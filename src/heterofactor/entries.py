"""Sources as lists of what was observed, for tables most of whose entries were not.

Memory and time go with the number of observed entries. Sources of unequal width are one stack, so
that its messages are added up where they are made; the columns that a narrow one does not have are
never observed, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from heterofactor.kernels import Lines, arrow, predict, solve
from heterofactor.linalg import Array
from heterofactor.losses import Linked, Loss, Squared, reach
from heterofactor.observed import LOCATING, Working, robust_variance


@dataclass(frozen=True, eq=False)
class Entries:
    """Matrices of which only the observed entries are kept.

    Parameters
    ----------
    rows : array of shape (count * n1 + 1,)
        Where the entries of each row begin, one matrix after the other.
    columns : array of shape (entries,)
        The column of each entry; those of matrix s are counted from ``s * n2``.
    values : array of shape (entries,)
        What was observed, row by row.
    widths : tuple of int
        How many columns each matrix has; n2 is the largest of them.
    weight : array of shape (entries,), optional
        How much each entry counts; one unless given.
    centre : array of shape (count, n1, 1) or (count, 1, n2), optional
        The offset to begin with.

    Examples
    --------
    >>> import numpy as np, scipy.sparse
    >>> from heterofactor.entries import Entries
    >>> table = scipy.sparse.csr_array([[0.0, 2, 0], [1, 0, 0]])
    >>> source = Entries.stack([table, table[:, :2]])
    >>> source.shape, source.counts[0].tolist(), source.energy.tolist()
    ((2, 2, 3), [[1.0, 1.0], [1.0, 1.0]], [5.0, 5.0])
    """

    rows: Array
    columns: Array
    values: Array
    widths: tuple[int, ...]
    weight: Array | None = None
    centre: Array | None = None

    # an engine leaves threads to a source that says so
    has_threads: ClassVar[bool] = True

    @classmethod
    def stack(
        cls,
        tables: Sequence[Any],
        weights: Sequence[Array | None] | None = None,
        centre: Array | None = None,
    ) -> Entries:
        """Return sparse tables, the shared axis in rows, as one stack.

        Parameters
        ----------
        tables : sequence of scipy.sparse matrices of shape (n1, width)
            Whose stored entries were observed.
        weights : sequence of arrays, optional
            For each, how much its entries count, row by row; None where all count one.
        centre : array of shape (count, n1, 1) or (count, 1, n2), optional
            The offset to begin with.
        """
        parts = [table.tocsr() for table in tables]
        widths = tuple(int(part.shape[1]) for part in parts)
        n2, begins = max(widths), np.cumsum([0] + [part.nnz for part in parts])
        largest = max(len(parts) * max(n2, parts[0].shape[0]), int(begins[-1]))
        kind = np.int32 if largest < np.iinfo(np.int32).max else np.int64
        rows = [
            part.indptr[:-1].astype(kind) + kind(b) for part, b in zip(parts, begins, strict=False)
        ]
        columns = [part.indices.astype(kind) + kind(k * n2) for k, part in enumerate(parts)]
        weight = None
        if weights is not None and any(given is not None for given in weights):
            weight = np.concatenate(
                [
                    np.ones_like(part.data) if given is None else given
                    for part, given in zip(parts, weights, strict=True)
                ]
            )
        return cls(
            np.concatenate([*rows, begins[-1:].astype(kind)]),
            np.concatenate(columns),
            np.concatenate([part.data for part in parts]),
            widths,
            weight,
            centre,
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many matrices, their rows (the shared axis), and the columns of the widest."""
        count = len(self.widths)
        return count, (len(self.rows) - 1) // count, max(self.widths)

    @cached_property
    def _across(self) -> tuple[Array, Array, Array]:
        """Where the entries of each column begin, their rows, and their places row by row."""
        turned = self._sparse(np.arange(len(self.values), dtype=self.rows.dtype)).tocsc()
        return turned.indptr, turned.indices, turned.data

    @cached_property
    def _values_across(self) -> Array:
        """What was observed, column by column."""
        return self.values[self._across[2]]

    def _sparse(self, data: Array) -> Any:
        """Return numbers at the observed entries as one block-diagonal matrix."""
        count, n1, n2 = self.shape
        return scipy.sparse.csr_array((data, self.columns, self.rows), (count * n1, count * n2))

    @cached_property
    def counts(self) -> tuple[Array, Array]:
        """How many entries of each row and of each column are observed."""
        count, n1, n2 = self.shape
        seen = self.values.dtype.type(1) if self.weight is None else self.weight > 0
        seen = np.broadcast_to(seen, self.values.shape)
        by_column = self._sum_by(self.columns, seen, count * n2)
        return self._sum_by_row(seen).reshape(count, n1), by_column.reshape(count, n2)

    @cached_property
    def share(self) -> Array:
        """The mean weight of an entry, of the columns that a matrix has."""
        _, n1, _ = self.shape
        total = self._sum_by_matrix(np.ones_like(self.values))
        return total / (n1 * np.asarray(self.widths, dtype=total.dtype))

    @cached_property
    def energy(self) -> Array:
        """The weighted sum of squares of the observed entries, less their centre."""
        return self._sum_by_matrix(self._centred**2)

    def weighted(self, weight: Array) -> Entries:
        """Return the source whose squared errors count by the squares of weights, one for each."""
        factor = (weight**2)[self._matrix_of_each]
        return replace(self, weight=factor if self.weight is None else self.weight * factor)

    def matmat(self, H: Array) -> Array:
        """Return the centred matrices, zero where nothing is observed, times `H`."""
        count, n1, _ = self.shape
        return (self._sparse(self._centred) @ _flat(H)).reshape(count, n1, H.shape[-1])

    def rmatmat(self, W: Array) -> Array:
        """Return the transposed matrices times `W`."""
        return self._transposed(self._centred, W)

    def normal(self, W: Array) -> Array:
        """Return ``M (M' W)``."""
        return self.matmat(self.rmatmat(W))

    def _transposed(self, data: Array, W: Array) -> Array:
        count, _, n2 = self.shape
        return (self._sparse(data).T @ _flat(W)).reshape(count, n2, W.shape[-1])

    def pull(self, loss: Loss, W: Array, H: Array) -> tuple[Array, Array, Array]:
        """Return the loss at ``centre + W H'``, its slope times `H`, its transpose times `W`."""
        count, n1, _ = self.shape
        Z = self._predicted(W, H, self.centre)
        slope = loss.slope(self.values, Z)
        if self.weight is not None:
            slope = slope * self.weight
        by_W = (self._sparse(slope) @ _flat(H)).reshape(count, n1, H.shape[-1])
        return self._sum_by_matrix(loss.value(self.values, Z)), by_W, self._transposed(slope, W)

    def majorise(
        self, loss: Loss, W: Array, H: Array, offset: Array | None
    ) -> tuple[Array, Working]:
        """Return the value at Z, one for each of the stack, and the majoriser there."""
        Z = self._predicted(W, H, offset)
        value = self._sum_by_matrix(loss.value(self.values, Z))
        if isinstance(loss, Squared):
            return value, (None, None)
        weights, targets = loss.majorise(self.values, Z)
        return value, (weights if self.weight is None else weights * self.weight, targets)

    def scores(
        self, working: Working, W: Array, offset: Array | None, precision: Array | None
    ) -> Array:
        """Return the best H: one weighted least squares a column."""
        count, _, n2 = self.shape
        lines = self._lines(working, offset, across=True)
        found = solve(lines, _flat(W), self._stacked(precision, W))
        return found.reshape(count, n2, W.shape[-1])

    def own(
        self,
        working: Working,
        basis: Array,
        H: Array,
        offset: Array | None,
        precision: Array | None,
    ) -> Array:
        """Return the best columns of W beside `basis`: one weighted least squares a row."""
        count, n1, _ = self.shape
        r1 = basis.shape[-1]
        shared, unique = _flat(H[..., :r1]), _flat(H[..., r1:])
        lines = self._lines(working, offset)
        basis = np.ascontiguousarray(basis)
        found = solve(lines, unique, self._stacked(precision, H), fixed=(basis, shared))
        return found.reshape(count, n1, unique.shape[-1])

    def arrow(
        self,
        working: Working,
        basis: Array,
        H: Array,
        offset: Array | None,
        precision: Array | None,
    ) -> tuple[Array, Array, Array]:
        """Return Schur complements and right sides, summed over the stack, and ``own``."""
        basis = np.ascontiguousarray(basis)
        return arrow(self._lines(working, offset), _flat(H), self._stacked(precision, H), basis)

    def longest(self, loss: Loss, W: Array, change: Array) -> Array:
        """Return for each column how much of a change of its scores is within the loss's reach."""
        count, _, n2 = self.shape
        growth = self._predicted(W, change, None)
        limit = reach(loss)
        most = np.zeros(count * n2, growth.dtype)
        np.maximum.at(most, self.columns, growth)
        most = most.reshape(count, n2)
        return np.where(most > limit, limit / np.where(most > limit, most, 1), 1).astype(most.dtype)

    def guess(self, loss: Loss) -> Entries:
        """Return complete data to start from: what is not observed is at the centre.

        Entries are those of a squared loss that pulls as hard at the centre; what is observed
        makes up for what is not.
        """
        _, n1, _ = self.shape
        filled = self._centred
        if not isinstance(loss, Squared):
            Z = self._shift(self.centre)
            at_rest = loss.link(Z) if isinstance(loss, Linked) else Z
            curvature, _ = loss.majorise(at_rest, Z)
            filled = -loss.slope(self.values, Z) / curvature
        if self.weight is not None:
            filled = filled * (self.weight > 0)
        seen = self.counts[0].sum(axis=-1) / (n1 * np.asarray(self.widths))
        scale = 1 / np.where(seen > 0, seen, 1)
        filled = filled * scale[self._matrix_of_each].astype(filled.dtype)
        return replace(self, values=filled, weight=None, centre=None)

    def located(self, loss: Loss) -> Entries:
        """Return the source centred where the loss of a constant prediction is least."""
        if self.centre is None or isinstance(loss, Squared):
            return self
        weight = np.ones_like(self.values) if self.weight is None else self.weight
        seen = (weight > 0).astype(weight.dtype)
        centre = self.centre
        if isinstance(loss, Linked):
            # half an answer of either kind is added, so that a line of one kind stays finite
            total, number = self._by_line(self.values * seen, centre), self._by_line(seen, centre)
            centre = loss.unlink((total + 0.5) / (number + 1)).astype(self.values.dtype)
        for _ in range(LOCATING):
            Z = self._shift(centre)
            weights, targets = loss.majorise(self.values, Z)
            weights = weights * weight
            total = self._by_line(weights, centre)
            step = self._by_line(weights * (targets - Z), centre) / np.where(total > 0, total, 1)
            centre = centre + np.clip(step, -reach(loss), reach(loss))
        return replace(self, centre=centre)

    def refused(self, unobservable: Callable[[Array], Array]) -> Array:
        """Return an observed entry of each that cannot have been observed; NaN if there is none."""
        bad = unobservable(self.values)
        if self.weight is not None:
            bad = bad & (self.weight > 0)
        found = np.full(len(self.widths), np.nan)
        found[self._matrix_of_each[bad]] = self.values[bad]
        return found

    def noise(self, W: Array, H: Array, offset: Array | None) -> Array:
        """Return a robust estimate of the variance of what W and H leave, one for each."""
        sizes = np.abs(self.values - self._predicted(W, H, offset))
        _, n1, _ = self.shape
        found = []
        for first, last, width in zip(
            self._begins[:-1], self._begins[1:], self.widths, strict=True
        ):
            kept = sizes[first:last]
            if self.weight is not None:
                kept = kept[self.weight[first:last] > 0]
            rank = W.shape[-1]
            found.append(robust_variance(kept, rank * (n1 + width - rank)))
        return np.asarray(found, dtype=self.values.dtype)

    @cached_property
    def _centred(self) -> Array:
        return self.values if self.centre is None else self.values - self._shift(self.centre)

    @property
    def _begins(self) -> Array:
        """Where the entries of each matrix begin."""
        _, n1, _ = self.shape
        return self.rows[::n1]

    @property
    def _matrix_of_each(self) -> Array:
        return np.repeat(np.arange(len(self.widths)), np.diff(self._begins))

    @property
    def _row_of_each(self) -> Array:
        return np.repeat(np.arange(len(self.rows) - 1), np.diff(self.rows))

    def _shift(self, offset: Array | None) -> Array:
        """Return the offset of each entry."""
        if offset is None:
            return np.zeros_like(self.values)
        by_row = offset.shape[-1] == 1 and offset.shape[-2] == self.shape[1]
        return offset.reshape(-1)[self._row_of_each if by_row else self.columns]

    def _by_line(self, entries: Array, centre: Array) -> Array:
        """Sum entries by rows or columns, as the centre has them."""
        if centre.shape[-1] == 1 and centre.shape[-2] == self.shape[1]:
            return self._sum_by_row(entries).reshape(centre.shape)
        return self._sum_by(self.columns, entries, centre.size).reshape(centre.shape)

    def _sum_by(self, places: Array, entries: Array, length: int) -> Array:
        return np.bincount(places, entries, minlength=length).astype(self.values.dtype)

    def _sum_by_row(self, entries: Array) -> Array:
        return self._sum_by(self._row_of_each, entries, len(self.rows) - 1)

    def _sum_by_matrix(self, entries: Array) -> Array:
        if self.weight is not None:
            entries = entries * self.weight
        pairs = zip(self._begins[:-1], self._begins[1:], strict=True)
        return np.asarray([np.sum(entries[a:b]) for a, b in pairs], dtype=self.values.dtype)

    def _predicted(self, W: Array, H: Array, offset: Array | None) -> Array:
        lines = self._lines((None, None), offset)
        return predict(lines, _flat(W), _flat(H))

    def _lines(self, working: Working, offset: Array | None, *, across: bool = False) -> Lines:
        """Return the entries row by row, or column by column, with what is to be fitted."""
        weights, targets = working
        if targets is None:
            weights, targets = self.weight, self.values
        none = self.values[:0]
        by_row, by_column = none, none
        if offset is not None:
            flat = np.ascontiguousarray(offset).reshape(-1)
            if offset.shape[-1] == 1 and offset.shape[-2] == self.shape[1]:
                by_row = flat
            else:
                by_column = flat
        weights = none if weights is None else weights
        in_order = self.columns[:0]
        if not across:
            return Lines(self.rows, self.columns, in_order, weights, targets, by_row, by_column)
        indptr, other, order = self._across
        if targets is self.values and not weights.size:
            order, targets = in_order, self._values_across
        return Lines(indptr, other, order, weights, targets, by_column, by_row)

    def _stacked(self, precision: Array | None, example: Array) -> Array:
        """Return the precision of each matrix; of no size where there is none."""
        count = len(self.widths)
        if precision is None:
            return np.zeros((count, 0, 0), example.dtype)
        # a copy: of a stack of one, what is broadcast is read-only, which compiles loops anew
        return np.array(np.broadcast_to(precision, (count, *precision.shape[-2:])), order="C")


def _flat(stack: Array) -> Array:
    """Return the factors of a stack one below the other."""
    return np.ascontiguousarray(stack).reshape(stack.shape[0] * stack.shape[1], stack.shape[2])
