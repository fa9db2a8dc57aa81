"""The sources' steps on the workers of a Dask cluster: one pure task for each shard of sources.

Shared states travel as tasks too: what is only scattered is lost with its worker, while a task is
run again elsewhere, on the same numbers. Private states stay on the workers; every few rounds they
are fetched and sent anew, so that little has to be run again.
"""

from __future__ import annotations

import atexit
import operator
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from heterofactor.engines.serial import Serial, pieces, sum_in_order
from heterofactor.losses import Loss
from heterofactor.rounds import Message, Stage, State
from heterofactor.sources import Source

# On glibc, arrays of NumPy cost five times their time with the thresholds that workers start with.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "33554432"}


@dataclass(frozen=True)
class DaskEngine:
    """Run the sources' steps on a Dask cluster; for the parameter `engine` of a model.

    The answer is that of `Serial`, on any number of workers. A worker that dies is replaced by
    Dask, and what it had is computed again.

    Parameters
    ----------
    client : distributed.Client or str, optional
        A client, or the address of a scheduler. Left out, the client that is current; without one,
        a cluster on this machine with one worker for each core, which stays until Python ends. (A
        program that starts workers needs the guard ``if __name__ == "__main__":``.)
    keep : int
        After so many rounds private states are fetched, so that no more has to be run again when a
        worker is lost.

    Examples
    --------
    >>> from heterofactor.engines import DaskEngine
    >>> DaskEngine("tcp://192.0.2.1:8786").keep  # HMF(engine=DaskEngine(...))
    2
    """

    client: Any = None
    keep: int = 2

    def __call__(self, sources: Sequence[Source], local: Sequence[State]) -> OnDask:
        """Return the engine of some sources and their private states."""
        own = isinstance(self.client, str)
        return OnDask(sources, local, _client(self.client), self.keep, own=own)


class OnDask:
    """An engine at work on the workers of a client.

    Parameters
    ----------
    sources : sequence of Source
        Stacks of matrices.
    local : sequence of dict of arrays
        For each, its private state so far.
    client : distributed.Client
        Of the cluster.
    keep : int
        Rounds after which private states are fetched.
    own : bool
        Close the client with the engine.

    Examples
    --------
    >>> from heterofactor.engines.dask import OnDask
    >>> [name for name in ("begin", "round", "locals", "close") if hasattr(OnDask, name)]
    ['begin', 'round', 'locals', 'close']
    """

    def __init__(
        self,
        sources: Sequence[Source],
        local: Sequence[State],
        client: Any,
        keep: int,
        *,
        own: bool = False,
    ) -> None:
        self._client, self._keep, self._own, self._rounds = client, keep, own, 0
        self._sources = [self._submit(given, part) for part in pieces(sources)]
        self._local = [self._submit(given, part) for part in pieces(local)]

    def begin(self, stage: Stage, shared: State) -> None:
        """Let every source make its private state for this stage."""
        state = self._submit(given, shared)
        self._local = [
            self._submit(begin, stage, state, sources, local)
            for sources, local in zip(self._sources, self._local, strict=True)
        ]

    def round(self, stage: Stage, loss: Loss, shared: State) -> Message:
        """Let every source take a step; return the sum of the messages, in a fixed order."""
        state = self._submit(given, shared)
        answers = [
            self._submit(step, stage, loss, state, sources, local)
            for sources, local in zip(self._sources, self._local, strict=True)
        ]
        local = [self._submit(operator.itemgetter(0), answer) for answer in answers]
        messages = [self._submit(operator.itemgetter(1), answer) for answer in answers]
        while len(messages) > 1:
            messages = [self._submit(add, *some) for some in pieces(messages)]
        total: Message = messages[0].result()
        self._local, self._rounds = local, self._rounds + 1
        if self._rounds % self._keep == 0:
            self._local = [self._submit(given, part) for part in self._client.gather(self._local)]
        return total

    def locals(self) -> list[State]:
        """Return the private states."""
        return [state for part in self._client.gather(self._local) for state in part]

    def close(self) -> None:
        """Let the workers forget what they hold."""
        self._sources, self._local = [], []
        if self._own:
            self._client.close()

    def _submit(self, call: Callable[..., Any], *arguments: Any) -> Any:
        with warnings.catch_warnings():
            # a source travels with its task on purpose, so that it can be run again
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self._client.submit(call, *arguments, pure=False)


def given(value: Any) -> Any:
    """Return what was sent, as a task that can be run again.

    Examples
    --------
    >>> from heterofactor.engines.dask import given
    >>> given(7)
    7
    """
    return value


def begin(
    stage: Stage, shared: State, sources: Sequence[Source], local: Sequence[State]
) -> list[State]:
    """Make the private states of a shard of sources."""
    engine = Serial(sources, local)
    engine.begin(stage, shared)
    return engine.locals()


def step(
    stage: Stage, loss: Loss, shared: State, sources: Sequence[Source], local: Sequence[State]
) -> tuple[list[State], Message]:
    """Let a shard of sources take a step; return their private states and the sum of messages."""
    engine = Serial(sources, local)
    message = engine.round(stage, loss, shared)
    return engine.locals(), message


def add(*messages: Message) -> Message:
    """Return the sum of messages.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.engines.dask import add
    >>> add({"value": np.array(1.0)}, {"value": np.array(2.0)})
    {'value': np.float64(3.0)}
    """
    return {name: sum_in_order([m[name] for m in messages]) for name in messages[0]}


def _client(asked: Any) -> Any:
    try:
        import distributed
    except ModuleNotFoundError as error:
        if error.name != "distributed":
            raise
        raise ImportError(
            "engine='dask' needs Dask: pip install 'heterofactor[cluster]'."
        ) from error
    if isinstance(asked, str):
        asked = distributed.Client(asked, set_as_default=False)
    if asked is None:
        try:
            asked = distributed.get_client()
        except ValueError:
            return _cluster_here()
    _warn_of_malloc(asked)
    return asked


@cache
def _cluster_here() -> Any:
    """Start a cluster on this machine, once, and stop it when Python ends."""
    import dask
    import distributed

    name = "distributed.nanny.pre-spawn-environ"
    with dask.config.set({name: dask.config.get(name) | MALLOC}):
        cluster = distributed.LocalCluster(threads_per_worker=1, dashboard_address=":0")
    client = distributed.Client(cluster, set_as_default=False)
    atexit.register(cluster.close)
    atexit.register(client.close)
    return client


def _warn_of_malloc(client: Any) -> None:
    """Say what makes workers slow that others have started."""
    if any(client.run(_trims, on_error="ignore").values()):
        settings = " ".join(f"{name}={value}" for name, value in MALLOC.items())
        warnings.warn(
            "The workers of this cluster give memory back so eagerly that NumPy takes up to five "
            f"times as long: start them with {settings} in their environment (in Dask's "
            "configuration, distributed.nanny.pre-spawn-environ).",
            RuntimeWarning,
            stacklevel=2,
        )


def _trims() -> bool:
    """Say whether this process has the threshold that Dask sets, and not the one for arrays."""
    return "MALLOC_TRIM_THRESHOLD_" in os.environ and "MALLOC_MMAP_THRESHOLD_" not in os.environ
