r"""What lowers the penalty of a ridge at no cost: the prediction stays as it is.

Bases and scores can be turned against each other, :math:`U T` and :math:`V T^{-\top}`; a unique
basis can take up some of the shared one, :math:`U_i + U A`, if the shared scores give it away,
:math:`V_i - W_i A^\top`; and offsets can take up means. The best of each is known in closed form,
while alternation would come to it very slowly: these are the directions in which only the ridge is
felt.
"""

from __future__ import annotations

from typing import Literal

from heterofactor.linalg import Array, beside, machine_epsilon, namespace
from heterofactor.rounds import State

Offsets = Literal["rows", "columns"] | None


def eased(
    ridge: tuple[float, float],
    offsets: Offsets,
    basis: Array,
    balance: Array,
    own: Array,
    point: State,
) -> tuple[Array, State]:
    """Return the unique rows of a source after easing, its scores and its offset.

    Parameters
    ----------
    ridge : (float, float)
        Of shared and unique factors.
    offsets : {"rows", "columns"}, optional
        Which of them are fitted.
    basis : array of shape (n1, n_shared)
        The shared basis, before the server levels and turns it.
    balance : array of shape (n_shared, n_shared)
        By what the server turns it.
    own : array of shape (count, n1, n_unique) or (count, n1, n_unique + 1)
        The unique rows; with the offset of the row, where rows have one.
    point : dict of arrays
        The ``scores`` and, where columns have one, the ``offset``.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.solvers.easing import eased
    >>> basis, own, scores = np.ones((3, 1)), 8 * np.ones((1, 3, 1)), np.ones((1, 5, 2))
    >>> scores[0, 0] = -4.0, 2.0
    >>> unique, after = eased((1.0, 1.0), None, basis, np.eye(1), own, {"scores": scores})
    >>> before = basis @ scores[..., :1].mT + own @ scores[..., 1:].mT
    >>> bool(np.allclose(basis @ after["scores"][..., :1].mT + unique @ after["scores"][..., 1:].mT,
    ...                  before))
    True
    >>> bool(np.sum(unique**2) + np.sum(after["scores"]**2) < np.sum(own**2) + np.sum(scores**2))
    True
    """
    xp, r1, scores = namespace(own), basis.shape[-1], point["scores"]
    rank = scores.shape[-1] - r1
    unique, constant = own[..., :rank], own[..., rank:]
    moved: State = {}
    if offsets == "columns":
        means = [xp.mean(part, axis=-2, keepdims=True) for part in (basis, unique)]
        taken = means[0] @ scores[..., :r1].mT + means[1] @ scores[..., r1:].mT
        moved["offset"] = point["offset"] + taken
        unique = unique - means[1]
    basis = level(basis, offsets) @ balance
    turn = balanced(gram(unique), gram(scores[..., r1:]))
    unique = unique @ turn
    shared = xp.linalg.solve(balance, scores[..., :r1].mT).mT
    theirs = xp.linalg.solve(turn, scores[..., r1:].mT).mT
    shift = shifted(ridge, basis, unique, shared, theirs)
    unique, shared = unique + basis @ shift, shared - theirs @ shift.mT
    if offsets == "rows":
        means = [xp.mean(part, axis=-2, keepdims=True) for part in (shared, theirs)]
        constant = constant + basis @ means[0].mT + unique @ means[1].mT
        shared, theirs = shared - means[0], theirs - means[1]
    moved["scores"] = beside([shared, theirs])
    return beside([unique, constant]), moved


def level(basis: Array, offsets: Offsets) -> Array:
    """Take out the mean over the rows, where an offset for each column takes it up."""
    if offsets != "columns":
        return basis
    return basis - namespace(basis).mean(basis, axis=-2, keepdims=True)


def balanced(bases: Array, scores: Array) -> Array:
    r"""Return the turn T under which :math:`|UT|^2 + |VT^{-\top}|^2` is least.

    Parameters
    ----------
    bases, scores : array of shape (..., rank, rank)
        The matrices of inner products, :math:`U^\top U` and :math:`V^\top V`.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.solvers.easing import balanced
    >>> balanced(np.diag([1.0, 4.0]), np.diag([16.0, 4.0])).round(6).tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """
    if bases.shape[-1] == 0:
        return bases
    root, inverse = _power(bases, 0.5), _power(bases, -0.5)
    return inverse @ _power(root @ scores @ root, 0.25)


def shifted(ridge: tuple[float, float], U: Array, Ui: Array, V: Array, Vi: Array) -> Array:
    r"""Return A under which :math:`\lambda_u |U_i + UA|^2 + \lambda_s |V - V_i A^\top|^2` is least.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.solvers.easing import shifted
    >>> one = np.ones((1, 1))
    >>> shifted((1.0, 1.0), one, one, 5 * one, one).tolist()
    [[2.0]]
    """
    xp = namespace(V)
    # a Sylvester equation of two symmetric matrices: diagonal in their eigenvectors
    a, left = xp.linalg.eigh(ridge[1] * gram(U))
    b, right = xp.linalg.eigh(ridge[0] * gram(Vi))
    wanted = left.mT @ (ridge[0] * (V.mT @ Vi) - ridge[1] * (U.mT @ Ui)) @ right
    size = a[..., :, None] + b[..., None, :]
    if 0 in size.shape:
        return wanted
    known = size > machine_epsilon(size) ** 0.5 * xp.max(xp.abs(size))
    return left @ xp.where(known, wanted / xp.where(known, size, 1.0), 0.0) @ right.mT


def gram(factor: Array) -> Array:
    """Return the inner products of the columns."""
    return factor.mT @ factor


def _power(matrix: Array, exponent: float) -> Array:
    """Return a power of a positive matrix; what is lost beside its largest value is lifted."""
    xp = namespace(matrix)
    values, vectors = xp.linalg.eigh(matrix)
    floor = values[..., -1:] * machine_epsilon(values) ** 0.5
    floor = xp.where(floor > 0, floor, 1.0)
    values = xp.where(values > floor, values, floor)
    return (vectors * values[..., None, :] ** exponent) @ vectors.mT
