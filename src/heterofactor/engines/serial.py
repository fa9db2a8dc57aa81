"""One source after the other, in this process."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

from heterofactor.linalg import Array
from heterofactor.losses import Loss
from heterofactor.rounds import Message, Stage, State
from heterofactor.sources import Source

# A cluster sums the messages of so many sources (or sums) at a time, and all engines sum alike.
BRANCHES = 4


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
    ['curvature', 'gradient', 'sources', 'unsettled', 'value']
    """

    def __init__(self, sources: Sequence[Source], local: Sequence[State]) -> None:
        self.sources = list(sources)
        self._local = list(local)

    def begin(self, stage: Stage, shared: State) -> None:
        """Let every source make its private state for this stage."""
        self._local = list(self._map(lambda source, local: stage.init(source, shared, local)))

    def round(self, stage: Stage, loss: Loss, shared: State) -> Message:
        """Let every source take a step; return the sum of the messages, in a fixed order."""
        answers = list(self._map(lambda source, local: stage.step(source, loss, shared, local)))
        self._local = [local for local, _ in answers]
        messages = [message for _, message in answers]
        return {name: sum_in_order([m[name] for m in messages]) for name in messages[0]}

    def locals(self) -> list[State]:
        """Return the private states."""
        return self._local

    def close(self) -> None:
        """Hold nothing, and so give nothing back."""

    def _map(self, call: Callable[[Source, State], Any]) -> Iterable[Any]:
        return map(call, self.sources, self._local)


def sum_in_order(parts: Sequence[Array]) -> Array:
    """Add arrays four by four, and the sums likewise: the same each time, and on any engine."""
    while len(parts) > 1:
        parts = [reduce(operator.add, some) for some in pieces(parts)]
    return parts[0]


def pieces(items: Sequence[Any]) -> list[Sequence[Any]]:
    """Cut a sequence into what is summed at once; the last piece may be shorter.

    Examples
    --------
    >>> from heterofactor.engines.serial import pieces
    >>> pieces([1, 2, 3, 4, 5])
    [[1, 2, 3, 4], [5]]
    """
    return [items[first : first + BRANCHES] for first in range(0, len(items), BRANCHES)]
