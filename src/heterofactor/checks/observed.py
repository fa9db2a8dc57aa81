"""What a source with holes promises: every answer is that of a plain sum over what was observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from heterofactor.checks.requirement import copied, require, require_close, require_same
from heterofactor.checks.source import ROUNDINGS, LogCosh
from heterofactor.linalg import Array, like, machine_epsilon, to_numpy
from heterofactor.losses import (
    Absolute,
    Huber,
    Linked,
    Logistic,
    Loss,
    Poisson,
    Squared,
    Trimmed,
    reach,
)
from heterofactor.observed import Observed

# Thresholds that no difference of counts and their means hits, where rounding would decide.
LOSSES: tuple[Loss, ...] = (
    Squared(),
    Huber(threshold=1.0),
    Absolute(threshold=0.3),
    Trimmed(threshold=1.53),
    Logistic(),
    Poisson(),
    LogCosh(),
)
# Under these, one constant is best, and lines are centred there.
CONVEX = tuple(loss for loss in LOSSES if not isinstance(loss, Trimmed))
# A centre is found in a limited number of steps: no constant is better by more than this share of
# the loss at the centre before.
LOCATED = 1e-3
SHARED, UNIQUE = 2, 2
# The median of the sizes of normal errors, as a standard deviation.
NORMAL = 1.4826

Stack = np.ndarray[Any, Any]


def check_observed(source: Observed) -> None:
    """Check that a source some of whose entries are observed keeps its contract.

    The entries and their weights, written out once by `written_out`, must explain every other
    answer, computed from them by plain sums: values, majorisers (by the scores and bases they lead
    to), normal equations and their Schur complements, products, centres, starts and noise, for
    several losses, offsets and ridges. Solutions are checked by what is left of their normal
    equations, so that lines with fewer entries than unknowns may be solved in any way that is
    finite. Every answer is the same when asked again, keeps the precision, and changes nothing.

    Parameters
    ----------
    source : Observed
        Small enough to be written out, with entries of about the size of one. Centres under a
        loss with a link are checked only where all entries can be observed under it.

    Raises
    ------
    AssertionError
        Says which property failed, and by how much.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.checks import check_observed
    >>> from heterofactor.masked import Masked
    >>> rng = np.random.default_rng(0)
    >>> check_observed(Masked(rng.normal(size=(2, 5, 7)), rng.random((2, 5, 7)).round()))
    """
    first, truth = copied(_answers(source)), _Truth(*written_out(source))
    _check_counts(source, truth)
    _check_products(source, truth)
    for loss in LOSSES:
        for offset in _offsets(source):
            _check_steps(source, truth, loss, offset)
        _check_pull(source, truth, loss)
        _check_longest(source, truth, loss)
        _check_guess(source, truth, loss)
    for loss in CONVEX:
        _check_located(source, truth, loss)
    _check_refused(source, truth)
    _check_noise(source, truth)
    _check_weighted(source, truth)
    require_same("the answers of a source when asked again", _answers(source), first)


def _answers(source: Observed) -> dict[str, Array]:
    """Ask for some of everything that sums over the entries."""
    count, n1, n2 = source.shape
    W, H = _draw(source, count, n1, 3), _draw(source, count, n2, 3)
    value, working = source.majorise(Huber(threshold=1.0), W, H, source.centre)
    schur, right, own = source.arrow(working, W[0, :, :2], H, source.centre, None)
    return {
        "value": value,
        "scores": source.scores(working, W, source.centre, None),
        "Schur complements": schur,
        "right sides": right,
        "unique rows": own,
        "matmat": source.matmat(H),
        "rmatmat": source.rmatmat(W),
        "energy": source.energy,
        "noise": source.noise(W, H, source.centre),
    }


def written_out(source: Observed) -> tuple[Stack, Stack]:
    """Return the matrices of a source, NaN where nothing was observed, and the entries' weights.

    Read from ``pull`` under two losses whose slopes are the entry itself, and one.

    Parameters
    ----------
    source : Observed
        Small enough to be written out.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.checks.observed import written_out
    >>> from heterofactor.masked import Masked
    >>> source = Masked(np.array([[[2.0, 3.0]]]), np.array([[[0.5, 0.0]]]))
    >>> [array.tolist() for array in written_out(source)]
    [[[[2.0, nan]]], [[[0.5, 0.0]]]]
    """
    count, n1, n2 = source.shape
    zero = like(np.zeros((count, n1, n2)), source.energy)
    every = like(np.array(np.broadcast_to(np.eye(n2), (count, n2, n2))), source.energy)
    sums, weight = (
        _double(source.pull(loss, zero, every)[1]) for loss in (_Slope(1.0, 0.0), _Slope(0.0, 1.0))
    )
    require(bool((weight >= 0).all()), f"a weight is {weight.min():g}: expected none below zero")
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(weight > 0, sums / weight, np.nan), weight


@dataclass(frozen=True)
class _Slope:
    """A loss by whose slope entries and weights can be read."""

    by_entry: float
    plain: float

    def value(self, m: Array, z: Array) -> Array:
        return (self.by_entry * m + self.plain) * z

    def slope(self, m: Array, z: Array) -> Array:
        return self.by_entry * m + self.plain + z * 0

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        return m * 0 + 1, z - self.slope(m, z)


class _Truth:
    """The entries of a source in double precision, and sums over them."""

    def __init__(self, matrix: Stack, weight: Stack) -> None:
        self.seen = weight > 0
        self.matrix, self.weight = np.where(self.seen, matrix, 0.0), weight
        self.size = float(np.linalg.norm(self.matrix)) + 1

    def left(self, offset: Stack | None) -> Stack:
        return (self.matrix if offset is None else self.matrix - offset) * self.seen

    def working(self, loss: Loss, Z: Stack) -> tuple[Stack, Stack]:
        if isinstance(loss, Squared):
            return self.weight, self.matrix
        weights, targets = loss.majorise(self.matrix, Z)
        return weights * self.weight, np.where(self.seen, targets, 0.0)


@dataclass(frozen=True)
class _Equations:
    """Normal equations of every line of a stack, ``matrix x = right``, and their sizes."""

    matrix: Stack
    right: Stack
    size: Stack

    @classmethod
    def of(cls, weights: Stack, targets: Stack, factor: Stack, extra: Stack) -> _Equations:
        """Make those of the rows of ``weights``, from the factor of the columns."""
        matrix = np.einsum("ijk,ika,ikb->ijab", weights, factor, factor)
        right = np.einsum("ijk,ijk,ika->ija", weights, targets, factor)
        size = np.einsum("ijk,ijk,ika->ij", weights, np.abs(targets), np.abs(factor))
        return cls(matrix + extra[:, None], right, size)


def _double(array: Array) -> Stack:
    return np.asarray(to_numpy(array), dtype=float)


def _rounding(source: Observed) -> float:
    return ROUNDINGS * machine_epsilon(source.energy)


def _draw(source: Observed, *shape: int, seed: int = 0) -> Array:
    """Draw an array in the precision of the source."""
    return like(np.random.default_rng([seed, *shape]).standard_normal(shape), source.energy)


def _offsets(source: Observed) -> Iterator[Array | None]:
    count, n1, n2 = source.shape
    yield None
    yield _draw(source, count, n1, 1)
    yield _draw(source, count, 1, n2)


def _precisions(source: Observed, rank: int) -> Iterator[Array | None]:
    """Give none, one for all, and one for each of the stack."""
    count = source.shape[0]
    root = _draw(source, count, rank, rank)
    yield None
    yield 0.1 * like(np.eye(rank), root)
    yield root @ root.mT


def _require_precision(what: str, answer: Array, source: Observed) -> None:
    found, expected = answer.dtype, source.energy.dtype
    require(found == expected, f"{what}: {found}, where the data are of {expected}")


def _require_solved(what: str, found: Array, equations: _Equations, source: Observed) -> None:
    """Require that solutions leave nothing of their normal equations but rounding."""
    _require_precision(what, found, source)
    x = _double(found)
    require(
        x.shape == equations.right.shape,
        f"{what}: shape {x.shape}, expected {equations.right.shape}",
    )
    require(bool(np.isfinite(x).all()), f"{what}: not finite")
    scale = np.trace(equations.matrix, axis1=-2, axis2=-1) * np.linalg.norm(x, axis=-1)
    within = _rounding(source) * (scale + equations.size)[..., None]
    image = (equations.matrix @ x[..., None])[..., 0]
    require_close(f"{what} do not solve their normal equations", image, equations.right, within)
    empty = ~equations.matrix.any(axis=(-2, -1))
    require(not x[empty].any(), f"{what}: not zero where nothing was observed and no ridge is set")


def _check_counts(source: Observed, truth: _Truth) -> None:
    rows, columns = source.counts
    require_close("counts of the rows", rows, truth.seen.sum(axis=-1), 0)
    require_close("counts of the columns", columns, truth.seen.sum(axis=-2), 0)
    mean = truth.weight.mean(axis=(-2, -1))
    require_close("share", source.share, mean, _rounding(source) * (1 + mean))
    for what, answer in (("counts", rows), ("share", source.share)):
        _require_precision(what, answer, source)
    count, n1, n2 = source.shape
    if source.centre is not None:
        shape = tuple(source.centre.shape)
        require(
            shape in ((count, n1, 1), (count, 1, n2)),
            f"centre: shape {shape}, expected ({count}, {n1}, 1) or ({count}, 1, {n2})",
        )


def _centre(source: Observed) -> Stack | None:
    return None if source.centre is None else _double(source.centre)


def _check_products(source: Observed, truth: _Truth) -> None:
    """Compare products with those of what was observed, less the centre, and zero elsewhere."""
    count, n1, n2 = source.shape
    W, H = _draw(source, count, n1, 3), _draw(source, count, n2, 3)
    M, rounding = truth.left(_centre(source)), _rounding(source) * truth.size
    answers = {
        "matmat": (source.matmat(H), M @ _double(H)),
        "rmatmat": (source.rmatmat(W), M.mT @ _double(W)),
        "normal": (source.normal(W), M @ (M.mT @ _double(W))),
        "energy": (source.energy, (truth.weight * M**2).sum(axis=(-2, -1))),
    }
    for name, (found, expected) in answers.items():
        _require_precision(name, found, source)
        within = rounding * (1 + np.abs(expected).max() + n1 + n2)
        require_close(f"{name} is not that of the entries", found, expected, within)


def _check_steps(source: Observed, truth: _Truth, loss: Loss, offset: Array | None) -> None:
    """Check all that leads from a prediction to better scores and bases."""
    count, n1, n2 = source.shape
    rank, name = SHARED + UNIQUE, f"under {loss!r}"
    W, H = _draw(source, count, n1, rank) / 2, _draw(source, count, n2, rank)
    basis = W[0, :, :SHARED]
    arguments = {"W": W, "H": H} | ({} if offset is None else {"offset": offset})
    before = copied(arguments)
    o = np.zeros((count, 1, 1)) if offset is None else _double(offset)
    Z = _double(W) @ _double(H).mT + o
    value, working = source.majorise(loss, W, H, offset)
    _require_precision(f"value {name}", value, source)
    values = np.abs(truth.weight * loss.value(truth.matrix, Z))
    terms = (truth.weight * loss.value(truth.matrix, Z)).sum(axis=(-2, -1))
    # a value is a difference of what is larger
    size = values.sum(axis=(-2, -1)) + (truth.weight * np.abs(truth.matrix * Z)).sum(axis=(-2, -1))
    what = f"value of majorise {name} is not the weighted loss of what was observed"
    require_close(what, value, terms, _rounding(source) * (1 + size))
    weights, targets = truth.working(loss, Z)
    targets = np.where(truth.seen, targets - o, 0.0)
    w, h, u = _double(W), _double(H), _double(basis)
    for precision in _precisions(source, rank):
        found = source.scores(working, W, offset, precision)
        extra = _extra(precision, count, rank)
        equations = _Equations.of(weights.mT, targets.mT, w, extra)
        _require_solved(f"scores {name}", found, equations, source)
    shared, unique = h[..., :SHARED], h[..., SHARED:]
    left = np.where(truth.seen, targets - u @ shared.mT, 0.0)
    for precision in _precisions(source, UNIQUE):
        extra = _extra(precision, count, UNIQUE)
        equations = _Equations.of(weights, left, unique, extra)
        found = source.own(working, basis, H, offset, precision)
        _require_solved(f"unique rows {name}", found, equations, source)
        schur, right, own = source.arrow(working, basis, H, offset, precision)
        _require_solved(f"unique rows of arrow {name}", own, equations, source)
        joint = _Equations.of(weights, targets, h, np.zeros((count, rank, rank)))
        _check_arrow(source, schur, right, joint, extra, name)
    for what, found, width in (
        ("scores", source.scores(working, W[..., :0], offset, None), (n2, 0)),
        ("own", source.own(working, basis, H[..., :SHARED], offset, None), (n1, 0)),
        ("own", source.own(working, basis[:, :0], H, offset, None), (n1, rank)),
    ):
        shape, wanted = tuple(found.shape), (count, *width)
        require(shape == wanted, f"{what} {name}: shape {shape}, expected {wanted}")
    require_same("the arguments of a source after its answers", arguments, before)


def _extra(precision: Array | None, count: int, rank: int) -> Stack:
    if precision is None:
        return np.zeros((count, rank, rank))
    return np.broadcast_to(_double(precision), (count, rank, rank))


def _check_arrow(
    source: Observed, schur: Array, right: Array, joint: _Equations, extra: Stack, name: str
) -> None:
    """Compare Schur complements and right sides with those of generalised inverses."""
    tip = joint.matrix[..., :SHARED, :SHARED]
    side = joint.matrix[..., SHARED:, :SHARED]
    shaft = joint.matrix[..., SHARED:, SHARED:] + extra[:, None]
    # what rounding leaves of an eigenvalue of zero is not to be inverted
    inverse = np.linalg.pinv(shaft, rcond=1e-10, hermitian=True)
    imitated, alone = inverse @ side, inverse @ joint.right[..., SHARED:, None]
    expected = (tip - side.mT @ imitated).sum(axis=0)
    rest = (joint.right[..., :SHARED] - (side.mT @ alone)[..., 0]).sum(axis=0)
    # how much rounding of the shaft moves the answers
    stiff = np.trace(shaft, axis1=-2, axis2=-1)
    moved, solved = np.linalg.norm(imitated, axis=(-2, -1)), np.linalg.norm(alone, axis=(-2, -1))
    size = (np.trace(joint.matrix, axis1=-2, axis2=-1) + stiff * moved**2).sum(axis=0)
    other = (joint.size * (1 + moved) + stiff * moved * solved).sum(axis=0)
    for what, found, wanted, scale in (
        ("Schur complements", schur, expected, size[:, None, None]),
        ("right sides of arrow", right, rest, other[:, None]),
    ):
        _require_precision(f"{what} {name}", found, source)
        within = _rounding(source) * scale
        require_close(f"{what} {name} are not those of the entries", found, wanted, within)


def _check_pull(source: Observed, truth: _Truth, loss: Loss) -> None:
    count, n1, n2 = source.shape
    W, H = _draw(source, count, n1, 3) / 2, _draw(source, count, n2, 3)
    w, h = _double(W), _double(H)
    Z, centre = w @ h.mT, _centre(source)
    Z = Z if centre is None else Z + centre
    slope = truth.weight * loss.slope(truth.matrix, Z)
    value = (truth.weight * loss.value(truth.matrix, Z)).sum(axis=(-2, -1))
    answers = source.pull(loss, W, H)
    names = ("value", "slope times H", "slope' times W")
    size = 1 + np.abs(value).max() + (truth.weight * (1 + np.abs(truth.matrix * Z))).sum()
    size += np.linalg.norm(slope) * max(np.linalg.norm(w), np.linalg.norm(h))
    for name, found, wanted in zip(names, answers, (value, slope @ h, slope.mT @ w), strict=True):
        _require_precision(f"{name} of pull", found, source)
        what = f"{name} of pull under {loss!r} is not that of what was observed"
        require_close(what, found, wanted, _rounding(source) * size)


def _check_longest(source: Observed, truth: _Truth, loss: Loss) -> None:
    count, n1, n2 = source.shape
    W, change = _draw(source, count, n1, 3), _draw(source, count, n2, 3, seed=1)
    found = source.longest(loss, W, change)
    _require_precision("longest", found, source)
    growth = (_double(W) @ _double(change).mT * truth.seen).max(axis=-2)
    limit = reach(loss)
    expected = np.where(growth > limit, limit / np.where(growth > limit, growth, 1.0), 1.0)
    require_close(f"longest under {loss!r}", found, expected, _rounding(source))


def _check_guess(source: Observed, truth: _Truth, loss: Loss) -> None:
    """Compare the start with residuals of a squared loss that pulls as hard at the centre."""
    count, _, n2 = source.shape
    guess = source.guess(loss)
    require(guess.shape == source.shape, f"guess: shape {guess.shape}, expected {source.shape}")
    every = like(np.array(np.broadcast_to(np.eye(n2), (count, n2, n2))), source.energy)
    found, centre = guess.matmat(every), _centre(source)
    _require_precision("guess", found, source)
    Z = np.zeros(source.shape) + (0 if centre is None else centre)
    at_rest = loss.link(Z) if isinstance(loss, Linked) else Z
    pulled = -loss.slope(truth.matrix, Z) / loss.majorise(at_rest, Z)[0]
    share = truth.seen.mean(axis=(-2, -1), keepdims=True)
    expected = np.where(truth.seen, pulled, 0.0) / np.where(share > 0, share, 1.0)
    within = _rounding(source) * (1 + np.abs(expected))
    require_close(f"guess under {loss!r} is not that of the entries", found, expected, within)


def _check_located(source: Observed, truth: _Truth, loss: Loss) -> None:
    """Find no constant on a fine grid that is much better than the centre of a line."""
    if source.centre is None:
        require(source.located(loss).centre is None, "located finds a centre where there is none")
        return
    if isinstance(loss, Linked) and (loss.unobservable(truth.matrix) & truth.seen).any():
        return
    located = source.located(loss)
    require(
        located.centre is not None and located.centre.shape == source.centre.shape,
        "located changes the shape of the centre",
    )
    _require_precision("the located centre", located.centre, source)
    centre, before = _double(located.centre), _double(source.centre)
    require(bool(np.isfinite(centre).all()), f"the centre located under {loss!r} is not finite")
    axis = -1 if centre.shape[-1] == 1 else -2

    def values(z: Stack) -> Stack:
        return (truth.weight * loss.value(truth.matrix, z)).sum(axis=axis)  # type: ignore[no-any-return]

    found = values(centre)
    grid = np.linspace(min(centre.min(), -3), max(centre.max(), 3), 400)
    least = np.min([values(centre * 0 + z) for z in grid], axis=0)
    within = LOCATED * (1 + np.abs(values(before)))
    if not isinstance(loss, Squared):
        what = f"a constant is better than the centre located under {loss!r}"
        require_close(what, np.maximum(found, least), least, within)
    one, other = written_out(located), written_out(source)
    for k, what in enumerate(("the entries", "the weights")):
        require_close(f"located changes {what}", np.nan_to_num(one[k]), np.nan_to_num(other[k]), 0)


def _check_refused(source: Observed, truth: _Truth) -> None:
    middle = float(np.median(truth.matrix[truth.seen])) if truth.seen.any() else 0.0
    for what, expected, found in (
        ("nothing is refused", np.zeros(source.shape, bool), source.refused(lambda m: m != m)),
        (
            "large entries are refused",
            (truth.matrix > middle) & truth.seen,
            source.refused(lambda m: m > middle),
        ),
    ):
        for matrix, bad, entry in zip(truth.matrix, expected, _double(found), strict=True):
            fits = (
                bool(np.isclose(matrix[bad], entry).any()) if bad.any() else bool(np.isnan(entry))
            )
            require(fits, f"refused says {entry:g} where {what}")


def _check_noise(source: Observed, truth: _Truth) -> None:
    """Compare with the median size of what is left, the degrees of freedom given back."""
    count, n1, n2 = source.shape
    for rank in (0, 1):
        W, H = _draw(source, count, n1, rank), _draw(source, count, n2, rank)
        for offset in _offsets(source):
            found = source.noise(W, H, offset)
            _require_precision("noise", found, source)
            o = 0 if offset is None else _double(offset)
            left = np.abs(truth.matrix - o - _double(W) @ _double(H).mT)
            expected = np.zeros(count)
            for k, (sizes, seen) in enumerate(zip(left, truth.seen, strict=True)):
                entries = int(seen.sum())
                free = max(entries - rank * (n1 + n2 - rank), entries / 10, 1)
                if entries:
                    expected[k] = (NORMAL * np.median(sizes[seen])) ** 2 * entries / free
            within = _rounding(source) * (1 + expected + truth.size)
            require_close("noise is not that of what is left", found, expected, within)


def _check_weighted(source: Observed, truth: _Truth) -> None:
    """Multiply weights of sources, squared, into those of entries."""
    factor = np.linspace(0.5, 2, source.shape[0])
    heavier: Any = source.weighted(like(factor, source.energy))
    matrix, weight = written_out(heavier)
    squares = truth.weight * factor[:, None, None] ** 2
    within = _rounding(source) * (1 + squares)
    require_close("weighted does not weigh the entries by squares", weight, squares, within)
    within = _rounding(source) * (1 + np.abs(truth.matrix))
    entries = np.where(truth.seen, matrix, 0.0)
    require_close("weighted changes the entries", entries, truth.matrix, within)
    other = _Truth(truth.matrix, squares)
    _check_counts(heavier, other)
    _check_products(heavier, other)
    for loss in (Squared(), Huber(threshold=1.0)):
        _check_steps(heavier, other, loss, heavier.centre)
