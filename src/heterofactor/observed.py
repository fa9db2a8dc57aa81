r"""Sources some of whose entries are observed: dense with holes, or a list of what is there.

Complete data under squared loss answer with products; here every row and every column has normal
equations of its own, because each was observed in other places or, under another loss, with other
weights. What a solver asks for:

- ``majorise``: the value, and the weights and targets of a least-squares problem that lies above;
- ``scores``: the best scores for given bases, column by column;
- ``own``: the best unique bases for a given shared one, row by row;
- ``arrow``: what is left for the shared basis once the unique ones are eliminated. Row j of all
  bases together is a least-squares problem whose matrix has the form of an arrow: the shared block
  in its tip, one unique block a source on its shaft. Its Schur complements add up over sources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from array_api_compat import device

from heterofactor.linalg import Array, like, machine_epsilon, namespace, trace
from heterofactor.losses import Linked, Loss, Squared, reach
from heterofactor.sources import Dense, Source

# Normal equations are damped by so many roundings of their trace: what was never observed stays
# zero, and what cannot be told apart is divided evenly.
DAMPING = 50
# Steps towards the best constant prediction of a line under a loss other than the squared one.
LOCATING = 30
# A start is not to follow single entries: they count no more than so many typical ones.
WINSORISED = 3.0

# Scores for given bases have settled when a step changes them by less than this share.
SETTLED = 1e-10
SETTLING = 200

# Weights and targets of a least-squares problem, in the order in which the source keeps its
# entries; None for its own.
Working = tuple[Array | None, Array | None]


class Observed(Source, Protocol):
    """A source that answers for its observed entries alone; the stack is every first axis.

    Predictions are ``Z = offset + W H'``, with an offset of shape (count, n1, 1) or
    (count, 1, n2), or None. ``precision`` is what is added to the normal equations of a row or
    column: (r, r) or one for each of the stack.
    """

    @property
    def centre(self) -> Array | None:
        """The offset to begin with."""

    @property
    def counts(self) -> tuple[Array, Array]:
        """How many entries of each row, (count, n1), and column, (count, n2), are observed."""

    @property
    def share(self) -> Array:
        """The mean weight of an entry: the share of those observed, if they count one; (count,)."""

    def majorise(
        self, loss: Loss, W: Array, H: Array, offset: Array | None
    ) -> tuple[Array, Working]:
        """Return the value at Z, one for each of the stack, and the majoriser there."""

    def scores(
        self, working: Working, W: Array, offset: Array | None, precision: Array | None
    ) -> Array:
        """Return the best H, (count, n2, r)."""

    def own(
        self,
        working: Working,
        basis: Array,
        H: Array,
        offset: Array | None,
        precision: Array | None,
    ) -> Array:
        """Return the best columns of W beside `basis`, which comes first, (count, n1, rest)."""

    def arrow(
        self,
        working: Working,
        basis: Array,
        H: Array,
        offset: Array | None,
        precision: Array | None,
    ) -> tuple[Array, Array, Array]:
        """Return Schur complements (n1, r1, r1), right sides (n1, r1), and ``own`` for `basis`.

        The first two are sums over the stack. With :math:`A, C, B` the blocks of a row's normal
        matrix and :math:`a, b` those of its right side, the sums are of
        :math:`A - C B^{-1} C'` and :math:`a - C B^{-1} b`.
        """

    def longest(self, loss: Loss, W: Array, change: Array) -> Array:
        """Return for each column how much of a change of its scores is within the loss's reach."""

    def guess(self, loss: Loss) -> Source:
        """Return complete data to start from: what is not observed is at the centre."""

    def located(self, loss: Loss) -> Observed:
        """Return the source centred where the loss of a constant prediction is least."""

    def refused(self, unobservable: Callable[[Array], Array]) -> Array:
        """Return an observed entry of each that cannot have been observed; NaN if there is none."""

    def noise(self, W: Array, H: Array, offset: Array | None) -> Array:
        """Return a robust estimate of the variance of what W and H leave, one for each."""


@dataclass(frozen=True, eq=False)
class Masked:
    """Dense matrices with holes.

    Parameters
    ----------
    matrix : array of shape (count, n1, n2)
        Any finite number where nothing is observed.
    weight : array of shape (count, n1, n2), optional
        How much each entry counts: zero where it is not observed. All count one unless given.
    centre : array of shape (count, n1, 1) or (count, 1, n2), optional
        The offset to begin with.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.observed import Masked
    >>> rng = np.random.default_rng(0)
    >>> W, H = rng.normal(size=(1, 6, 2)), rng.normal(size=(1, 9, 2))
    >>> source = Masked(W @ H.mT, (rng.random((1, 6, 9)) < 0.8).astype(float))
    >>> found = source.scores((None, None), W, None, None)
    >>> value, _ = source.majorise(Squared(), W, found, None)
    >>> bool(value < 1e-20)
    True
    """

    matrix: Array
    weight: Array | None = None
    centre: Array | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many matrices, and the rows (the shared axis) and columns of each."""
        count, n1, n2 = self.matrix.shape
        return count, n1, n2

    @cached_property
    def _seen(self) -> Array:
        """One where an entry is observed, zero elsewhere."""
        xp = namespace(self.matrix)
        if self.weight is None:
            return xp.ones_like(self.matrix)
        return xp.astype(self.weight > 0, self.matrix.dtype)

    @cached_property
    def counts(self) -> tuple[Array, Array]:
        """How many entries of each row and of each column are observed."""
        xp = namespace(self.matrix)
        return xp.sum(self._seen, axis=-1), xp.sum(self._seen, axis=-2)

    @cached_property
    def share(self) -> Array:
        """The mean weight of an entry."""
        xp = namespace(self.matrix)
        return xp.mean(self._seen if self.weight is None else self.weight, axis=(-2, -1))

    @cached_property
    def energy(self) -> Array:
        """The weighted sum of squares of the observed entries, less their centre."""
        return self._weighted_sum(self._left(None, None, self.centre) ** 2)

    def weighted(self, weight: Array) -> Masked:
        """Return the source whose squared errors count by the squares of weights, one for each."""
        own = self._seen if self.weight is None else self.weight
        return replace(self, weight=own * weight[:, None, None] ** 2)

    def matmat(self, H: Array) -> Array:
        """Return the centred matrices, zero where nothing is observed, times `H`."""
        return self._filled @ H

    def rmatmat(self, W: Array) -> Array:
        """Return the transposed matrices times `W`."""
        return self._filled.mT @ W

    def normal(self, W: Array) -> Array:
        """Return ``M (M' W)``."""
        return self.matmat(self.rmatmat(W))

    @cached_property
    def _filled(self) -> Array:
        return self._left(None, None, self.centre) * self._seen

    def pull(self, loss: Loss, W: Array, H: Array) -> tuple[Array, Array, Array]:
        """Return the loss at ``centre + W H'``, its slope times `H`, its transpose times `W`."""
        if isinstance(loss, Squared):
            left = self._left(W, H, self.centre)
            slope = -left if self.weight is None else -left * self.weight
            return self._weighted_sum(left**2) / 2, slope @ H, slope.mT @ W
        Z = _predicted(self.matrix, W, H, self.centre)
        slope = loss.slope(self.matrix, Z)
        if self.weight is not None:
            slope = slope * self.weight
        return self._weighted_sum(loss.value(self.matrix, Z)), slope @ H, slope.mT @ W

    def majorise(
        self, loss: Loss, W: Array, H: Array, offset: Array | None
    ) -> tuple[Array, Working]:
        """Return the value at Z, one for each of the stack, and the majoriser there."""
        if isinstance(loss, Squared):
            return self._weighted_sum(self._left(W, H, offset) ** 2) / 2, (None, None)
        Z = _predicted(self.matrix, W, H, offset)
        weights, targets = loss.majorise(self.matrix, Z)
        if self.weight is not None:
            weights = weights * self.weight
        return self._weighted_sum(loss.value(self.matrix, Z)), (weights, targets)

    def scores(
        self, working: Working, W: Array, offset: Array | None, precision: Array | None
    ) -> Array:
        """Return the best H: one weighted least squares a column."""
        weights, targets = self._problem(working, offset)
        right = targets.mT @ W
        return _solve(_normal(None if weights is None else weights.mT, W), right, precision)

    def own(
        self,
        working: Working,
        basis: Array,
        H: Array,
        offset: Array | None,
        precision: Array | None,
    ) -> Array:
        """Return the best columns of W beside `basis`: one weighted least squares a row."""
        r1 = basis.shape[-1]
        shared, unique = H[..., :r1], H[..., r1:]
        weights, targets = self._problem(working, offset)
        fit = basis @ shared.mT
        left = targets - (fit if weights is None else weights * fit)
        return _solve(_normal(weights, unique), left @ unique, precision)

    def arrow(
        self,
        working: Working,
        basis: Array,
        H: Array,
        offset: Array | None,
        precision: Array | None,
    ) -> tuple[Array, Array, Array]:
        """Return Schur complements and right sides, summed over the stack, and ``own``."""
        xp = namespace(H)
        r1 = basis.shape[-1]
        weights, targets = self._problem(working, offset)
        gram, right = _normal(weights, H), targets @ H
        tip, side, shaft = gram[..., :r1, :r1], gram[..., r1:, :r1], gram[..., r1:, r1:]
        shaft = damped(shaft, precision)
        rest = xp.broadcast_to(right[..., r1:, None], (*right.shape[:2], right.shape[-1] - r1, 1))
        side = xp.broadcast_to(side, (*right.shape[:2], *side.shape[-2:]))
        solved = xp.linalg.solve(
            xp.broadcast_to(shaft, (*right.shape[:2], *shaft.shape[-2:])),
            xp.concat([side, rest], axis=-1),
        )
        imitated, alone = solved[..., :r1], solved[..., r1]
        schur = xp.sum(tip - side.mT @ imitated, axis=0)
        rest = xp.sum(right[..., :r1] - (side.mT @ alone[..., None])[..., 0], axis=0)
        return schur, rest, alone - (imitated @ basis[..., None])[..., 0]

    def longest(self, loss: Loss, W: Array, change: Array) -> Array:
        """Return for each column how much of a change of its scores is within the loss's reach."""
        xp = namespace(change)
        growth = xp.max((W @ change.mT) * self._seen, axis=-2)
        limit = reach(loss)
        return xp.where(growth > limit, limit / xp.where(growth > limit, growth, 1.0), 1.0)

    def guess(self, loss: Loss) -> Dense:
        """Return complete data to start from: what is not observed is at the centre.

        Entries are those of a squared loss that pulls as hard at the centre; what is observed
        makes up for what is not.
        """
        xp = namespace(self.matrix)
        if isinstance(loss, Squared):
            filled = self._filled
        else:
            Z = _predicted(self.matrix, None, None, self.centre)
            at_rest = loss.link(Z) if isinstance(loss, Linked) else Z
            curvature, _ = loss.majorise(at_rest, Z)
            filled = -loss.slope(self.matrix, Z) / curvature * self._seen
        share = xp.mean(self._seen, axis=(-2, -1), keepdims=True)
        return Dense(filled / xp.where(share > 0, share, 1.0))

    def located(self, loss: Loss) -> Masked:
        """Return the source centred where the loss of a constant prediction is least."""
        if self.centre is None or isinstance(loss, Squared):
            return self
        xp = namespace(self.matrix)
        axis = -1 if self.centre.shape[-1] == 1 else -2
        centre = self.centre
        if isinstance(loss, Linked):
            # half an answer of either kind is added, so that a line of one kind stays finite
            total = xp.sum(self.matrix * self._seen, axis=axis, keepdims=True)
            seen = xp.sum(self._seen, axis=axis, keepdims=True)
            centre = loss.unlink((total + 0.5) / (seen + 1))
        for _ in range(LOCATING):
            weights, targets = loss.majorise(
                self.matrix, _predicted(self.matrix, None, None, centre)
            )
            weights = weights * (self._seen if self.weight is None else self.weight)
            total = xp.sum(weights, axis=axis, keepdims=True)
            tiny = _tiny(total)
            step = xp.sum(weights * (targets - centre), axis=axis, keepdims=True) / (total + tiny)
            centre = centre + xp.clip(step, -reach(loss), reach(loss))
        return replace(self, centre=centre)

    def refused(self, unobservable: Callable[[Array], Array]) -> Array:
        """Return an observed entry of each that cannot have been observed; NaN if there is none."""
        xp = namespace(self.matrix)
        bad = unobservable(self.matrix) & (self._seen > 0)
        return xp.max(xp.where(bad, self.matrix, -xp.inf), axis=(-2, -1)) + xp.where(
            xp.any(bad, axis=(-2, -1)), 0.0, xp.nan
        )

    def noise(self, W: Array, H: Array, offset: Array | None) -> Array:
        """Return a robust estimate of the variance of what W and H leave, one for each.

        From the median size of the errors, with the degrees of freedom that the fit has used up
        given back.
        """
        sizes = np.abs(np.asarray(self._left(W, H, offset)))
        parameters = W.shape[-1] * (W.shape[-2] + H.shape[-2] - W.shape[-1])
        pairs = zip(sizes, np.asarray(self._seen), strict=True)
        found = [robust_variance(matrix[seen > 0], parameters) for matrix, seen in pairs]
        return like(np.asarray(found), self.matrix)

    def _left(self, W: Array | None, H: Array | None, offset: Array | None) -> Array:
        """Return what a prediction leaves of the matrices."""
        left = self.matrix if offset is None else self.matrix - offset
        return left if W is None or H is None else left - W @ H.mT

    def _weighted_sum(self, entries: Array) -> Array:
        xp = namespace(entries)
        if self.weight is not None:
            entries = entries * self.weight
        return xp.sum(entries, axis=(-2, -1))

    def _problem(self, working: Working, offset: Array | None) -> tuple[Array | None, Array]:
        """Return weights, and the targets less the offset times the weights."""
        weights, targets = working
        if targets is None:
            weights, targets = self.weight, self.matrix
        if offset is not None:
            targets = targets - offset
        return weights, targets if weights is None else targets * weights


def _predicted(example: Array, W: Array | None, H: Array | None, offset: Array | None) -> Array:
    xp = namespace(example)
    Z = xp.zeros_like(example) if W is None or H is None else W @ H.mT
    return Z if offset is None else Z + offset


def _normal(weights: Array | None, factor: Array) -> Array:
    """Return ``sum_k weights[j, k] f_k f_k'`` for every line j, as one product of matrices."""
    xp = namespace(factor)
    rank = factor.shape[-1]
    if weights is None:
        return (factor.mT @ factor)[..., None, :, :]
    if rank == 0:
        return xp.zeros((*weights.shape[:-1], 0, 0), dtype=factor.dtype, device=device(factor))
    pairs = xp.concat([factor[..., a : a + 1] * factor[..., a:] for a in range(rank)], axis=-1)
    half = weights @ pairs
    where = np.zeros((rank, rank), dtype=int)
    where[np.triu_indices(rank)] = np.arange(rank * (rank + 1) // 2)
    where = np.maximum(where, where.T)
    whole = xp.take(half, xp.asarray(where.reshape(-1), device=device(half)), axis=-1)
    return xp.reshape(whole, (*half.shape[:-1], rank, rank))


def damped(gram: Array, precision: Array | None) -> Array:
    """Add the precision, and a little more, so that every system can be solved.

    Parameters
    ----------
    gram : array of shape (count, lines, r, r)
        Normal matrices.
    precision : array of shape (r, r) or (count, r, r), optional
        For all lines of each of a stack.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.observed import damped
    >>> damped(np.zeros((1, 1, 2, 2)), None)[0, 0].tolist()  # of what nothing is known
    [[1.0, 0.0], [0.0, 1.0]]
    """
    xp = namespace(gram)
    if precision is not None:
        gram = gram + (precision if precision.ndim == 2 else precision[:, None, :, :])
    damping = DAMPING * machine_epsilon(gram) * trace(gram)
    damping = xp.where(damping > 0, damping, 1.0)
    return gram + damping[..., None, None] * like(np.eye(gram.shape[-1]), gram)


def robust_variance(sizes: np.ndarray[Any, Any], parameters: int) -> float:
    """Return the variance of errors of these sizes, which a fit of some parameters has left.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.observed import robust_variance
    >>> errors = np.random.default_rng(0).normal(size=10_000)
    >>> errors[:500] = 1000
    >>> round(robust_variance(np.abs(errors), 0), 1)
    1.1
    """
    if not sizes.size:
        return 0.0
    free = max(sizes.size - parameters, sizes.size / 10, 1)
    scale = 1.4826 * float(np.median(sizes))
    return float(scale**2 * sizes.size / free)


def _solve(gram: Array, right: Array, precision: Array | None) -> Array:
    """Solve one system for every line; all at once where they have one matrix in common."""
    xp = namespace(right)
    gram = damped(gram, precision)
    if gram.shape[1] == 1:
        return xp.linalg.solve(gram[:, 0, :, :], right.mT).mT
    return xp.linalg.solve(gram, right[..., None])[..., 0]


def _tiny(array: Array) -> float:
    return float(namespace(array).finfo(array.dtype).smallest_normal)


def every(sources: Sequence[Source]) -> list[Observed]:
    """Return sources as such of which all entries are observed, where they are complete.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.observed import every
    >>> from heterofactor.sources import Dense
    >>> every([Dense(np.ones((1, 2, 3)))])[0].shape
    (1, 2, 3)
    """
    return [as_observed(source) for source in sources]


def best_scores(
    source: Observed,
    loss: Loss,
    W: Array,
    scores: Array | None,
    offset: Array | None,
    *,
    precision: Array | None = None,
    with_offset: bool = False,
    most: int | None = None,
) -> tuple[Array, Array | None]:
    """Return the scores under which the loss is least, for bases that stay.

    Parameters
    ----------
    source : Observed
        What was observed.
    loss : Loss
        At once where it is squared, else step by step.
    W : array of shape (count, n1, r)
        The bases.
    scores : array of shape (count, n2, r), optional
        Where to begin.
    offset : array, optional
        Of the predictions.
    precision : array of shape (r, r) or (count, r, r), optional
        A ridge on the scores.
    with_offset : bool
        Find the offset of every column with its scores.
    most : int, optional
        Take no more than so many steps; until they have settled unless given.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.observed import Masked, best_scores
    >>> W, H = np.eye(4)[None, :, :2], np.arange(6.0).reshape(1, 3, 2)
    >>> found, _ = best_scores(Masked(W @ H.mT), Squared(), W, None, None)
    >>> bool(np.allclose(found, H))
    True
    """
    xp = namespace(W)
    count, _, n2 = source.shape
    rank = W.shape[-1]
    if scores is None:
        scores = xp.zeros((count, n2, rank), dtype=W.dtype, device=device(W))
    frame, fixed = W, offset
    if with_offset and offset is not None:
        frame, fixed = xp.concat([W, xp.ones_like(W[..., :1])], axis=-1), None
        scores = xp.concat([scores, xp.broadcast_to(offset, (count, 1, n2)).mT], axis=-1)
        precision = None if precision is None else _bordered(precision)
    if frame.shape[-1] == 0:
        return scores, offset
    squared = isinstance(loss, Squared)
    for _ in range(1 if squared else most or SETTLING):
        _, working = worked(source, loss, frame, scores, fixed)
        change = source.scores(working, frame, fixed, precision) - scores
        if reach(loss) < np.inf:
            change = source.longest(loss, frame, change)[..., None] * change
        scores = scores + change
        size = float(xp.max(xp.abs(scores)))
        if float(xp.max(xp.abs(change))) <= SETTLED * size:
            break
    if frame is W:
        return scores, offset
    return scores[..., :rank], scores[..., rank:].mT


def worked(
    source: Observed, loss: Loss, W: Array, H: Array, offset: Array | None
) -> tuple[Array | None, Working]:
    """Return value and majoriser; under squared loss neither is computed, for none is needed."""
    if isinstance(loss, Squared):
        return None, (None, None)
    return source.majorise(loss, W, H, offset)


def _bordered(matrix: Array) -> Array:
    """Add a row and a column of zeros."""
    xp = namespace(matrix)
    wide = xp.concat([matrix, matrix[..., :1] * 0], axis=-1)
    return xp.concat([wide, wide[..., :1, :] * 0], axis=-2)


def as_observed(source: Source) -> Observed:
    """Return a source with the answers of `Observed`: itself, or as one with every entry there."""
    if hasattr(source, "arrow"):
        return source  # type: ignore[return-value]
    if isinstance(source, Dense) and source.centre is None and source.weight is None:
        return Masked(source.matrix)
    n2 = source.shape[2]
    return Masked(source.matmat(like(np.eye(n2)[None], source.energy)))
