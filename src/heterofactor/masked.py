"""Dense matrices with holes, or with weights: every line is a least-squares problem of its own.

The normal matrices of all lines are one product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from array_api_compat import device

from heterofactor.linalg import Array, like, namespace
from heterofactor.losses import Linked, Loss, Squared, reach
from heterofactor.observed import LOCATING, Observed, Working, damped, robust_variance
from heterofactor.sources import Dense, Source


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
    >>> from heterofactor.masked import Masked
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


def as_observed(source: Source) -> Observed:
    """Return a source with the answers of `Observed`: itself, or as one with every entry there."""
    if hasattr(source, "arrow"):
        return source  # type: ignore[return-value]
    if isinstance(source, Dense) and source.centre is None and source.weight is None:
        return Masked(source.matrix)
    n2 = source.shape[2]
    return Masked(source.matmat(like(np.eye(n2)[None], source.energy)))


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


def _solve(gram: Array, right: Array, precision: Array | None) -> Array:
    """Solve one system for every line; all at once where they have one matrix in common."""
    xp = namespace(right)
    gram = damped(gram, precision)
    if gram.shape[1] == 1:
        return xp.linalg.solve(gram[:, 0, :, :], right.mT).mT
    return xp.linalg.solve(gram, right[..., None])[..., 0]


def _tiny(array: Array) -> float:
    return float(namespace(array).finfo(array.dtype).smallest_normal)
