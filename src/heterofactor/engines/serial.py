"""One source after the other, in this process."""

from __future__ import annotations

from collections.abc import Sequence

from heterofactor.losses import Loss
from heterofactor.rounds import Message, Stage, State
from heterofactor.sources import Source


class Serial:
    """Run the sources' steps one after the other.

    Parameters
    ----------
    sources : sequence of Source
        Stacks of matrices.
    local : sequence of dict of arrays
        For each, its private state so far: at least ``unique``, whose width is its unique rank.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.engines import Serial
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.solvers import Grassmann
    >>> from heterofactor.sources import Dense
    >>> source = Dense(np.random.default_rng(0).normal(size=(4, 6, 8)))
    >>> engine = Serial([source], [{"unique": np.zeros((4, 6, 1))}])
    >>> solver = Grassmann(n_shared=2)
    >>> shared = solver.start(np.eye(6)[:, :2])
    >>> engine.begin(solver, shared)
    >>> sorted(engine.round(solver, Squared(), shared))
    ['curvature', 'gradient', 'unsettled', 'value']
    """

    def __init__(self, sources: Sequence[Source], local: Sequence[State]) -> None:
        self.sources = list(sources)
        self._local = list(local)

    def begin(self, stage: Stage, shared: State) -> None:
        """Let every source make its private state for this stage."""
        self._local = [
            stage.init(source, shared, local)
            for source, local in zip(self.sources, self._local, strict=True)
        ]

    def round(self, stage: Stage, loss: Loss, shared: State) -> Message:
        """Let every source take a step; return the sum of the messages, in a fixed order."""
        total: Message = {}
        for place, source in enumerate(self.sources):
            self._local[place], message = stage.step(source, loss, shared, self._local[place])
            total = {name: total[name] + part if total else part for name, part in message.items()}
        return total

    def locals(self) -> list[State]:
        """Return the private states."""
        return self._local

    def close(self) -> None:
        """Hold nothing, and so give nothing back."""
