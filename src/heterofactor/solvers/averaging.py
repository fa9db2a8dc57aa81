r"""Algorithm 1 of the paper, exactly: correct, take one gradient step, average.

The letters are the paper's. In our words: ``Ug`` is the shared basis and ``Ul`` a source's unique
basis; ``Vg`` and ``Vl`` are the shared and unique scores; ``L`` is the slope of the loss; ``eta``
is the step and ``beta`` weighs the penalty :math:`\beta/2 |U'U - I|^2` on both bases.

With ``step_size=None`` the data are measured in units of their root mean squared spectral norm, and
the step halves whenever the objective rises, from the point before, and comes back slowly: the
paper's algorithm on rescaled data, with a step of order one. With a step given, nothing is
rescaled, the step never changes, and no round is taken back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heterofactor.linalg import (
    Array,
    leading,
    like,
    machine_epsilon,
    namespace,
    orthonormal,
    squared_norm,
)
from heterofactor.losses import Loss
from heterofactor.rounds import Message, State
from heterofactor.sources import Source

# The step on rescaled data, whose curvature is at most about two: it falls where it is too long.
UNIT_STEP = 0.5
# By how much a halved step comes back every round.
RECOVERY = 1.05
# What a source has of its own.
FACTORS = ("unique", "shared_scores", "unique_scores")
# Enough for a spectral norm that only sets a scale.
POWER_ITERATIONS = 8


@dataclass(frozen=True)
class Averaging:
    """Algorithm 1 of the paper: gradient steps at the sources, averages at the server.

    Parameters
    ----------
    n_shared : int
        Shared directions.
    step_size : float, optional
        The paper's eta, about ``1 / sigma_max**2``. Chosen from the data, and halved whenever the
        objective rises, unless given.
    beta : float
        Weight of the penalty that keeps the bases near orthonormal; in units of the squared
        spectral norm of the data unless `step_size` is given.
    spread : float
        Standard deviation of the random start.
    tol : float
        Relative gradient at which to stop.

    References
    ----------
    Naichen Shi, Salar Fattahi, Raed Al Kontar. Heterogeneous Matrix Factorization: When Features
    Differ by Datasets.

    Examples
    --------
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import make_heterogeneous
    >>> from heterofactor.metrics import subspace_error
    >>> from heterofactor.solvers import Averaging
    >>> data = make_heterogeneous(random_state=0)
    >>> solver = Averaging(n_shared=3, tol=1e-4)
    >>> model = HMF(3, 3, solver=solver, centre=None, max_rounds=3000, random_state=0)
    >>> error = subspace_error(model.fit(data.sources).shared_components_.T, data.shared_basis)
    >>> bool(error < 1e-5)
    True
    """

    n_shared: int
    step_size: float | None = None
    beta: float = 0.1
    spread: float = 0.01
    tol: float = 1e-8

    @property
    def scale_free(self) -> bool:
        """Whether its settings mean the same in any units of the data: not a given step."""
        return self.step_size is None

    def start(self, basis: Array) -> State:
        """Return the shared state that starts at a small random ``Ug``."""
        given = self.step_size is not None
        scalars = {
            "eta": self.step_size if self.step_size is not None else UNIT_STEP,
            "unit": 1.0 if given else 0.0,
            "value": np.inf,
            "gradient": np.inf,
        }
        return {name: like(np.asarray(value), basis) for name, value in scalars.items()} | {
            "basis": basis,
            "before": basis,  # where the value was last found to fall
            "rose": namespace(basis).sum(basis) * 0,
        }

    def init(self, source: Source, shared: State, local: State) -> State:
        """Draw small random ``Ul``, ``Vg`` and ``Vl``; measure the spectral norms."""
        count, n1, n2 = source.shape
        rank = local["unique"].shape[-1]
        rng = np.random.default_rng([int(seed) for seed in np.atleast_1d(local.get("seed", 0))])

        def draw(*shape: int) -> Array:
            return like(self.spread * rng.standard_normal((count, *shape)), shared["basis"])

        power = orthonormal(draw(n1, 2))
        for _ in range(POWER_ITERATIONS):
            power = orthonormal(source.normal(power))
        largest, _ = leading(power.mT @ source.normal(power), 1)
        norm = namespace(power).sqrt(largest[:, 0])
        if "scores" in local:  # a rough fit has gone before, in the units of the data
            scores = local["scores"]
            return {
                "unique": local["unique"],
                "shared_scores": scores[..., : self.n_shared],
                "unique_scores": scores[..., self.n_shared :],
                "norm": norm,
                "unscaled": norm,
            }
        return {
            "unique": draw(n1, rank),
            "shared_scores": draw(n2, self.n_shared),
            "unique_scores": draw(n2, rank),
            "norm": norm,
        }

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Lines 4 to 9 of the paper, for one source."""
        xp = namespace(shared["basis"])
        Ug, unit, eta = shared["basis"], shared["unit"], shared["eta"]
        if float(unit) == 0:
            return local, self._scale(Ug, local)
        if "unscaled" in local:
            local = local | {name: local[name] / unit for name in FACTORS[1:]}
            local.pop("unscaled")
        if self.step_size is None:
            local = _resumed(local, back=float(shared["rose"]) > 0)
        Ul, Vg, Vl = (local[name] for name in FACTORS)

        # correct: Ul <- Ul - Ug (Ug'Ug)^-1 Ug'Ul, and Vg takes up what Ul gives away
        given = xp.linalg.solve(Ug.mT @ Ug, Ug.mT @ Ul)
        Ul, Vg = Ul - Ug @ given, Vg + Vl @ given.mT

        # one gradient step on all four, from the same corrected point
        Ug = xp.broadcast_to(Ug, (Ul.shape[0], *Ug.shape))
        W, H = xp.concat([Ug, Ul], axis=-1), xp.concat([Vg, Vl], axis=-1)
        value, LH, LW = source.pull(loss, W, H * unit)
        r1 = self.n_shared
        LVg, LVl = LH[..., :r1] / unit**2, LH[..., r1:] / unit**2
        LUg, LUl = LW[..., :r1] / unit, LW[..., r1:] / unit
        excess_g, excess_l = _excess(Ug), _excess(Ul)
        local = local | {
            "unique": Ul - eta * (LVl + 2 * self.beta * Ul @ excess_l),
            "shared_scores": Vg - eta * LUg,
            "unique_scores": Vl - eta * LUl,
        }
        penalty = self.beta / 2 * (squared_norm(excess_g) + squared_norm(excess_l))
        own = squared_norm(LUg) + squared_norm(LUl) + squared_norm(LVl)
        message = {
            "basis": xp.sum(Ug - eta * (LVg + 2 * self.beta * Ug @ excess_g), axis=0),
            "count": xp.sum(value * 0 + 1),
            "value": xp.sum(value + unit**2 * penalty),
            "slope": xp.sum(LVg, axis=0),
            "own": xp.sum(own),
            "scale": xp.sum(local["norm"] ** 2),
        }
        return local, message

    def _scale(self, Ug: Array, local: State) -> Message:
        """Before the first step: how large the data are."""
        xp = namespace(Ug)
        scale = xp.sum(local["norm"] ** 2)
        nothing = scale * 0
        return {
            "basis": Ug * local["norm"].shape[0],
            "count": nothing + local["norm"].shape[0],
            "value": nothing + np.inf,
            "slope": Ug * 0,
            "own": nothing + np.inf,
            "scale": scale,
        }

    def merge(self, shared: State, total: Message) -> State:
        """Average the private copies of ``Ug``."""
        xp = namespace(shared["basis"])
        unit, value = shared["unit"], total["value"]
        if float(unit) == 0:
            unit = xp.sqrt(total["scale"] / total["count"])
            unit = xp.where(unit > 0, unit, unit * 0 + 1)
        rounding = 100 * machine_epsilon(value) * float(total["scale"])
        if self.step_size is None and not float(value) <= float(shared["value"]) + rounding:
            half = {"eta": shared["eta"] / 2, "basis": shared["before"]}
            return shared | half | {"rose": shared["rose"] * 0 + 1}
        eta = shared["eta"]
        if self.step_size is None and float(eta) < UNIT_STEP:
            eta = RECOVERY * eta
        gradient = xp.sqrt(squared_norm(total["slope"]) + total["own"])
        size = xp.sqrt(total["scale"]) / unit
        return shared | {
            "basis": total["basis"] / total["count"],
            "before": shared["basis"],
            "rose": shared["rose"] * 0,
            "unit": unit,
            "eta": eta,
            "value": value,
            "gradient": gradient / xp.where(size > 0, size, size * 0 + 1),
        }

    def finished(self, shared: State) -> str:
        """Say when the gradient is small."""
        floor = max(self.tol, 100 * machine_epsilon(shared["basis"]))
        if float(shared["gradient"]) <= floor:
            return f"the relative gradient fell below {floor:.0e}"
        return ""


def _resumed(local: State, *, back: bool) -> State:
    """Go back to where the value last fell, if the server does; keep the points that this takes."""
    kept = {f"before_{name}": local.get(f"last_{name}", local[name]) for name in FACTORS}
    if back:
        kept = {f"before_{name}": local[f"before_{name}"] for name in FACTORS}
        local = local | {name: kept[f"before_{name}"] for name in FACTORS}
    return local | kept | {f"last_{name}": local[name] for name in FACTORS}


def _excess(U: Array) -> Array:
    """``U'U - I``, what the penalty pulls to zero."""
    return U.mT @ U - like(np.eye(U.shape[-1]), U)
