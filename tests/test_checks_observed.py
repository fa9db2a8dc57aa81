"""The contract of sources with holes catches sources that break it, and says where."""

from dataclasses import replace

import numpy as np
import pytest

from heterofactor.checks import check_observed
from heterofactor.losses import Linked, Squared
from heterofactor.masked import Masked

TIMES = {"asked": 0}


def made(kind=Masked, dtype=np.float64):
    """Make two matrices with holes, weights, and lines with fewer entries than unknowns."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(2, 6, 8)) + 0.5
    weight = (rng.random(matrix.shape) < 0.6) * rng.uniform(0.5, 2, matrix.shape)
    weight[0, 2], weight[1, :, 3] = 0, 0
    centre = matrix.mean(axis=-1, keepdims=True)
    return kind(*(array.astype(dtype) for array in (matrix, weight, centre)))


class CountsWeights(Masked):
    @property
    def counts(self):
        return self.weight.sum(axis=-1), self.weight.sum(axis=-2)


class ShareOfSeen(Masked):
    @property
    def share(self):
        return self._seen.mean(axis=(-2, -1))


class FillsHoles(Masked):
    def matmat(self, H):
        return (self.matrix - self.centre) @ H


class EnergyWithoutWeights(Masked):
    @property
    def energy(self):
        return (self._filled**2).sum(axis=(-2, -1))


class ValueWithoutWeights(Masked):
    def majorise(self, loss, W, H, offset):
        value, working = super().majorise(loss, W, H, offset)
        if not isinstance(loss, Squared):
            return value, working
        return (self._left(W, H, offset) ** 2 * self._seen).sum(axis=(-2, -1)) / 2, working


class TargetsAtZero(Masked):
    """Majorises at the offset, not at the prediction."""

    def majorise(self, loss, W, H, offset):
        value, working = super().majorise(loss, W, H, offset)
        return value, super().majorise(loss, W * 0, H, offset)[1] if working[
            0
        ] is not None else working


class OffsetForgotten(Masked):
    def scores(self, working, W, offset, precision):
        return super().scores(working, W, None, precision)


class RidgeOfTheFirst(Masked):
    """Gives the whole stack the ridge of its first matrix."""

    def scores(self, working, W, offset, precision):
        first = precision[0] if precision is not None and precision.ndim == 3 else precision
        return super().scores(working, W, offset, first)


class BasisForgotten(Masked):
    def own(self, working, basis, H, offset, precision):
        return super().own(working, basis * 0, H, offset, precision)


class RidgeOutsideTheShaft(Masked):
    def arrow(self, working, basis, H, offset, precision):
        schur, right, _ = super().arrow(working, basis, H, offset, None)
        return schur, right, super().arrow(working, basis, H, offset, precision)[2]


class ArrowOfOne(Masked):
    """Sums no more than the first of the stack."""

    def arrow(self, working, basis, H, offset, precision):
        cut = None if working[0] is None else tuple(array[:1] for array in working)
        first = replace(self, matrix=self.matrix[:1], weight=self.weight[:1])
        first = Masked(first.matrix, first.weight)
        one = None if precision is None or precision.ndim == 2 else precision[:1]
        offset_one = None if offset is None else offset[:1]
        found = first.arrow(
            cut or (None, None), basis, H[:1], offset_one, precision if one is None else one
        )
        return *found[:2], super().arrow(working, basis, H, offset, precision)[2]


class ReachOverHoles(Masked):
    def longest(self, loss, W, change):
        return Masked(self.matrix).longest(loss, W, change)


class GuessNotScaled(Masked):
    def guess(self, loss):
        found = super().guess(loss)
        return replace(found, matrix=found.matrix * self._seen.mean())


class NotLocated(Masked):
    def located(self, loss):
        return self if isinstance(loss, Linked) else replace(self, centre=self.centre + 0.3)


class RefusesHoles(Masked):
    def refused(self, unobservable):
        return Masked(self.matrix).refused(unobservable)


class NoiseOfHoles(Masked):
    def noise(self, W, H, offset):
        return Masked(self.matrix * self._seen).noise(W, H, offset)


class WeightsOnce(Masked):
    def weighted(self, weight):
        return replace(self, weight=self.weight * weight[:, None, None])


class Upcast(Masked):
    def own(self, *arguments):
        return super().own(*arguments).astype(np.float64)


class Drifting(Masked):
    """Gives another answer each time."""

    def noise(self, W, H, offset):
        TIMES["asked"] += 1
        return super().noise(W, H, offset) * (1 + 1e-15 * TIMES["asked"])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (CountsWeights, "counts of the rows"),
        (ShareOfSeen, "share"),
        (FillsHoles, "matmat is not that of the entries"),
        (EnergyWithoutWeights, "energy is not that of the entries"),
        (ValueWithoutWeights, r"value of majorise under Squared\(\)"),
        (TargetsAtZero, "scores under Huber"),
        (OffsetForgotten, "scores under .* do not solve"),
        (RidgeOfTheFirst, "scores under .* do not solve"),
        (BasisForgotten, "unique rows under"),
        (RidgeOutsideTheShaft, "Schur complements under"),
        (ArrowOfOne, "Schur complements under"),
        (ReachOverHoles, "longest under Poisson"),
        (GuessNotScaled, "guess under"),
        (NotLocated, "a constant is better than the centre located under"),
        (RefusesHoles, "refused says"),
        (NoiseOfHoles, "noise is not that of what is left"),
        (WeightsOnce, "weighted does not weigh the entries by squares"),
        (Upcast, "unique rows under .*: float64, where the data are of float32"),
        (Drifting, "asked again"),
    ],
)
def test_broken_sources_with_holes_are_caught(kind: type[Masked], message: str) -> None:
    dtype = np.float32 if kind is Upcast else np.float64
    check_observed(made(dtype=dtype))
    with pytest.raises(AssertionError, match=message):
        check_observed(made(kind, dtype))
