"""What a loss promises: its slope is its derivative, and its majoriser lies above and touches."""

from __future__ import annotations

import numpy as np

from heterofactor.checks.requirement import (
    copied,
    require,
    require_close,
    require_frozen,
    require_same,
)
from heterofactor.linalg import Array
from heterofactor.losses import Loss, reach

# A central difference with this step is off by some 1e-10 of the third derivative and 1e-11 of
# the value by rounding; a kink of the slope within the step leaves half the step.
STEP = 1e-5
SLOPE_TOLERANCE = 2e-5
ROUNDING = 1e-12


def check_loss(loss: Loss, *, observed: Array | None = None) -> None:
    """Check that a loss keeps its contract.

    Its slope is the derivative of its value; its majoriser has weights that are not negative,
    touches the loss at the prediction with the same slope, and lies above everywhere; every answer
    is elementwise, keeps the precision, and changes nothing.

    Parameters
    ----------
    loss : Loss
        A frozen dataclass.
    observed : array, optional
        Values that can be observed under this loss, such as counts, or zeros and ones. Standard
        normal ones unless given. The predictions are real numbers around zero, of size 3.

    Raises
    ------
    AssertionError
        Says which property failed, and by how much.

    Examples
    --------
    >>> from heterofactor.checks import check_loss
    >>> from heterofactor.losses import Squared
    >>> check_loss(Squared())
    """
    require_frozen("a loss", loss)
    rng = np.random.default_rng(0)
    pool = rng.standard_normal(50) if observed is None else np.asarray(observed, dtype=float)
    m, z = rng.choice(pool.ravel(), size=(3, 8, 9)), 3 * rng.standard_normal((3, 8, 9))
    before = copied({"m": m, "z": z})
    answers = _answers(loss, m, z)
    require_same("the arguments of a loss after its answers", {"m": m, "z": z}, before)
    require_same("the answers of a loss when asked again", _answers(loss, m, z), answers)
    _check_entries(loss, m, z, answers)
    _check_slope(loss, m, z, answers)
    _check_majoriser(loss, m, z, answers, rng)
    single = _answers(loss, m.astype(np.float32), z.astype(np.float32))
    for name, answer in single.items():
        require(answer.dtype == np.float32, f"{name} of single precision comes as {answer.dtype}")


def _answers(loss: Loss, m: Array, z: Array) -> dict[str, Array]:
    weights, targets = loss.majorise(m, z)
    value, slope = loss.value(m, z), loss.slope(m, z)
    return {"value": value, "slope": slope, "weights": weights, "targets": targets}


def _check_entries(loss: Loss, m: Array, z: Array, answers: dict[str, Array]) -> None:
    """Every entry is finite, and what it would be alone."""
    alone = [_answers(loss, m[k : k + 1, 2:3], z[k : k + 1, 2:3]) for k in range(len(m))]
    for name, answer in answers.items():
        shape = np.shape(answer)
        require(shape == m.shape, f"{name}: shape {shape} for entries of shape {m.shape}")
        require(bool(np.isfinite(answer).all()), f"{name}: not finite for finite entries")
        one = np.concatenate([part[name] for part in alone])
        within = ROUNDING * (1 + np.abs(one))
        require_close(f"{name} is not elementwise", answer[:, 2:3], one, within)


def _check_slope(loss: Loss, m: Array, z: Array, answers: dict[str, Array]) -> None:
    difference = (loss.value(m, z + STEP) - loss.value(m, z - STEP)) / (2 * STEP)
    within = SLOPE_TOLERANCE * (1 + np.abs(answers["value"]) + np.abs(difference))
    require_close("slope is not the derivative of value", answers["slope"], difference, within)


def _check_majoriser(
    loss: Loss, m: Array, z: Array, answers: dict[str, Array], rng: np.random.Generator
) -> None:
    value, slope, w, t = answers["value"], answers["slope"], answers["weights"], answers["targets"]
    require(bool(np.min(w) >= 0), f"weights: as low as {np.min(w):.1e}, expected none below zero")
    within = ROUNDING * (1 + np.abs(slope) + w * (np.abs(t) + np.abs(z)))
    require_close("the majoriser's slope at z is not that of the loss", w * (z - t), slope, within)
    for size in (1e-2, 1.0, 10.0):
        # a majoriser may hold within a reach only, upwards
        other = z + np.minimum(size * rng.standard_normal(z.shape), reach(loss))
        above = value + w * ((t - other) ** 2 - (t - z) ** 2) / 2
        actual = loss.value(m, other)
        # rounding of squares of distances, which may be large where a weight is small
        rounding = ROUNDING * (1 + np.abs(actual) + value + w * ((t - other) ** 2 + (t - z) ** 2))
        require_close(
            f"the majoriser lies below the loss, {size:g} from z",
            np.minimum(above, actual),
            actual,
            rounding,
        )
