"""Scores of new samples that have holes, or under another loss than the squared one.

What `scores` does with products, here one (weighted, repeated) least squares for each sample.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heterofactor.factors import Factors
from heterofactor.linalg import (
    Array,
    beside,
    like,
    machine_epsilon,
    namespace,
    squared_norm,
    trace,
    zeros,
)
from heterofactor.losses import OUTLYING, Excess, Huber, Loss, Trimmed, link
from heterofactor.observed import Observed, best_scores, worked
from heterofactor.observing import observed_source
from heterofactor.scores import centre_of
from heterofactor.tables import Tables

# New rows of the bases have settled when a step changes them by less than this share.
SETTLED = 1e-10
SETTLING = 200


@dataclass(frozen=True)
class Projection:
    """What a fit knows that new samples are scored with.

    Attributes
    ----------
    factors : Factors
        Of the fit.
    centres : dict of array or None
        The offset of each source's features.
    loss : Loss
        Under which scores are best.
    ridge : (float, float)
        Penalties of shared and unique scores.
    turned : dict of array
        For each source, what turns its canonical frame into the one that had the ridge.
    absent : bool
        Whether entries that a sparse table does not store were not observed.
    weights : dict of float
        By which entries were multiplied in the fit, so that every source counts the same for what
        they share; empty where they were not.
    """

    factors: Factors
    centres: dict[Hashable, Array | None]
    loss: Loss
    ridge: tuple[float, float]
    turned: dict[Hashable, Array]
    absent: bool
    weights: dict[Hashable, float]

    def scores(self, tables: Tables, names: Sequence[Any]) -> list[tuple[Array, Array]]:
        """Return the shared and the unique scores of each table's samples; see `score_samples`."""
        if tables.shared_axis == "samples":
            return self._rows(tables, names)
        return [self._columns(tables, place, name) for place, name in enumerate(names)]

    def fitted(self, tables: Tables, names: Sequence[Any]) -> list[tuple[Array, Array]]:
        """Return the scores that the fit gave to the samples of its own tables."""
        factors, parts = self.factors, []
        for name, table in zip(names, tables.values, strict=True):
            found = (factors.shared_scores[name], factors.unique_scores[name])
            if tables.shared_axis == "samples":
                found = (factors.shared_basis, factors.unique_bases[name])
            if found[0].shape[0] != table.shape[0]:
                raise ValueError(
                    f"Source {name!r} has {table.shape[0]} samples, but {found[0].shape[0]} were "
                    "fitted: ObservedEntries are predicted in the tables of the fit. Give the "
                    "tables themselves to score new samples."
                )
            parts.append(found)
        return parts

    def predicted(self, name: Any, shared: Array, unique: Array, by_samples: bool) -> Array:
        """Return what samples with these scores are expected to be."""
        factors = self.factors
        if by_samples:
            fitted = shared @ factors.shared_scores[name].mT
            fitted = fitted + unique @ factors.unique_scores[name].mT
        else:
            fitted = shared @ factors.shared_basis.mT
            if name is not None:
                fitted = fitted + unique @ factors.unique_bases[name].mT
        centre = centre_of(self.centres, name)
        return link(self.loss, fitted if centre is None else fitted + centre)

    def misfit(
        self, source: Observed, name: Any, scores: tuple[Array, Array] | None, by_samples: bool
    ) -> float:
        """Return by how much observed entries are missed; by the centre alone without scores."""
        factors, centre = self.factors, centre_of(self.centres, name)
        if by_samples:
            frame = beside([factors.shared_scores[name], factors.unique_scores[name]])
        else:
            own = factors.shared_basis[:, :0] if name is None else factors.unique_bases[name]
            frame = beside([factors.shared_basis, own])
        lines = source.shape[1 if by_samples else 2]
        points = zeros(like(np.zeros((lines, 0)), frame), frame.shape[-1])
        if scores is not None:
            unique = scores[1][:, : frame.shape[-1] - scores[0].shape[-1]]
            points = beside([scores[0], unique])
        W, H = (points, frame) if by_samples else (frame, points)
        offset = None
        if centre is not None:
            offset = centre[None, None, :] if by_samples else centre[None, :, None]
        value, _ = source.majorise(Excess(self.loss), W[None, ...], H[None, ...], offset)
        return float(value[0])

    def _turn(self, name: Any, example: Array, rank: int) -> tuple[Array, Array | None]:
        """Return the frame that had the ridge, and the ridge."""
        r1 = int(self.factors.shared_basis.shape[1])
        if not self.turned or (name is not None and name not in self.turned):
            return like(np.eye(rank), example), None
        turn = self.turned[self.factors.names[0] if name is None else name][:rank, :rank]
        ridge = np.repeat(self.ridge, [r1, rank - r1])
        return turn, like(np.diag(ridge), example)

    def _weighed(self, source: Observed, name: Any) -> Observed:
        """Let entries count as they did in the fit; a source never seen, as the others on average.

        For scores of single samples it matters beside a ridge only.
        """
        if not self.weights:
            return source
        mean = sum(self.weights.values()) / len(self.weights)
        weight: Any = like(np.full(1, self.weights.get(name, mean)), source.energy)
        weighed: Any = source.weighted(weight)
        return weighed  # type: ignore[no-any-return]

    def _stages(self) -> list[Loss]:
        """Return the losses under which scores are found, one from where the last one led.

        Trimming alone would leave out at once whatever lies far from the centre.
        """
        if not isinstance(self.loss, Trimmed):
            return [self.loss]
        scale = (self.loss.threshold or 0.0) / OUTLYING
        return [Huber().at_noise(scale), self.loss]

    def _columns(self, tables: Tables, place: int, name: Any) -> tuple[Array, Array]:
        source = self._weighed(observed_source(tables, place, self.loss, absent=self.absent), name)
        basis = self.factors.shared_basis
        W = basis if name is None else beside([basis, self.factors.unique_bases[name]])
        turn, precision = self._turn(name, W, W.shape[-1])
        centre = centre_of(self.centres, name)
        offset = None if centre is None else centre[None, :, None]
        raw: Array = None
        for loss in self._stages():
            raw, _ = best_scores(
                source, loss, (W @ turn)[None, ...], raw, offset, precision=precision
            )
        scores = raw[0, ...] @ turn.mT
        return scores[:, : basis.shape[1]], scores[:, basis.shape[1] :]

    def _rows(self, tables: Tables, names: Sequence[Any]) -> list[tuple[Array, Array]]:
        """Fit new rows of all bases together, the unique ones eliminated."""
        factors, r1 = self.factors, int(self.factors.shared_basis.shape[1])
        parts: list[tuple[Observed, Array, Array, Array, Array | None, Array | None]] = []
        for place, name in enumerate(names):
            read = observed_source(tables, place, self.loss, absent=self.absent)
            source = self._weighed(read, name)
            H = beside([factors.shared_scores[name], factors.unique_scores[name]])
            turn, precision = self._turn(name, H, H.shape[-1])
            # a component that the ridge has taken back to nothing stays so
            inverse = namespace(H).linalg.pinv(turn, rtol=machine_epsilon(turn) ** 0.5)
            centre = self.centres[name]
            offset = None if centre is None else centre[None, None, :]
            W = H[:1, :] * like(np.zeros((source.shape[1], 1)), H)
            parts.append((source, (H @ inverse.mT)[None, ...], inverse, W[None], offset, precision))
        weights = [part[3] for part in parts]
        for loss in self._stages():
            weights = self._settled(loss, parts, weights, r1)
        found = []
        for (_, _, inverse, *_), W in zip(parts, weights, strict=True):
            rows = W[0, ...] @ inverse
            found.append((rows[:, :r1], rows[:, r1:]))
        return found

    def _settled(
        self, loss: Loss, parts: Sequence[Any], weights: list[Array], r1: int
    ) -> list[Array]:
        """Sweep until the rows no longer change."""
        best = np.inf
        for _ in range(SETTLING):
            new = self._swept(loss, parts, weights, r1)
            change = sum(float(squared_norm(a - b)[0]) for a, b in zip(new, weights, strict=True))
            size = sum(float(squared_norm(a)[0]) for a in new)
            for _ in range(30):
                value = self._value(loss, parts, new)
                if value <= best:
                    break
                new = [(a + b) / 2 for a, b in zip(new, weights, strict=True)]
            best, weights = min(value, best), new
            if change <= SETTLED**2 * size:
                break
        return weights

    def _swept(
        self, loss: Loss, parts: Sequence[Any], weights: Sequence[Array], r1: int
    ) -> list[Array]:
        shared = weights[0][0, :, :r1]
        xp = namespace(shared)
        matrix: Array = 0
        right: Array = 0
        problems = []
        for (source, H, _, _, offset, precision), W in zip(parts, weights, strict=True):
            _, working = worked(source, loss, W, H, offset)
            own = None if precision is None else precision[r1:, r1:]
            schur, rest, _ = source.arrow(working, shared, H, offset, own)
            matrix, right = matrix + schur, right + rest
            problems.append((source, working, H, offset, own))
        if self.turned:
            matrix = matrix + self.ridge[0] * like(np.eye(r1), matrix)
        damping = trace(matrix) * machine_epsilon(matrix)
        damping = xp.where(damping > 0, damping, 1.0)[..., None, None]
        shared = xp.linalg.solve(matrix + damping * like(np.eye(r1), matrix), right[..., None])
        shared = shared[..., 0]
        found = []
        for source, working, H, offset, own in problems:
            unique = source.own(working, shared, H, offset, own)
            found.append(beside([shared[None, ...], unique]))
        return found

    def _value(self, loss: Loss, parts: Sequence[Any], weights: Sequence[Array]) -> float:
        total = 0.0
        for (source, H, _, _, offset, _), W in zip(parts, weights, strict=True):
            value, _ = source.majorise(loss, W, H, offset)
            total += float(value[0])
        return total
