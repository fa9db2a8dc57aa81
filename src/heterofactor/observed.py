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

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from array_api_compat import device

from heterofactor.linalg import Array, like, machine_epsilon, namespace, trace
from heterofactor.losses import Loss, Squared, reach
from heterofactor.sources import Source

# Normal equations are damped by so many roundings of their trace: what was never observed stays
# zero, and what cannot be told apart is divided evenly.
DAMPING = 50
# Steps towards the best constant prediction of a line under a loss other than the squared one.
LOCATING = 30

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
    >>> from heterofactor.masked import Masked
    >>> from heterofactor.observed import best_scores
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
