"""Where to begin when not all is observed, or the loss is not the squared one.

The spectral start, on data whose holes are filled with the centre. Where its eigenvalues leave it
in doubt (many holes, and weak directions next to strong ones), it is followed for some sweeps
under a ridge that fades, which keeps weak directions from being lost to strong ones early; then
sources look for a better unique part than the one they have been led to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from heterofactor.canonical import ScoringObserved
from heterofactor.linalg import Array, frame_near, like, namespace, squared_norm
from heterofactor.losses import Absolute, Loss, at_noise, is_open
from heterofactor.masked import as_observed
from heterofactor.observed import Observed, best_scores, worked
from heterofactor.rounds import Engine, Message, Result, State, run
from heterofactor.solvers.alternating import Alternating, joined, lines, standing
from heterofactor.solvers.easing import Offsets
from heterofactor.sources import Source
from heterofactor.start import CLEAR, MAX_ITERATIONS, Spectral, Start

# Rounds under a fading ridge, rounds to find out which sources are stuck, and how often to look.
WARMING = 15
FOLLOWED = 25
LOOKS = 3
# No source is stuck where a sweep changes the bases by less than this share.
SETTLED = 1e-6
# A source looks for a better unique part from some starts, for so many sweeps of its own.
PRIVATE_SWEEPS = 20
# Ridges on the scores that these begin with, and how fast they fade.
PRIVATE_RIDGES = (0.0, 0.3)
FADING = 0.7
# Another unique part must lower the value of a source by this share to count as better.
BETTER = 1e-3
# The most sweeps of a source that is added to a fit.
NEWCOMING = 500
# A threshold that is left to the data needs only a rough fit, and the noise is taken to be no
# smaller than this share of the entries.
PILOT_TOLERANCE = 1e-2
PILOT_ROUNDS = 50
LEAST_NOISE = 1e-6


@dataclass(frozen=True)
class OnGuess:
    """The spectral start on data of which not all is observed: holes are at the centre."""

    stage: Spectral
    loss: Loss

    def init(self, source: Source, shared: State, local: State) -> State:
        """Find the leading directions of the filled data."""
        return local | self.stage.init(as_observed(source).guess(self.loss), shared, local)

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Project the basis on the leading directions of each matrix."""
        return self.stage.step(source, loss, shared, local)

    def merge(self, shared: State, total: Message) -> State:
        """Take one step of the subspace iteration."""
        return self.stage.merge(shared, total)

    def finished(self, shared: State) -> str:
        """Say when the leading eigenvectors have settled."""
        return self.stage.finished(shared)


def guessed_start(
    engine: Engine,
    loss: Loss,
    solver: Alternating,
    n_unique: int,
    example: Array,
    rng: np.random.Generator,
) -> Start:
    """Find the spectral start of data of which not all is observed; follow it where in doubt.

    Parameters
    ----------
    engine, loss
        Where the sources are, and the loss.
    solver : Alternating
        That will go on from here.
    n_unique : int
        The largest unique rank.
    example : array of shape (n1, ...)
        Any array of the length of the shared axis, and of the data's library and precision.
    rng : numpy Generator
        Draws the first directions.

    Returns
    -------
    Start
    """
    n_shared = solver.n_shared
    if n_shared == 0:
        basis = like(np.zeros((example.shape[0], 0)), example)
        found = Start(basis, None, "spectral")
    else:
        first = Spectral(n_shared)
        begin = first.begin(example, n_unique, rng)
        rough = at_noise(Absolute() if is_open(loss) else loss, 1.0)
        stage = OnGuess(first, rough)
        result = run(stage, engine, rough, begin, max_rounds=MAX_ITERATIONS)
        basis, eigenvalues = result.shared["basis"][:, :n_shared], result.shared["eigenvalues"]
        found = Start(basis, eigenvalues, "spectral", result.interrupted)
        clear = float(eigenvalues[n_shared - 1]) >= CLEAR
        if clear or found.interrupted or is_open(loss) or solver.penalised:
            return found
    return found if is_open(loss) or solver.penalised else _followed(engine, loss, solver, found)


def _followed(engine: Engine, loss: Loss, solver: Alternating, start: Start) -> Start:
    """Follow a doubtful start under a fading ridge, and let stuck sources begin anew."""
    warming = replace(solver, warming=WARMING, memory=0)
    result = run(warming, engine, loss, warming.start(start.basis), max_rounds=WARMING)
    for _ in range(LOOKS):
        if result.interrupted:
            break
        basis = frame_near(result.shared["basis"])
        result = run(solver, engine, loss, solver.start(basis), max_rounds=FOLLOWED)
        if result.interrupted or float(result.shared["gradient"]) < SETTLED:
            break
        looked = run(Reviving(solver.offsets), engine, loss, result.shared, max_rounds=1)
        if looked.interrupted or float(looked.shared["revived"]) == 0:
            break
    basis = frame_near(result.shared["basis"])
    return replace(start, basis=basis, name="spectral, followed", interrupted=result.interrupted)


@dataclass(frozen=True)
class Reviving:
    """A round in which every source looks for a better unique part than the one it has.

    Parameters
    ----------
    offsets : {"rows", "columns"}, optional
        Which offsets are fitted along.
    """

    offsets: Offsets = None

    def init(self, source: Source, shared: State, local: State) -> State:
        """Keep what the source has."""
        return local

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Try other unique parts; keep, of each matrix, what is better by far."""
        seen, basis = as_observed(source), shared["basis"]
        xp = namespace(basis)
        best = standing(shared, local)
        won = xp.zeros_like(seen.energy)
        rank = best["unique"].shape[-1]
        if rank:
            value = self._value(seen, loss, basis, best)
            for ridge in PRIVATE_RIDGES:
                found = self._tried(seen, loss, basis, best, ridge)
                other = self._value(seen, loss, basis, found)
                better = other < (1 - BETTER) * value
                where = better[:, None, None]
                best = {name: xp.where(where, found[name], best[name]) for name in best}
                value = xp.where(better, other, value)
                won = xp.where(better, 1.0, won)
        return best, {"revived": xp.sum(won)}

    def _tried(
        self, source: Observed, loss: Loss, basis: Array, point: State, ridge: float
    ) -> State:
        """Begin at the leading directions of what the shared part leaves of the filled data."""
        rank = point["unique"].shape[-1]
        filled = source.guess(loss)
        count, n1, _ = source.shape
        rng = np.random.default_rng(rank)
        block = like(rng.standard_normal((count, n1, rank)), basis)
        for _ in range(4):
            block = frame_near(filled.normal(block), basis)
        found = {**point, "unique": block, "scores": point["scores"] * 0}
        for sweep in range(PRIVATE_SWEEPS):
            found = self._swept(source, loss, basis, found, ridge * FADING**sweep)
        return self._scored(source, loss, basis, found, 0.0)

    def _swept(
        self, source: Observed, loss: Loss, basis: Array, point: State, ridge: float
    ) -> State:
        """Score, then solve for the unique rows; the shared basis stays."""
        point = self._scored(source, loss, basis, point, ridge)
        W = joined(basis, point["unique"])
        _, working = worked(source, loss, W, point["scores"], point.get("offset"))
        H, offset = lines(point, self.offsets)
        own = source.own(working, basis, H, offset, None)
        rank = point["unique"].shape[-1]
        moved = {**point, "unique": frame_near(own[..., :rank], basis)}
        if self.offsets == "rows":
            moved["offset"] = own[..., rank:]
        return moved

    def _scored(
        self, source: Observed, loss: Loss, basis: Array, point: State, ridge: float
    ) -> State:
        W = joined(basis, point["unique"])
        rank = W.shape[-1]
        share = source.share[:, None, None]
        scores, offset = best_scores(
            source,
            loss,
            W,
            point["scores"],
            point.get("offset"),
            precision=ridge * share * like(np.eye(rank), W) if ridge else None,
            with_offset=self.offsets == "columns",
            most=1,
        )
        return {**point, "scores": scores} | ({} if offset is None else {"offset": offset})

    def _value(self, source: Observed, loss: Loss, basis: Array, point: State) -> Array:
        W = joined(basis, point["unique"])
        return source.majorise(loss, W, point["scores"], point.get("offset"))[0]

    def merge(self, shared: State, total: Message) -> State:
        """Count them."""
        return shared | {"revived": total["revived"]}

    def finished(self, shared: State) -> str:
        """Finish after one round."""
        return "looked"


def newcomer_observed(
    source: Observed,
    rank: int,
    basis: Array,
    loss: Loss,
    tol: float,
    *,
    offsets: Offsets = None,
    centre: Array | None = None,
) -> State:
    """Find the unique basis of one source more, and its scores, for a shared basis that stays.

    Parameters
    ----------
    source : Observed
        A stack of one matrix.
    rank : int
        Its unique rank.
    basis : array of shape (n1, n_shared)
        The shared basis.
    loss : Loss
        Under which it is fitted; without a ridge.
    tol : float
        Relative change of the basis under a sweep, at which to stop.
    offsets : {"rows", "columns"}, optional
        Which offsets are fitted along.
    centre : array of shape (n1,), optional
        An offset that stays.
    """
    count, n1, n2 = source.shape
    offset = source.centre if centre is None else centre[None, :, None]
    private = Reviving(offsets)
    point: State = {"scores": like(np.zeros((count, n2, basis.shape[1] + rank)), basis)}
    if offset is not None:
        point["offset"] = offset
    point["unique"] = like(np.zeros((count, n1, rank)), basis)
    point = private._tried(source, loss, basis, point, PRIVATE_RIDGES[-1])
    for _ in range(NEWCOMING):
        moved = private._swept(source, loss, basis, point, 0.0)
        change = float(squared_norm(moved["unique"] - point["unique"])[0]) ** 0.5
        point = moved
        if change <= tol * max(rank, 1) ** 0.5:
            break
    finish = ScoringObserved(basis.shape[1], False, offsets)
    local, _ = finish.step(source, loss, {"basis": basis}, point)
    return local


def pilot(
    engine: Engine, loss: Loss, solver: Alternating, start: Start, raw_scale: float
) -> tuple[Start, Loss]:
    """Fit roughly under the absolute loss, and set a threshold from the noise that is left."""
    rough = Absolute().at_noise(raw_scale)
    stage = replace(solver, tol=PILOT_TOLERANCE)
    begin = stage.start(frame_near(start.basis))
    result: Result = run(stage, engine, rough, begin, max_rounds=PILOT_ROUNDS)
    found = run(Noise(), engine, rough, result.shared, max_rounds=1).shared
    scale = max(float(found["noise"]), LEAST_NOISE * raw_scale)
    basis = frame_near(result.shared["basis"])
    return replace(start, basis=basis, name=f"{start.name}, robust"), at_noise(loss, scale)


@dataclass(frozen=True)
class Noise:
    """A round that asks how large the noise is, from what a robust fit leaves of each source."""

    def init(self, source: Source, shared: State, local: State) -> State:
        """Keep what the source has."""
        return local

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Answer with robust variances, each as often as there are entries."""
        xp, seen = namespace(shared["basis"]), as_observed(source)
        point = standing(shared, local)
        W = joined(shared["basis"], point["unique"])
        variances = seen.noise(W, point["scores"], point.get("offset"))
        entries = xp.sum(seen.counts[0], axis=-1)
        return point, {"variance": xp.sum(variances * entries), "entries": xp.sum(entries)}

    def merge(self, shared: State, total: Message) -> State:
        """Average."""
        xp = namespace(shared["basis"])
        return shared | {"noise": xp.sqrt(total["variance"] / total["entries"])}

    def finished(self, shared: State) -> str:
        """Finish after one round."""
        return "measured"
