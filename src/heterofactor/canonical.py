r"""The last round of a fit to what is observed: exact scores, the gauge, the canonical form.

Solvers may leave bases that are neither orthonormal nor orthogonal to each other; the fit does not
change when they are made so, and the scores with them. Without a ridge, the scores are then
solved for once more, to the end, so that they are those that `transform` finds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from heterofactor.factors import Scoring, _signed
from heterofactor.linalg import (
    Array,
    beside,
    complement,
    frame_near,
    leading,
    namespace,
    squared_norm,
)
from heterofactor.losses import Loss, left_over
from heterofactor.masked import as_observed
from heterofactor.observed import Observed, best_scores
from heterofactor.rounds import Message, State
from heterofactor.solvers.alternating import joined, standing
from heterofactor.solvers.easing import Offsets, level
from heterofactor.sources import Source


@dataclass(frozen=True)
class ScoringObserved:
    """The last step of a fit, as a stage of one round: canonical bases, exact scores, centres.

    Parameters
    ----------
    n_shared : int
        Shared directions.
    penalised : bool
        Whether there is a ridge: the scores then stay those of the solver.
    offsets : {"rows", "columns"}, optional
        Whether centres were fitted, one number for each row or for each column of a source, and
        may change with the bases.
    """

    n_shared: int
    penalised: bool = False
    offsets: Offsets = None

    def init(self, source: Source, shared: State, local: State) -> State:
        """Keep what the source has."""
        return local

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Put bases and scores into canonical form."""
        seen, found = as_observed(source), standing(shared, local)
        raw = joined(shared["basis"], found["unique"])
        scores, offset = found.get("scores"), found.get("offset", seen.centre)
        if self.offsets == "columns" and scores is not None:
            offset = offset + namespace(raw).mean(raw, axis=-2, keepdims=True) @ scores.mT
        basis = self._framed(shared["basis"])
        unique = complement(basis, level(found["unique"], self.offsets))
        W = joined(basis, unique)
        turned = W.mT @ level(raw, self.offsets)
        scores = None if scores is None else scores @ turned.mT
        if scores is None or not self.penalised:
            scores, offset = best_scores(
                seen, loss, W, scores, offset, with_offset=self.offsets == "columns"
            )
            if self.offsets == "rows":
                scores, offset = _centred(seen, W, scores, offset)
        own = scores[..., self.n_shared :]
        _, rotation = leading(own.mT @ own, own.shape[-1])
        unique, signs = _signed(unique @ rotation)
        shared_scores, own = scores[..., : self.n_shared], (own @ rotation) * signs
        W = joined(basis, unique)
        parts = squared_norm(shared_scores) + squared_norm(own)
        residual = _residual(seen, loss, W, beside([shared_scores, own]), offset)
        local = {
            "unique": unique,
            "shared_scores": shared_scores,
            "unique_scores": own,
            "energy": parts + residual,
            "turned": W.mT @ level(raw, self.offsets),
        }
        if offset is not None:
            local["offset"] = offset
        return local, {"covariance": namespace(W).sum(shared_scores.mT @ shared_scores, axis=0)}

    def merge(self, shared: State, total: Message) -> State:
        """Find the canonical form of the shared basis."""
        return Scoring().merge(shared | {"basis": self._framed(shared["basis"])}, total)

    def finished(self, shared: State) -> str:
        """Finish after one round."""
        return "scored"

    def _framed(self, basis: Array) -> Array:
        return frame_near(level(basis, self.offsets))


def _centred(
    source: Observed, W: Array, scores: Array, offset: Array | None
) -> tuple[Array, Array | None]:
    """Move the mean of the scores into the offset; a column never observed stays at the offset."""
    if offset is None:
        return scores, offset
    xp = namespace(W)
    known = xp.astype(source.counts[1] > 0, W.dtype)[..., None]
    total = xp.sum(known, axis=-2, keepdims=True)
    mean = xp.sum(scores * known, axis=-2, keepdims=True) / xp.where(total > 0, total, 1.0)
    return (scores - mean) * known, offset + W @ mean.mT


def offsets_by_source(
    locals_: Sequence[State], members: Sequence[Sequence[int]], lengths: Sequence[int]
) -> list[Array | None]:
    """Return the fitted centre of each source, one number for each of its `lengths` features."""
    found: dict[int, Array | None] = {}
    for local, places in zip(locals_, members, strict=True):
        for k, place in enumerate(places):
            offset = local.get("offset")
            if offset is not None:
                offset = namespace(offset).reshape(offset[k, ...], (-1,))[: lengths[place]]
            found[place] = offset
    return [found[place] for place in range(len(found))]


def turned_by_source(
    shared: State,
    locals_: Sequence[State],
    members: Sequence[Sequence[int]],
    names: Sequence[Hashable],
) -> dict[Hashable, Array]:
    """Return, for each source, what turns its canonical frame into the one that had the ridge."""
    turned: dict[Hashable, Array] = {}
    turn = shared["turn"]
    r1 = turn.shape[-1]
    for local, places in zip(locals_, members, strict=True):
        for k, place in enumerate(places):
            raw = local["turned"][k, ...]
            xp = namespace(raw)
            turned[names[place]] = xp.concat([turn.mT @ raw[:r1, :], raw[r1:, :]], axis=0)
    return turned


def _residual(source: Observed, loss: Loss, W: Array, H: Array, offset: Array | None) -> Array:
    """Return the sum of squares that the fit leaves, as if every entry had been observed."""
    left, _ = source.majorise(_Left(loss), W, H, offset)
    share = source.share
    return left / namespace(W).where(share > 0, share, 1.0)


@dataclass(frozen=True)
class _Left:
    """What a prediction leaves of an entry, squared, on the scale of predictions."""

    loss: Loss

    def value(self, m: Array, z: Array) -> Array:
        return left_over(self.loss, m, z)

    def slope(self, m: Array, z: Array) -> Array:
        return z * 0

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        return z * 0, z
