"""What solvers ask of a list of observed entries: predictions, and least squares line by line.

Each function is a loop over entries, compiled by numba (the extra ``fast``), beside which stands
its twin in plain NumPy, which is what it means; the twin runs where numba is missing. Lines are
shared out among threads, each line whole, so that the answer does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import ModuleType

import numpy as np
import scipy.sparse

from heterofactor.engines.threads import threads_for_a_source
from heterofactor.linalg import Array, namespace
from heterofactor.observed import damped

# Fewer entries than this are not worth a thread.
WORTHWHILE = 100_000
# So many shares for each thread, so that one that is slower than others takes fewer.
SHARES = 8


@dataclass(frozen=True, eq=False)
class Lines:
    """Entries in the order of the lines for which something is sought.

    Attributes
    ----------
    indptr : array of int, one more than there are lines
        Entries ``indptr[k]`` to ``indptr[k + 1]`` are those of line k.
    other : array of int
        The place of each entry across.
    place : array of int
        Where the weight and the target of each entry are; empty if they are in this order.
    weights, targets : arrays
        What is to be fitted. No weights: all count one.
    shift_line, shift_other : arrays
        What is subtracted from the targets of a line, and of a place across; empty for nothing.
    """

    indptr: Array
    other: Array
    place: Array
    weights: Array
    targets: Array
    shift_line: Array
    shift_other: Array

    @property
    def problem(self) -> tuple[Array, Array]:
        """The weights and the targets in the order of the lines.

        Picked out beforehand: within a loop each would have to be waited for.
        """
        if not self.place.size:
            return self.weights, self.targets
        weights = self.weights[self.place] if self.weights.size else self.weights
        return weights, self.targets[self.place]

    @property
    def fields(self) -> tuple[Array, ...]:
        """The arrays, as the compiled loops take them."""
        return (self.indptr, self.other, *self.problem, self.shift_line, self.shift_other)


def predict(lines: Lines, W: Array, H: Array) -> Array:
    """Return the predicted entries, in the order of the lines.

    Parameters
    ----------
    lines : Lines
        Whose shifts are added.
    W, H : array of shape (lines, r) and (places across, r)
        The factors.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.kernels import Lines, predict
    >>> none = np.zeros(0)
    >>> lines = Lines(np.array([0, 2]), np.array([0, 2]), none.astype(int), none, none, none, none)
    >>> predict(lines, np.array([[2.0]]), np.array([[1.0], [5.0], [3.0]]))
    array([2., 6.])
    """
    if (loops := _compiled()) is None:
        return predict_plain(lines, W, H)
    out = np.empty(lines.other.shape[0], W.dtype)
    arrays = (lines.indptr, lines.other, lines.shift_line, lines.shift_other, W, H, out)
    _shared_out(lambda first, last: loops.predict(first, last, *arrays), lines.indptr)
    return out


def predict_plain(lines: Lines, W: Array, H: Array) -> Array:
    """Return what `predict` does."""
    line = _line_of_each(lines.indptr)
    z = np.einsum("er,er->e", W[line], H[lines.other])
    if lines.shift_line.size:
        z = z + lines.shift_line[line]
    return z + lines.shift_other[lines.other] if lines.shift_other.size else z


def solve(
    lines: Lines,
    factor: Array,
    precision: Array,
    fixed: tuple[Array, Array] | None = None,
) -> Array:
    """Return for each line the weights on `factor` that fit its targets best.

    Parameters
    ----------
    lines : Lines
        What is to be fitted.
    factor : array of shape (places across, r)
        What it is fitted with.
    precision : array of shape (count, r, r)
        What is added to the normal matrices of the lines of each of a stack; (count, 0, 0) for
        nothing.
    fixed : pair of arrays of shape (rows, f) and (places across, f), optional
        What is already predicted: their product. Line k has row k of the first, counted anew
        after its last.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.kernels import Lines, solve
    >>> none, at = np.zeros(0), np.array([0, 1])
    >>> lines = Lines(np.array([0, 2]), at, none.astype(int), none, np.array([2.0, 4]), none, none)
    >>> solve(lines, np.array([[1.0], [2.0]]), np.zeros((1, 0, 0))).round(6)
    array([[2.]])
    """
    known, across = _nothing(factor) if fixed is None else fixed
    if (loops := _compiled()) is None:
        return solve_plain(lines, factor, precision, (known, across))
    out = np.empty((len(lines.indptr) - 1, factor.shape[1]), factor.dtype)
    arrays = (*lines.fields, known, across, factor, precision, out)
    _shared_out(lambda first, last: loops.solve(first, last, *arrays), lines.indptr)
    return out


def solve_plain(lines: Lines, factor: Array, precision: Array, fixed: tuple[Array, Array]) -> Array:
    """Return what `solve` does."""
    known, across = fixed
    rows = known[np.arange(len(lines.indptr) - 1) % len(known)]
    gram, right = _normal_equations(lines, factor, (rows, across))
    count, n_lines = precision.shape[0], len(gram)
    stacked = gram.reshape(count, n_lines // count, *gram.shape[1:])
    gram = damped(stacked, precision if precision.shape[1] else None).reshape(gram.shape)
    return np.linalg.solve(gram, right[..., None])[..., 0]


def arrow(
    lines: Lines, factor: Array, precision: Array, basis: Array
) -> tuple[Array, Array, Array]:
    """Eliminate the unique rows; see `heterofactor.observed.Observed.arrow`.

    Parameters
    ----------
    lines : Lines
        The rows of each matrix of a stack, one matrix after the other.
    factor : array of shape (places across, r)
        The shared and the unique scores, and a one for an offset.
    precision : array of shape (count, r - r1, r - r1)
        What is added to the blocks of the unique rows; (count, 0, 0) for nothing.
    basis : array of shape (n1, r1)
        The shared basis.

    Returns
    -------
    schur, rest, own
        Of shapes (n1, r1, r1), (n1, r1) and (count, n1, r - r1).

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.kernels import Lines, arrow
    >>> none, at = np.zeros(0), np.array([0, 1])
    >>> lines = Lines(np.array([0, 2]), at, none.astype(int), none, np.array([2.0, 4]), none, none)
    >>> schur, rest, own = arrow(lines, np.eye(2), np.zeros((1, 0, 0)), np.zeros((1, 1)))
    >>> schur.round(6).tolist(), rest.round(6).tolist(), own.round(6).tolist()
    ([[[1.0]]], [[2.0]], [[[4.0]]])
    """
    if (loops := _compiled()) is None:
        return arrow_plain(lines, factor, precision, basis)
    count, (n1, r1) = precision.shape[0], basis.shape
    schur = np.empty((n1, r1, r1), factor.dtype)
    rest = np.empty((n1, r1), factor.dtype)
    own = np.empty((count, n1, factor.shape[1] - r1), factor.dtype)
    arrays = (*lines.fields, _nothing(factor)[1], factor, precision, basis, schur, rest, own)
    counts = np.diff(lines.indptr).reshape(count, n1).sum(axis=0)
    ends = np.concatenate([[0], np.cumsum(counts)])
    _shared_out(lambda first, last: loops.arrow(first, last, *arrays), ends)
    return schur, rest, own


def arrow_plain(
    lines: Lines, factor: Array, precision: Array, basis: Array
) -> tuple[Array, Array, Array]:
    """Return what `arrow` does."""
    count, (n1, r1) = precision.shape[0], basis.shape
    gram, right = _normal_equations(lines, factor, None)
    gram, right = (
        gram.reshape(count, n1, *gram.shape[1:]),
        right.reshape(count, n1, factor.shape[1]),
    )
    side = gram[..., r1:, :r1]
    shaft = damped(gram[..., r1:, r1:], precision if precision.shape[1] else None)
    solved = np.linalg.solve(shaft, np.concatenate([side, right[..., r1:, None]], axis=-1))
    imitated, alone = solved[..., :r1], solved[..., r1]
    schur = (gram[..., :r1, :r1] - side.mT @ imitated).sum(axis=0)
    rest = (right[..., :r1] - (side.mT @ alone[..., None])[..., 0]).sum(axis=0)
    return schur, rest, alone - (imitated @ basis[..., None])[..., 0]


def solve_rows(gram: Array, right: Array) -> Array:
    """Solve one small system for every row, on as many threads as are free.

    Parameters
    ----------
    gram : array of shape (rows, r, r)
        Of any library; only NumPy's are shared out.
    right : array of shape (rows, r)

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.kernels import solve_rows
    >>> solve_rows(np.full((2, 1, 1), 4.0), np.array([[4.0], [8.0]])).tolist()
    [[1.0], [2.0]]
    """
    if not isinstance(gram, np.ndarray):
        return namespace(gram).linalg.solve(gram, right[..., None])[..., 0]
    found = np.empty_like(right)

    def call(first: int, last: int) -> None:
        part = slice(first, last)
        found[part] = np.linalg.solve(gram[part], right[part, :, None])[..., 0]

    _shared_out(call, np.arange(len(gram) + 1) * gram.shape[-1] ** 2)
    return found


def _normal_equations(
    lines: Lines, factor: Array, fixed: tuple[Array, Array] | None
) -> tuple[Array, Array]:
    """Return the normal matrices and right sides of all lines, by products of sparse matrices."""
    weights, targets = lines.problem
    weights = weights if weights.size else np.ones_like(targets)
    known, across = _nothing(factor, len(lines.indptr) - 1) if fixed is None else fixed
    left = targets - predict_plain(lines, known, across)
    shape = len(lines.indptr) - 1, len(factor)

    def sparse(data: Array) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array((data, lines.other, lines.indptr), shape=shape)

    rank = factor.shape[1]
    pairs = (factor[:, :, None] * factor[:, None, :]).reshape(len(factor), rank**2)
    gram = (sparse(weights) @ pairs).reshape(shape[0], rank, rank)
    return gram, sparse(weights * left) @ factor


def _nothing(factor: Array, lines: int = 1) -> tuple[Array, Array]:
    """Return a fixed part of no columns."""
    return np.zeros((lines, 0), factor.dtype), factor[:, :0]


def _line_of_each(indptr: Array) -> Array:
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


@cache
def _compiled() -> ModuleType | None:
    """Import the compiled loops where numba is installed."""
    try:
        from heterofactor import compiled
    except ImportError:
        return None
    return compiled


def _shared_out(call: Callable[[int, int], None], indptr: Array) -> None:
    """Let threads take lines of about as many entries, until none are left."""
    n_lines, entries = len(indptr) - 1, int(indptr[-1])
    workers = min(threads_for_a_source(), 1 + entries // WORTHWHILE)
    if workers == 1:
        call(0, n_lines)
        return
    aims = np.linspace(0, entries, SHARES * workers + 1)[1:-1]
    parts = pairwise([0, *np.searchsorted(indptr, aims).tolist(), n_lines])
    todo = iter(list(parts))  # next() of a list's iterator is atomic

    def work() -> None:
        for first, last in todo:
            call(first, last)

    with ThreadPoolExecutor(workers - 1) as pool:
        others = [pool.submit(work) for _ in range(workers - 1)]
        work()
        for other in others:
            other.result()
