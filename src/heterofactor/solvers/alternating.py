r"""Alternation for what complete squared loss cannot: holes, weights, other losses, ridges.

Scores given bases, then bases given scores, each half exact. Row j of all bases together is one
least-squares problem in the form of an arrow; sources eliminate their unique rows and send Schur
complements, the server solves for row j of the shared basis, and the sources substitute back. A
sweep is one round. A loss other than the squared one is replaced by its majoriser at the current
prediction before each half, so that no sweep raises the objective

.. math:: \sum_i \sum_{jk} w \ell(m, z) + \tfrac12 \lambda_g (|U|^2 + \sum_i |V_i|^2)
    + \tfrac12 \lambda_l \sum_i (|U_i|^2 + |W_i|^2).

With a ridge, each sweep ends by lowering the penalty as far as the prediction stays (`easing`).

Sweeps are mixed (Anderson's acceleration): the next point is the combination of the last ones whose
changes under a sweep cancel best. The server mixes the shared basis and each source its own, with
coefficients of its own, so that nothing more is sent; a mixed point that raises the objective
is dropped for the plain one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from heterofactor.kernels import solve_rows
from heterofactor.linalg import (
    Array,
    beside,
    complement,
    frame_near,
    leading,
    like,
    machine_epsilon,
    namespace,
    squared_norm,
    trace,
    zeros,
)
from heterofactor.losses import Loss
from heterofactor.masked import as_observed
from heterofactor.observed import DAMPING, Observed, best_scores, worked
from heterofactor.rounds import Message, State
from heterofactor.solvers.easing import Offsets as Offsets
from heterofactor.solvers.easing import balanced, eased, gram, level
from heterofactor.sources import Source

# Sweeps are mixed once they change the bases by less than this share; by a third of it, whenever
# a mixed point has been dropped.
MIX_BELOW = 0.3
# What rounding does to a value: so many units of precision of itself, and of the data's scale.
ROUNDINGS = 3000
# Steps to the scores of a sweep under a loss that takes many: with the scores half way behind the
# bases, mixed points would be dropped.
SCORING = 3
# The damping of normal equations keeps the change of a sweep above so many roundings.
FLOOR = 500
# Rounding is all that is left of a small gradient that has not fallen for so many sweeps.
STALLED = 50
# The ridge of a warming start, relative to the size of normal equations, and how it fades.
WARMTH = 0.1
FADING = 0.7


@dataclass(frozen=True)
class Alternating:
    """Alternating least squares on what is observed, for any loss.

    Parameters
    ----------
    n_shared : int
        Shared directions.
    tol : float
        Relative change of the bases under a sweep, at which to stop.
    ridge : (float, float)
        Penalties on the squares of shared and of unique bases and scores. Zero: none at all, and
        the bases are kept orthonormal on the way.
    offsets : {"rows", "columns"}, optional
        Fit the sources' centres as well, from where they are: one number for each row of a source
        or for each column. Otherwise they stay.
    unit : float
        The size of an entry, by which the start is scaled where there is a ridge.
    memory : int
        How many sweeps are mixed; 0 for plain alternation.
    warming : int
        Do nothing but so many sweeps under a ridge that fades, as part of a start.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import make_heterogeneous
    >>> from heterofactor.metrics import subspace_error
    >>> data = make_heterogeneous(random_state=0)
    >>> rng = np.random.default_rng(0)
    >>> holes = {name: np.where(rng.random(table.shape) < 0.5, np.nan, table)
    ...          for name, table in data.sources.items()}
    >>> model = HMF(3, 3, solver="alternating", centre=None, tol=1e-12).fit(holes)
    >>> bool(subspace_error(model.shared_components_.T, data.shared_basis) < 1e-20)
    True
    """

    n_shared: int
    tol: float = 1e-8
    ridge: tuple[float, float] = (0.0, 0.0)
    offsets: Offsets = None
    unit: float = 1.0
    memory: int = 5
    warming: int = 0

    @property
    def scale_free(self) -> bool:
        """Whether its settings mean the same in any units of the data: not with a ridge."""
        return not self.penalised

    @property
    def penalised(self) -> bool:
        """Whether there is a ridge, so that the scale of bases and scores matters."""
        return max(self.ridge) > 0

    @property
    def spread(self) -> float:
        """The size of a small random start: none, it starts spectrally."""
        return 0.0

    def start(self, basis: Array) -> State:
        """Return the shared state that starts at an orthonormal basis."""
        xp = namespace(basis)
        basis = self._scaled(basis)
        zero = xp.sum(basis) * 0
        return {
            "trial": basis,  # where the sources are asked next
            "basis": basis,  # the point that stands
            "solution": basis,  # where a sweep leads from there
            "value": zero + np.inf,
            "gradient": zero + np.inf,
            "accepted": zero + 1,  # whether the point that stands is the one asked last
            "mixed": zero,
            "mix_below": zero + MIX_BELOW,
            "level": zero + (WARMTH if self.warming else 0.0),
            "length": zero + 1,  # how much of the way to the solution is tried
            "balance": like(np.eye(basis.shape[-1]), basis),
            "least": zero + np.inf,  # the smallest gradient so far
            "stalled": zero,  # sweeps since then
            "points": basis[None, ...][:0, ...],
            "changes": basis[None, ...][:0, ...],
        }

    def init(self, source: Source, shared: State, local: State) -> State:
        """Begin the unique basis from another run, the source's sketch, or its data."""
        basis, rank = frame_near(shared["trial"]), local["unique"].shape[-1]
        if "scores" in local:
            kept: State = {"begin": local["scores"]}
            if "offset" in local:
                kept["offset"] = local["offset"]
            return kept | {"unique": self._scaled(frame_near(local["unique"], basis))}
        if "sketch" in local:
            sketch, image = local["sketch"], local["sketch_image"]
            inside = sketch.mT @ basis
            width = sketch.shape[-1]
            off = like(np.eye(width), basis) - inside @ inside.mT
            _, vectors = leading(off @ (sketch.mT @ image) @ off, min(rank, width))
            block = image @ (off @ vectors)
        else:
            rng = np.random.default_rng([int(k) for k in np.atleast_1d(local.get("seed", 0))])
            block = like(rng.standard_normal((*source.shape[:2], rank)), basis)
            block = source.normal(complement(basis, source.normal(block)))
        missing = rank - int(block.shape[-1])
        unique = complement(basis, beside([block, zeros(block, missing)]) if missing else block)
        start = {"unique": self._scaled(unique)}
        centre = as_observed(source).centre
        return start if centre is None else start | {"offset": centre}

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Finish the last sweep, score, and send what the next one needs."""
        xp = namespace(shared["basis"])
        seen = as_observed(source)
        basis = shared["trial"]
        before: State = {}
        if "scores" in local:
            stands = standing(shared, local)
            before = {f"before_{name}": value for name, value in stands.items()}
            point, history = self._moved(seen, loss, shared, local, stands)
            before |= history
        else:
            count, _, n2 = source.shape
            empty = like(np.zeros((count, n2, 0)), basis)
            none = zeros(empty, self.n_shared + local["unique"].shape[-1])
            point = {"scores": local.get("begin", none)} | local
            point.pop("begin", None)
        W = joined(basis, point["unique"])
        point["scores"], centre = best_scores(
            seen,
            loss,
            W,
            point["scores"],
            point.get("offset"),
            precision=self._on_scores(seen, shared, W),
            with_offset=self.offsets == "columns",
            most=SCORING,
        )
        if centre is not None:
            point["offset"] = centre
        value, working = seen.majorise(loss, W, point["scores"], point.get("offset"))
        H, offset = lines(point, self.offsets)
        precision = self._on_rows(seen, shared, point["scores"], H.shape[-1])
        schur, right, own = seen.arrow(working, basis, H, offset, precision)
        rank = point["unique"].shape[-1]
        message = {
            "value": xp.sum(value + self._penalty(point["scores"], point["unique"])),
            "scale": xp.sum(seen.energy),
            "schur": schur,
            "right": right,
            "unsettled": xp.sum(squared_norm(own[..., :rank] - point["unique"])),
            "size": xp.sum(squared_norm(point["unique"])),
            "stiffness": xp.sum(_stiffness(seen, point["scores"])),
            "tension": xp.sum(gram(point["scores"][..., : self.n_shared]), axis=0),
        }
        return before | point, message

    def _moved(
        self, source: Observed, loss: Loss, shared: State, local: State, stands: State
    ) -> tuple[State, State]:
        """Substitute back into the unique rows, and go to the point that the server asks for."""
        basis, solution = shared["basis"], shared["solution"]
        W = joined(basis, stands["unique"])
        _, working = worked(source, loss, W, stands["scores"], stands.get("offset"))
        H, offset = lines(stands, self.offsets)
        precision = self._on_rows(source, shared, stands["scores"], H.shape[-1])
        own = source.own(working, solution, H, offset, precision)
        rank = stands["unique"].shape[-1]
        old = stands["unique"]
        if by_rows := H.shape[-1] > self.n_shared + rank:
            old = beside([old, stands["offset"]])
        fresh = float(shared["accepted"]) > 0
        moved = dict(stands)
        swept = own
        if not self.penalised:
            frame = frame_near(own[..., :rank], frame_near(solution))
            swept = beside([frame, own[..., rank:]])
        elif fresh:
            swept, lighter = eased(
                self.ridge, self.offsets, solution, shared["balance"], own, stands
            )
            moved |= lighter
        history = {}
        if self.memory:
            points, changes = local.get("points"), local.get("changes")
            history = {
                "points": self._kept(points if fresh else None, old),
                "changes": self._kept(changes if fresh else None, swept - old),
            }
        # a source that was away while others took part may have nothing to mix
        mixed = float(shared["mixed"]) > 0 and history["points"].shape[-3] > 1
        if mixed:
            target = mix(history["points"], history["changes"], rank)
        elif self.penalised and fresh:
            target = swept
        else:
            length = shared["length"]
            target = old + length * (own - old)
            turned = joined(basis + length * (solution - basis), target[..., :rank])
        unique = target[..., :rank]
        if not self.penalised:
            unique = frame_near(unique, shared["trial"])
            if not mixed:
                # the same prediction in the new frame
                turn = turned.mT @ joined(shared["trial"], unique)
                moved["scores"] = stands["scores"] @ turn
        moved["unique"] = unique
        if by_rows:
            moved["offset"] = target[..., rank:]
        return moved, history

    def _on_scores(self, source: Observed, shared: State, W: Array) -> Array | None:
        """Return the ridge of the scores, and what warming adds to it."""
        precision = self._ridge(W.shape[-1], W.shape[-1], W)
        if self.warming:
            fading = shared["level"] * source.share[:, None, None]
            precision = fading * like(np.eye(W.shape[-1]), W) + (
                0 if precision is None else precision
            )
        return precision

    def _on_rows(self, source: Observed, shared: State, scores: Array, width: int) -> Array | None:
        """Return the ridge of the unique rows, and what warming adds; offsets have none."""
        rank = scores.shape[-1]
        precision = self._ridge(rank, width, scores)
        if self.warming:
            ones = np.zeros(width - self.n_shared)
            ones[: rank - self.n_shared] = 1.0
            fading = (shared["level"] * _stiffness(source, scores))[:, None, None]
            precision = fading * like(np.diag(ones), scores) + (
                0 if precision is None else precision
            )
        elif precision is None:
            return None
        return precision if self.warming else precision[self.n_shared :, self.n_shared :]

    def _ridge(self, rank: int, width: int, example: Array) -> Array | None:
        if not self.penalised:
            return None
        ridge = np.zeros(width)
        ridge[:rank] = self.ridge[1]
        ridge[: self.n_shared] = self.ridge[0]
        return like(np.diag(ridge), example)

    def _penalty(self, scores: Array, unique: Array) -> Array:
        """Return the ridge terms of each of the stack."""
        shared, own = scores[..., : self.n_shared], scores[..., self.n_shared :]
        terms = (squared_norm(shared), squared_norm(own) + squared_norm(unique))
        return (self.ridge[0] * terms[0] + self.ridge[1] * terms[1]) / 2

    def _kept(self, history: Array | None, latest: Array) -> Array:
        """Append to a history, whose axis is the last but two; keep as much as can be mixed."""
        latest = latest[..., None, :, :]
        if history is None:
            return latest
        history = namespace(latest).concat([history, latest], axis=-3)
        return history[..., max(0, history.shape[-3] - self.memory - 1) :, :, :]

    def merge(self, shared: State, total: Message) -> State:
        """Accept the point and choose the next one, or go less far."""
        xp = namespace(shared["basis"])
        value = total["value"] + self.ridge[0] / 2 * squared_norm(shared["trial"])
        epsilon = machine_epsilon(value)
        size = xp.abs(value) + epsilon * total["scale"]
        warming = float(shared["level"]) > 0
        bound = shared["value"] + ROUNDINGS * epsilon * size
        if not (warming or float(value) <= float(bound)):
            return self._retreat(shared)
        basis, solution = shared["trial"], self._solved(shared, total)
        change = squared_norm(solution - basis) + total["unsettled"]
        extent = squared_norm(basis) + total["size"]
        one = value * 0 + 1
        gradient = xp.sqrt(change / xp.where(extent > 0, extent, one))
        balance = shared["balance"]
        if self.penalised:
            levelled = level(solution, self.offsets)
            balance = balanced(gram(levelled), total["tension"])
        swept = levelled @ balance if self.penalised else frame_near(solution)
        points, changes = shared["points"], shared["changes"]
        if self.memory:
            points = self._kept(points, basis)
            changes = self._kept(changes, swept - basis)
        ready = points.shape[0] > 1 and float(gradient) < float(shared["mix_below"])
        target = mix(points, changes, self.n_shared) if ready else swept
        lower = float(gradient) < float(shared["least"])
        return shared | {
            "least": gradient if lower else shared["least"],
            "stalled": one * 0 if lower else shared["stalled"] + 1,
            "basis": basis,
            "solution": solution,
            "trial": target if self.penalised else frame_near(target),
            "value": value,
            "gradient": gradient,
            "level": shared["level"] * FADING,
            "accepted": one,
            "mixed": one * ready,
            "length": one,
            "balance": balance,
            "points": points,
            "changes": changes,
        }

    def _retreat(self, shared: State) -> State:
        """Drop a mixed point for the plain one, or go half as far."""
        basis, solution = shared["basis"], shared["solution"]
        mixed = float(shared["mixed"]) > 0
        length = shared["length"] if mixed else shared["length"] / 2
        target = basis + length * (solution - basis)
        below = shared["mix_below"]
        return shared | {
            "trial": target if self.penalised else frame_near(target),
            "mix_below": below / 3 if mixed else below,
            "accepted": shared["accepted"] * 0,
            "mixed": shared["mixed"] * 0,
            "length": length,
            "points": shared["points"][:0, ...],
            "changes": shared["changes"][:0, ...],
        }

    def _solved(self, shared: State, total: Message) -> Array:
        """Solve for every row of the shared basis."""
        basis = shared["trial"]
        if self.n_shared == 0:
            return basis
        xp = namespace(basis)
        ridge = self.ridge[0] + shared["level"] * total["stiffness"]
        size = trace(total["schur"]) + self.n_shared * ridge
        damping = DAMPING * machine_epsilon(basis) * size
        damping = xp.where(damping > 0, damping, 1.0)
        eye = like(np.eye(self.n_shared), basis)
        gram = total["schur"] + (ridge + damping)[..., None, None] * eye
        # towards where it is: a row of which nothing is known stays
        right = total["right"] + damping[..., None] * basis
        return solve_rows(gram, right)

    def finished(self, shared: State) -> str:
        """Say when the bases have settled, or no step lowers the value any more."""
        floor = max(self.tol, FLOOR * machine_epsilon(shared["basis"]))
        if float(shared["gradient"]) <= floor:
            return f"the relative gradient fell below {floor:.0e}"
        stalled = float(shared["stalled"]) >= STALLED
        if stalled and float(shared["gradient"]) <= machine_epsilon(shared["basis"]) ** 0.5:
            return f"the relative gradient, {float(shared['gradient']):.0e}, is all rounding"
        if float(shared["length"]) < machine_epsilon(shared["basis"]):
            gradient = float(shared["gradient"])
            return f"no step improves the fit any more, at a relative gradient of {gradient:.0e}"
        return ""

    def _scaled(self, basis: Array) -> Array:
        """Give a basis the size that it has where bases and scores are balanced."""
        if not self.penalised:
            return basis
        return basis * (basis.shape[-2] ** 0.5 * self.unit**0.5)


def _stiffness(source: Observed, scores: Array) -> Array:
    """Return the size of the normal equations of the rows."""
    return squared_norm(scores) / max(scores.shape[-1], 1) * source.share


def standing(shared: State, local: State) -> State:
    """Return the private state at the point that stands, which may not be the one asked last."""
    names = [name for name in ("unique", "scores", "offset") if name in local]
    rejected = float(shared.get("accepted", 1.0)) == 0 and "before_scores" in local
    return {name: local[f"before_{name}" if rejected else name] for name in names}


def lines(point: State, offsets: Offsets) -> tuple[Array, Array | None]:
    """Return the scores as rows see them, with a one where the offset is fitted along."""
    scores, offset = point["scores"], point.get("offset")
    if offsets != "rows":
        return scores, offset
    return beside([scores, namespace(scores).ones_like(scores[..., :1])]), None


def joined(basis: Array, unique: Array) -> Array:
    """Put the shared basis beside the unique one of each of a stack."""
    xp = namespace(unique)
    return beside([xp.broadcast_to(basis, (*unique.shape[:-1], basis.shape[-1])), unique])


def mix(points: Array, changes: Array, rank: int) -> Array:
    """Combine points so that their changes under a sweep cancel best (Anderson).

    Parameters
    ----------
    points, changes : array of shape (..., m, rows, columns)
        The last m points, and what a sweep adds to each.
    rank : int
        How many of the columns decide on the combination; the others only take part.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.solvers.alternating import mix
    >>> sweep = lambda x: 0.9 * x + 0.1  # slow, and towards one
    >>> points = np.array([0.0, sweep(0.0)]).reshape(2, 1, 1)
    >>> mix(points, sweep(points) - points, rank=1)
    array([[1.]])
    """
    xp = namespace(points)
    swept = points + changes
    bends, moves = (a[..., 1:, :, :] - a[..., :-1, :, :] for a in (changes, swept))
    count = bends.shape[-3]
    flat: Any = xp.reshape(bends[..., :rank], (*bends.shape[:-2], -1))
    last = xp.reshape(changes[..., -1, :, :rank], (*changes.shape[:-3], -1, 1))
    gram = flat @ flat.mT
    ridge = 10 * machine_epsilon(gram) * trace(gram)
    ridge = xp.where(ridge > 0, ridge, 1.0)
    gram = gram + ridge[..., None, None] * like(np.eye(count), gram)
    shares = xp.linalg.solve(gram, flat @ last)
    return swept[..., -1, :, :] - xp.sum(shares[..., None] * moves, axis=-3)
