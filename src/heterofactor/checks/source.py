"""What a source promises: all its answers are those of one matrix for each of its stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from heterofactor.checks.requirement import copied, require, require_close, require_same
from heterofactor.linalg import Array, like, machine_epsilon, to_numpy
from heterofactor.losses import Huber, Logistic, Loss, Squared
from heterofactor.sources import Source

# Roundings of a long sum, in units of the precision and relative to the norms of its factors. A
# centre that is much larger than what it leaves costs digits that this does not allow for.
ROUNDINGS = 300


@dataclass(frozen=True)
class LogCosh:
    """A loss for which no source has a shortcut: ``log(cosh(m - z))``."""

    def value(self, m: Array, z: Array) -> Array:
        """Return the loss, entry by entry."""
        xp = array_namespace(z)
        return xp.log(xp.cosh(m - z))

    def slope(self, m: Array, z: Array) -> Array:
        """Return its derivative in `z`."""
        return array_namespace(z).tanh(z - m)

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        """Return weights of one, the largest curvature, and the targets that touch."""
        return m * 0 + 1, z - self.slope(m, z)


def check_source(source: Source) -> None:
    """Check that a source of complete data keeps its contract.

    The matrices, written out once as the products with the identity, must explain every other
    answer: products are linear, the transposed product is the adjoint, ``normal`` is one after
    the other, the energy is the sum of squares, and weights multiply the matrices. The value of
    ``pull`` is the loss of all entries, and its slopes are the value's derivatives, for some
    losses that are smooth enough for differences. Every answer is the same when asked again, keeps
    the precision, and changes nothing.

    Parameters
    ----------
    source : Source
        Small enough to be written out. A centre should not exceed its matrix by far, for the
        check does not allow for the digits that are lost then.

    Raises
    ------
    AssertionError
        Says which property failed, and by how much.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.checks import check_source
    >>> from heterofactor.sources import Dense
    >>> stack = np.random.default_rng(0).normal(size=(2, 5, 7))
    >>> check_source(Dense(stack, centre=stack.mean(axis=-1, keepdims=True)))
    """
    shape = source.shape
    require(
        len(shape) == 3 and all(isinstance(length, int) for length in shape),
        f"shape is {shape!r}, expected three ints: how many matrices, their rows and columns",
    )
    count, n1, n2 = shape
    energy, rng = source.energy, np.random.default_rng(0)
    require(energy.shape == (count,), f"energy: shape {energy.shape}, expected ({count},)")
    M = source.matmat(_every(np.eye(n2), count, energy))
    require(M.shape == shape, f"matmat of the identity: shape {M.shape}, expected {shape}")
    W, H = (like(rng.standard_normal((count, n, 3)), energy) for n in (n1, n2))
    before = copied({"W": W, "H": H})
    answers = _answers(source, W, H)
    require_same("the arguments of a source after its answers", {"W": W, "H": H}, before)
    require_same("the answers of a source when asked again", _answers(source, W, H), answers)
    for name, answer in answers.items():
        require(
            answer.dtype == energy.dtype,
            f"{name}: {answer.dtype}, where the data are of {energy.dtype}",
        )
    _check_products(answers, M, W, H)
    _check_widths(source, energy, W, H)
    _check_weighted(source, M, W, H, rng)
    for loss in (Squared(), Huber(threshold=1.0), Logistic(), LogCosh()):
        _check_pull(source, loss, M, W, H, rng)


def _every(matrix: Any, count: int, example: Array) -> Array:
    """Give every matrix of a stack the same argument; such a view must be accepted."""
    xp = array_namespace(example)
    return xp.broadcast_to(like(matrix, example), (count, *matrix.shape))


def _answers(source: Source, W: Array, H: Array) -> dict[str, Array]:
    return {
        "matmat": source.matmat(H),
        "rmatmat": source.rmatmat(W),
        "normal": source.normal(W),
        "energy": source.energy,
    }


def _norm(array: Array) -> float:
    return float(np.linalg.norm(to_numpy(array).astype(float)))


def _check_products(answers: dict[str, Array], M: Array, W: Array, H: Array) -> None:
    rounding = ROUNDINGS * machine_epsilon(M)
    m, w, h = _norm(M), _norm(W), _norm(H)
    normal, xp = M @ (M.mT @ W), array_namespace(M)
    squares = xp.sum(M * M, axis=(-2, -1))
    image, pulled = answers["matmat"], answers["rmatmat"]
    require_close("matmat is not linear", image, M @ H, rounding * m * h)
    adjoint = "rmatmat is not the adjoint of matmat: <M H, W> differs from <H, M'W>"
    one, other = float(xp.sum(image * W)), float(xp.sum(H * pulled))
    require_close(adjoint, one, other, rounding * m * w * h)
    require_close("rmatmat is not the transposed product", pulled, M.mT @ W, rounding * m * w)
    require_close("normal is not M (M'W)", answers["normal"], normal, rounding * m**2 * w)
    energy = answers["energy"]
    require_close("energy is not the sum of squares", energy, squares, rounding * m**2)


def _check_widths(source: Source, energy: Array, W: Array, H: Array) -> None:
    """Products with nothing are empty; products with one basis for the whole stack are fine."""
    count, n1, n2 = source.shape
    for name, answer, rows in (
        ("matmat", source.matmat(H[..., :0]), n1),
        ("rmatmat", source.rmatmat(W[..., :0]), n2),
        ("normal", source.normal(W[..., :0]), n1),
    ):
        found, expected = tuple(answer.shape), (count, rows, 0)
        require(found == expected, f"{name} of no columns: shape {found}, expected {expected}")
    basis = np.random.default_rng(1).standard_normal((n1, 2))
    view = _every(basis, count, energy)
    one, two = source.normal(view), source.rmatmat(view)
    whole = like(np.array(to_numpy(view)), energy)
    limit = ROUNDINGS * machine_epsilon(energy) * _norm(basis)
    size = float(to_numpy(energy).sum())
    require_close("normal of a view", one, source.normal(whole), limit * size)
    require_close("rmatmat of a view", two, source.rmatmat(whole), limit * size**0.5)


def _check_weighted(source: Source, M: Array, W: Array, H: Array, rng: np.random.Generator) -> None:
    weight = like(rng.uniform(0.5, 2, M.shape[0]), M)
    heavier = source.weighted(weight).weighted(weight)
    _check_products(_answers(heavier, W, H), M * weight[:, None, None] ** 2, W, H)


def _check_pull(
    source: Source, loss: Loss, M: Array, W: Array, H: Array, rng: np.random.Generator
) -> None:
    xp, name = array_namespace(M), f"pull under {loss!r}"
    # predictions of the size of the data, so that neither drowns the other
    W = W * (_norm(M) / (_norm(W @ H.mT) + _norm(M) * 1e-6) if _norm(M) else 1.0)
    value, by_W, by_H = source.pull(loss, W, H)
    for found, wanted, what in ((by_W, W, "slope times H"), (by_H, H, "slope' times W")):
        shape, expected = tuple(found.shape), tuple(wanted.shape)
        require(shape == expected, f"{name}: {what} has shape {shape}, expected {expected}")
        require(found.dtype == M.dtype, f"{name}: {what} is {found.dtype}, the data {M.dtype}")
    Z = W @ H.mT
    expected = xp.sum(loss.value(M, Z), axis=(-2, -1))
    size = _norm(M) ** 2 + _norm(Z) ** 2 + float(xp.sum(xp.abs(expected)))
    within = ROUNDINGS * machine_epsilon(M) * size
    require_close(f"{name}: value is not the loss of all entries", value, expected, within)
    # The central difference is off by the square of its step, and rounding over the step.
    step = machine_epsilon(M) ** (1 / 3)
    for moved, slope, what in ((W, by_W, "slope times H"), (H, by_H, "slope' times W")):
        for draw in range(2):
            along = slope if draw else like(rng.standard_normal(moved.shape), M)
            along = along * (_norm(moved) / (_norm(along) or 1.0))
            pairs = [
                (W + s * along, H) if moved is W else (W, H + s * along) for s in (step, -step)
            ]
            ahead, behind = (float(xp.sum(source.pull(loss, *pair)[0])) for pair in pairs)
            require_close(
                f"{name}: {what} is not the derivative of the value",
                float(xp.sum(slope * along)),
                (ahead - behind) / (2 * step),
                20 * step**2 * size,
            )
