"""The loops over observed entries, compiled; `kernels` says what they compute, and for whom.

A *line* is a column whose scores are sought, or a row whose bases are; ``other[e]`` is the place of
entry e across. Weights, shifts and fixed parts may be empty.
Four entries are taken at a time, so that the normal matrix is loaded and stored a quarter as often.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from heterofactor.observed import DAMPING

BLOCK = 4
# Their normal matrices stay in the processor's cache.
ROWS = 64
# Products may be added without rounding in between, but nothing is reordered: the same answer
# always, whatever the number of threads.
OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract"}}


@njit(**OPTIONS)
def predict(
    first: int,
    last: int,
    indptr: Any,
    other: Any,
    shift_line: Any,
    shift_other: Any,
    W: Any,
    H: Any,
    out: Any,
) -> None:
    """Write what is predicted for the entries of lines `first` to `last`."""
    rank = W.shape[1]
    for line in range(first, last):
        shift = shift_line[line] if shift_line.size else out.dtype.type(0)
        for e in range(indptr[line], indptr[line + 1]):
            k = other[e]
            total = shift
            if shift_other.size:
                total += shift_other[k]
            for a in range(rank):
                total += W[line, a] * H[k, a]
            out[e] = total


@njit(**OPTIONS)
def _gather(
    begin_at: int,
    line: int,
    start: int,
    stop: int,
    other: Any,
    weights: Any,
    targets: Any,
    shift_line: Any,
    shift_other: Any,
    fixed: Any,
    fixed_other: Any,
    factor: Any,
    plain: Any,
    heavy: Any,
    gram: Any,
    right: Any,
) -> None:
    """Add the normal equations of one line: the lower triangle of the matrix, the right side.

    From row `begin_at` on they are begun anew; before it they are added to what is there.
    """
    rank, n_fixed = factor.shape[1], fixed_other.shape[1]
    zero = gram.dtype.type(0)
    for a in range(begin_at, rank):
        right[a] = zero
        for b in range(a + 1):
            gram[a, b] = zero
    for begin in range(start, stop, BLOCK):
        for i in range(BLOCK):
            e = begin + i
            if e >= stop:
                for a in range(rank):
                    plain[i, a] = zero
                    heavy[i, a] = zero
                continue
            k = other[e]
            target = targets[e]
            if shift_line.size:
                target -= shift_line[line]
            if shift_other.size:
                target -= shift_other[k]
            for a in range(n_fixed):
                target -= fixed[a] * fixed_other[k, a]
            if weights.size:
                weight = weights[e]
                target *= weight
                for a in range(rank):
                    f = factor[k, a]
                    plain[i, a] = f
                    heavy[i, a] = weight * f
                    right[a] += target * f
            else:
                for a in range(rank):
                    f = factor[k, a]
                    plain[i, a] = f
                    heavy[i, a] = f
                    right[a] += target * f
        for a in range(rank):
            h0, h1, h2, h3 = heavy[0, a], heavy[1, a], heavy[2, a], heavy[3, a]
            for b in range(a + 1):
                gram[a, b] += (
                    h0 * plain[0, b] + h1 * plain[1, b] + h2 * plain[2, b] + h3 * plain[3, b]
                )


@njit(**OPTIONS)
def _factored(gram: Any, begin: int, precision: Any, column: Any) -> None:
    """Replace the block from `begin` on by the lower Cholesky factor, damped a little."""
    size = gram.shape[0]
    trace = gram.dtype.type(0)
    for a in range(begin, size):
        if precision.shape[0]:
            for b in range(begin, a + 1):
                gram[a, b] += precision[a - begin, b - begin]
        trace += gram[a, a]
    damping = gram.dtype.type(DAMPING * np.finfo(gram.dtype).eps) * trace
    if damping <= 0:
        damping = gram.dtype.type(1)
    for a in range(begin, size):
        gram[a, a] += damping
    for k in range(begin, size):
        # rounding may take the last pivots of a singular matrix below what was added
        pivot = np.sqrt(max(gram[k, k], damping))
        gram[k, k] = pivot
        inverse = 1 / pivot
        for a in range(k + 1, size):
            gram[a, k] *= inverse
            column[a] = gram[a, k]
        for a in range(k + 1, size):
            share = column[a]
            for b in range(k + 1, a + 1):
                gram[a, b] -= share * column[b]


@njit(**OPTIONS)
def solve(
    first: int,
    last: int,
    indptr: Any,
    other: Any,
    weights: Any,
    targets: Any,
    shift_line: Any,
    shift_other: Any,
    fixed: Any,
    fixed_other: Any,
    factor: Any,
    precision: Any,
    out: Any,
) -> None:
    """Write the weighted least-squares solutions of lines `first` to `last`."""
    rank = factor.shape[1]
    gram, right = np.empty((rank, rank), out.dtype), np.empty(rank, out.dtype)
    plain, heavy = np.empty((BLOCK, rank), out.dtype), np.empty((BLOCK, rank), out.dtype)
    column = np.empty(rank, out.dtype)
    n_fixed, per_stack = fixed.shape[0], out.shape[0] // precision.shape[0]
    for line in range(first, last):
        start, stop = indptr[line], indptr[line + 1]
        if start == stop:
            out[line] = 0
            continue
        _gather(
            0,
            line,
            start,
            stop,
            other,
            weights,
            targets,
            shift_line,
            shift_other,
            fixed[line % n_fixed],
            fixed_other,
            factor,
            plain,
            heavy,
            gram,
            right,
        )
        _factored(gram, 0, precision[line // per_stack], column)
        for a in range(rank):
            total = right[a]
            for b in range(a):
                total -= gram[a, b] * right[b]
            right[a] = total / gram[a, a]
        for a in range(rank - 1, -1, -1):
            value = right[a] / gram[a, a]
            out[line, a] = value
            for b in range(a):
                right[b] -= gram[a, b] * value


@njit(**OPTIONS)
def _eliminate(
    gram: Any, right: Any, precision: Any, row: Any, plain: Any, column: Any, own: Any
) -> None:
    """Take the shaft out of the tip, and solve for the unique rows beside a row of the basis."""
    rank, r1 = gram.shape[0], row.shape[0]
    _factored(gram, r1, precision, column)
    # whiten: the rows of the side, and their right sides, by the factor of the shaft
    for a in range(r1, rank):
        for c in range(r1, a):
            share = gram[a, c]
            right[a] -= share * right[c]
            for b in range(r1):
                gram[a, b] -= share * gram[c, b]
        inverse = 1 / gram[a, a]
        right[a] *= inverse
        for b in range(r1):
            gram[a, b] *= inverse
    for begin in range(r1, rank, BLOCK):
        for i in range(BLOCK):
            for b in range(r1):
                plain[i, b] = gram[begin + i, b] if begin + i < rank else 0
        for a in range(r1):
            h0, h1, h2, h3 = plain[0, a], plain[1, a], plain[2, a], plain[3, a]
            for b in range(a + 1):
                gram[a, b] -= (
                    h0 * plain[0, b] + h1 * plain[1, b] + h2 * plain[2, b] + h3 * plain[3, b]
                )
    for c in range(r1, rank):
        whole = right[c]
        for a in range(r1):
            right[a] -= gram[c, a] * whole
        for a in range(r1):
            right[c] -= gram[c, a] * row[a]
    for a in range(rank - 1, r1 - 1, -1):
        value = right[a] / gram[a, a]
        own[a - r1] = value
        for b in range(r1, a):
            right[b] -= gram[a, b] * value


@njit(**OPTIONS)
def arrow(
    first: int,
    last: int,
    indptr: Any,
    other: Any,
    weights: Any,
    targets: Any,
    shift_line: Any,
    shift_other: Any,
    nothing: Any,
    factor: Any,
    precision: Any,
    basis: Any,
    schur: Any,
    rest: Any,
    own: Any,
) -> None:
    """Write what is left for rows `first` to `last` of the shared basis; add up over the stack.

    The tips of the arrows are added up in the first r1 rows of normal matrices, of some rows at a
    time: the entries of neighbouring rows of a source lie side by side.
    """
    n1, r1 = basis.shape
    rank, count, dtype = factor.shape[1], own.shape[0], schur.dtype
    grams, rights = np.empty((ROWS, rank, rank), dtype), np.empty((ROWS, rank), dtype)
    plain, heavy = np.empty((BLOCK, rank), dtype), np.empty((BLOCK, rank), dtype)
    column = np.empty(rank, dtype)
    for begin in range(first, last, ROWS):
        end = min(begin + ROWS, last)
        grams[:, :r1] = 0
        rights[:, :r1] = 0
        for source in range(count):
            for row in range(begin, end):
                line = source * n1 + row
                start, stop = indptr[line], indptr[line + 1]
                if start == stop:
                    own[source, row] = 0
                    continue
                gram, right = grams[row - begin], rights[row - begin]
                _gather(
                    r1,
                    line,
                    start,
                    stop,
                    other,
                    weights,
                    targets,
                    shift_line,
                    shift_other,
                    nothing[0],
                    nothing,
                    factor,
                    plain,
                    heavy,
                    gram,
                    right,
                )
                _eliminate(
                    gram, right, precision[source], basis[row], plain, column, own[source, row]
                )
        for row in range(begin, end):
            for a in range(r1):
                rest[row, a] = rights[row - begin, a]
                for b in range(a + 1):
                    schur[row, a, b] = grams[row - begin, a, b]
                    schur[row, b, a] = grams[row - begin, a, b]
