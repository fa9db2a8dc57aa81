"""The one loop: every source takes a step, the messages are summed, the server merges.

What a stage of a fit must be (a solver is one), what an engine must be, and the `run` that drives
the one on the other.
State is flat dicts of arrays throughout: a checkpoint, a message or a task is such a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from heterofactor.linalg import Array, like
from heterofactor.losses import Loss
from heterofactor.sources import Source

State = dict[str, Array]
Message = dict[str, Array]
Watch = Callable[[int, float, State], None]


class Stage(Protocol):
    """A part of a fit that runs in rounds: a frozen dataclass of settings, with no state.

    The shared state always holds its ``value`` (lower is better) and ``gradient`` (relative, zero
    at a stationary point; NaN where nobody knows it). That of a fit of factors holds the ``basis``
    that stands.
    """

    def init(self, source: Source, shared: State, local: State) -> State:
        """Return the private state of a source from what it had; pure; runs where the source is.

        In a fit of factors, the width of ``local["unique"]`` says how many unique directions are
        asked of the source.
        """

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Return the next private state and a message to be summed; pure."""

    def merge(self, shared: State, total: Message) -> State:
        """Return the next shared state from the summed messages; pure; runs on the server."""

    def finished(self, shared: State) -> str:
        """Return why there is nothing left to do, or an empty string."""


class Solver(Stage, Protocol):
    """The stage that finds the factors."""

    @property
    def n_shared(self) -> int:
        """How many shared directions are sought."""

    @property
    def scale_free(self) -> bool:
        """Whether its settings mean the same in any units of the data."""

    @property
    def spread(self) -> float:
        """The size of the entries of its small random start; 0 if it starts spectrally."""

    def start(self, basis: Array) -> State:
        """Return the shared state that starts from a shared basis."""


class Engine(Protocol):
    """Where the steps run.

    Where sources may be missing from a round, ``has_changed`` says whether the last sum is over
    other sources than the one before.
    """

    def begin(self, stage: Stage, shared: State) -> None:
        """Let every source make its private state for this stage."""

    def round(self, stage: Stage, loss: Loss, shared: State) -> Message:
        """Let every source take a step; return the sum of the messages, in a fixed order."""

    def locals(self) -> list[State]:
        """Return the private states, where they may leave their owners."""

    def close(self) -> None:
        """Give back what the engine holds."""


# Makes an engine of stacks of sources, and of the private state of each.
MakeEngine = Callable[[Sequence[Source], Sequence[State]], Engine]


@dataclass
class Result:
    """What a run came to.

    Attributes
    ----------
    shared : dict of arrays
        The shared state at the end.
    history : list of (value, gradient)
        One pair a round.
    converged : bool
        Whether the stage itself said that it had finished.
    stopped : str
        Why the run stopped, a sentence.
    interrupted : bool
        Whether it was stopped from the keyboard.
    """

    shared: State
    history: list[tuple[float, float]] = field(default_factory=list)
    converged: bool = False
    stopped: str = ""
    interrupted: bool = False


def run(
    stage: Stage,
    engine: Engine,
    loss: Loss,
    shared: State,
    *,
    max_rounds: int,
    watch: Watch | None = None,
    before: Result | None = None,
) -> Result:
    """Run a stage on an engine until it has finished, or `max_rounds` are over.

    Parameters
    ----------
    stage, engine, loss
        What to do, where, and to what end.
    shared : dict of arrays
        The shared state to start from.
    max_rounds : int
        When to give up.
    watch : callable, optional
        Called as ``watch(number, value, shared)`` after every round.
    before : Result, optional
        Of the rounds that were run before: the run goes on from there, with an engine that has the
        private states of that time.

    Returns
    -------
    Result
        Of the last complete round also where the run was interrupted from the keyboard.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.engines import Serial
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.rounds import run
    >>> from heterofactor.solvers import Averaging
    >>> from heterofactor.sources import Dense
    >>> rng = np.random.default_rng(0)
    >>> source = Dense(rng.normal(size=(4, 6, 1)) @ rng.normal(size=(4, 1, 8)))
    >>> engine = Serial([source], [{"unique": np.zeros((4, 6, 1))}])
    >>> solver = Averaging(n_shared=1, tol=1e-6)
    >>> begin = solver.start(0.01 * rng.normal(size=(6, 1)))
    >>> result = run(solver, engine, Squared(), begin, max_rounds=2000)
    >>> result.stopped
    'the relative gradient fell below 1e-06'
    """
    result = Result(shared)
    if before is not None:
        shared = before.shared
        result = replace(before, history=list(before.history), interrupted=False)
    result.stopped = f"stopped after max_rounds={max_rounds} rounds"
    try:
        if before is None:
            engine.begin(stage, shared)
        elif reason := stage.finished(shared):
            result.converged, result.stopped = True, reason
            return result
        for number in range(len(result.history) + 1, max_rounds + 1):
            total = engine.round(stage, loss, shared)
            if getattr(engine, "has_changed", False):
                # a sum over other sources is not comparable: the point it is about stands
                shared = shared | {"value": like(np.asarray(np.inf), shared["value"])}
            result.shared = shared = stage.merge(shared, total)
            value, gradient = float(shared["value"]), float(shared["gradient"])
            result.history.append((value, gradient))
            if watch is not None:
                watch(number, value, shared)
            if reason := stage.finished(shared):
                result.converged, result.stopped = True, reason
                break
    except KeyboardInterrupt:
        result.interrupted = True
        result.stopped = f"interrupted after {len(result.history)} rounds; the best so far stands"
    return result
