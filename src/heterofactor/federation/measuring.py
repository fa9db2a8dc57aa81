"""A round that asks how large the data are, as sums over all sites."""

from __future__ import annotations

from dataclasses import dataclass

from heterofactor.linalg import like, namespace, to_numpy
from heterofactor.losses import Loss
from heterofactor.masked import as_observed
from heterofactor.observing import raw_scale
from heterofactor.rounds import Message, State
from heterofactor.sources import Source


@dataclass(frozen=True)
class Measuring:
    """How many sources and observed entries there are, their energy, and their robust variance.

    Parameters
    ----------
    robust : bool
        Whether the variance is asked for; it takes passes over the data, and is zero otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.engines import Serial
    >>> from heterofactor.federation.measuring import Measuring
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.rounds import run
    >>> from heterofactor.sources import Dense
    >>> engine = Serial([Dense(np.full((2, 3, 4), 2.0))], [{}])
    >>> found = run(Measuring(), engine, Squared(), {"basis": np.eye(3)}, max_rounds=1).shared
    >>> float(found["sources"]), float(found["energy"])
    (2.0, 96.0)
    """

    robust: bool = False

    def init(self, source: Source, shared: State, local: State) -> State:
        """Keep what the source has."""
        return local

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Answer with sums."""
        xp, energy = namespace(source.energy), source.energy
        entries, variance = 0.0, 0.0
        if self.robust:
            seen = as_observed(source)
            entries = float(to_numpy(seen.counts[0]).sum())
            variance = entries * raw_scale([seen]) ** 2
        sums = {"sources": float(source.shape[0]), "entries": entries, "variance": variance}
        return local, {"energy": xp.sum(energy)} | {
            name: xp.sum(energy) * 0 + value for name, value in sums.items()
        }

    def merge(self, shared: State, total: Message) -> State:
        """Keep the sums."""
        zero = like(0.0, total["energy"])
        return shared | total | {"value": zero, "gradient": zero}

    def finished(self, shared: State) -> str:
        """Finish after one round."""
        return "measured"
