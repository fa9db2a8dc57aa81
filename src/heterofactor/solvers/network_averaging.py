r"""Algorithm 2 of the paper: sources train copies of what is shared, the server averages them.

The shared state has the weights of the shared encoder and of the decoder; a source keeps those of
its unique encoder, and the moments of its own AdamW, also of its copies of what is shared. What it
sends are these copies after its steps, its loss, and its loss on entries that are held out; nothing
is done with messages but to sum them. All weights go by their names in the network.

The best weights on held-out entries are kept where they are: the server tells which round was the
best so far, and a source that has just made this round remembers what it had before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import torch

from heterofactor.batches import Batch, divided, pieces
from heterofactor.engines import Serial
from heterofactor.linalg import to_numpy
from heterofactor.losses import Loss
from heterofactor.networks import AutoEncoder, Given, seeded
from heterofactor.rounds import Engine, MakeEngine, Message, State, run
from heterofactor.solvers.autoencoder import (
    Objective,
    Run,
    Schedule,
    Watch,
    descend,
    optimiser_of,
    refuse_infinite,
    waited,
)

# What AdamW remembers of every weight: its own names, and ours in a private state.
MOMENTS = {"exp_avg": "first", "exp_avg_sq": "second"}
# Torch has one source of random numbers, for all threads.
CHANCE = Lock()


@dataclass(frozen=True, eq=False)
class Samples:
    """What one source holds.

    Attributes
    ----------
    network : AutoEncoder
        With its unique encoder alone: a workbench, which every step fills with weights anew.
    batch : Batch
        Its samples.
    held : sequence of Batch
        The same samples, asking for entries that are held out; or nothing.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.batches import DenseBatch
    >>> from heterofactor.networks import make_networks
    >>> from heterofactor.solvers.network_averaging import Samples
    >>> batch = DenseBatch([2], torch.eye(2), None, torch.ones(4), torch.zeros(4))
    >>> Samples(make_networks([2, 3, 4], 1, 1, seed=0), batch).batch.counts
    [2]
    """

    network: AutoEncoder
    batch: Batch
    held: Sequence[Batch] = ()


@dataclass(frozen=True)
class NetworkAveraging:
    """Algorithm 2 of the paper, as a stage of rounds.

    The penalty on what is shared is counted once, as the paper's objective has it: every source
    carries an equal share. (Its Algorithm 2, read to the letter, counts it once for each source.)

    Parameters
    ----------
    objective : Objective
        What is lowered.
    schedule : Schedule
        How long and how fast. In the round after the last one the rate is zero: it only measures.
    n_local_steps : int
        How often a source goes through its samples between two averages.
    n_batches : int
        In how many steps it does so each time.

    References
    ----------
    Naichen Shi, Salar Fattahi, Raed Al Kontar. Heterogeneous Matrix Factorization: When Features
    Differ by Datasets.

    Examples
    --------
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.networks import make_networks
    >>> from heterofactor.solvers.autoencoder import Objective, Schedule
    >>> from heterofactor.solvers.network_averaging import NetworkAveraging
    >>> stage = NetworkAveraging(Objective(Squared()), Schedule(0.01, 100))
    >>> shared = stage.start(make_networks([9, 4], 3, 1, seed=0), n_sources=3)
    >>> [name for name in shared if name.startswith("decoder")]
    ['decoder.layers.0.weight', 'decoder.layers.0.bias']
    """

    objective: Objective
    schedule: Schedule
    n_local_steps: int = 1
    n_batches: int = 1

    def start(self, network: AutoEncoder, n_sources: int) -> State:
        """Return the shared state that starts from a network's weights."""
        common = {name: v for name, v in _weights(network).items() if not _is_unique(name)}
        numbers = {
            "value": np.inf,
            "gradient": np.nan,  # sources send no slopes, and so nobody knows it
            "sources": n_sources,
            "round": 0,
            "held_out": np.nan,
            "least": np.inf,
            "best": 0,
        }
        return (
            common
            | {f"best.{name}": values for name, values in common.items()}
            | {name: np.asarray(value) for name, value in numbers.items()}
        )

    def init(self, source: Any, shared: State, local: State) -> State:
        """Begin with a unique encoder's weights, which must be there, and with no moments."""
        own = {name: values for name, values in local.items() if _is_unique(name)}
        zeros = {name: np.zeros_like(to_numpy(w)) for name, w in source.network.named_parameters()}
        return (
            {"seed": local["seed"], "steps": np.asarray(0.0), "round": np.asarray(0)}
            | own
            | {f"last.{name}": values for name, values in own.items()}
            | {f"kept.{name}": values for name, values in own.items()}
            | {
                f"{which}.{name}": zero
                for which in MOMENTS.values()
                for name, zero in zeros.items()
            }
        )

    def step(self, source: Any, loss: Loss, shared: State, local: State) -> tuple[State, Message]:
        """Take a source's own steps from the weights that the server sends."""
        objective = replace(self.objective, loss=loss)
        local = _remembered(shared, local)
        network, number = _filled(source.network, shared, local), int(shared["round"])
        missed, count = objective.total(network, source.held)
        rate = self.schedule.at(number) if number < self.schedule.max_rounds else 0.0
        optimiser = _resumed(network, local)
        rng = np.random.default_rng([int(local["seed"]), number])
        n_batches = min(self.n_batches, sum(source.batch.counts))
        share = 1 / float(shared["sources"])
        value = 0.0
        for turn in range(self.n_local_steps):
            for piece in pieces(source.batch, n_batches, rng):
                with _chance(network, rng):
                    left = objective(network, piece, share, 1 / n_batches)
                descend(optimiser, left, rate)
                value += float(left.detach()) * (turn == 0)
        own, copies = _divided(_weights(network))
        local = (
            local
            | {f"last.{name}": local[name] for name in own}
            | own
            | _moments(network, optimiser)
            | {
                "steps": np.asarray(local["steps"] + self.n_local_steps * n_batches),
                "round": np.asarray(number + 1),
            }
        )
        message = copies | {
            "sources": np.asarray(1.0),
            "value": np.asarray(value),
            "held_out": np.asarray(missed),
            "held_count": np.asarray(float(count)),
        }
        return local, message

    def merge(self, shared: State, total: Message) -> State:
        """Average the copies, and see whether the weights before these steps were the best."""
        number = int(shared["round"]) + 1
        refuse_infinite(float(total["value"]), number)
        count, missed = float(total["held_count"]), float(total["held_out"])
        mean = missed / count if count else math.nan
        names = [name for name in shared if f"best.{name}" in shared]
        kept: State = {}
        if mean < float(shared["least"]):
            kept = {"least": np.asarray(mean), "best": np.asarray(number)}
            kept |= {f"best.{name}": shared[name] for name in names}
        averaged = {
            name: np.asarray(total[name] / total["sources"], dtype=shared[name].dtype)
            for name in names
        }
        numbers = {
            "value": total["value"],
            "sources": total["sources"],
            "round": number,
            "held_out": mean,
        }
        return shared | kept | averaged | {name: np.asarray(v) for name, v in numbers.items()}

    def finished(self, shared: State) -> str:
        """Say when held-out entries have been predicted no better for long."""
        best, patience = int(shared["best"]), self.schedule.patience
        return waited(patience) if best and int(shared["round"]) - best >= patience else ""


def averaging(
    network: AutoEncoder,
    objective: Objective,
    batches: Sequence[Batch],
    schedule: Schedule,
    *,
    held: Sequence[Batch | None] = (),
    make_engine: MakeEngine = Serial,
    n_local_steps: int = 1,
    n_batches: int = 1,
    seed: int = 0,
    watch: Watch | None = None,
) -> Run:
    """Train by Algorithm 2 of the paper; the network is changed.

    Parameters
    ----------
    network : AutoEncoder
    objective : Objective
    batches : sequence of Batch
        The samples of each source.
    schedule : Schedule
    held : sequence of (Batch or None)
        The same samples, asking for entries that are held out; empty if there are none.
    make_engine : callable
        Makes an engine of sources and private states: where their steps run.
    n_local_steps, n_batches : int
        As for `NetworkAveraging`.
    seed : int
        Of what is left out at random, and of batches.
    watch : callable, optional
        Called as ``watch(round, value)``.

    Returns
    -------
    Run
    """
    stage = NetworkAveraging(objective, schedule, n_local_steps, n_batches)
    places = range(len(batches))
    asked = [divided(one, n_batches) for one in held or [None] * len(batches)]
    samples: list[Any] = [Samples(network.alone(k), batches[k], asked[k]) for k in places]
    seeds = np.random.SeedSequence(seed).spawn(len(batches))
    local = [
        _divided(_weights(one.network))[0] | {"seed": np.asarray(own.generate_state(1)[0])}
        for one, own in zip(samples, seeds, strict=True)
    ]
    made = Run()

    def note(number: int, value: float, shared: State) -> None:
        made.history.append((value, float(shared["held_out"])))
        if watch is not None and number <= schedule.max_rounds:
            watch(number, value)

    with _engine(make_engine, samples, local) as engine:
        shared = stage.start(network, len(batches))
        most = schedule.max_rounds + bool(held)  # one more to measure what the last step came to
        result = run(stage, engine, objective.loss, shared, max_rounds=most, watch=note)
        found = engine.locals()
    made.history = made.history[: schedule.max_rounds]
    made.best = min(int(result.shared["best"]) or len(made.history), len(made.history))
    made.converged, made.interrupted = result.converged, result.interrupted
    made.stopped = result.stopped
    if not (made.converged or made.interrupted):
        made.stopped = f"stopped after max_rounds={schedule.max_rounds} rounds"
    for one, own in zip(samples, found, strict=True):
        _filled(one.network, *settled(result.shared, own))
    whole = samples[0].network.joined([one.network for one in samples])
    network.load_state_dict(whole.state_dict())
    return made


def settled(shared: State, local: State) -> tuple[State, State]:
    """Return the shared and a private state with the best weights in their places.

    Parameters
    ----------
    shared, local : dict of arrays
        At the end of a run; the same where nothing was held out.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.solvers.network_averaging import settled
    >>> shared = {"best": np.asarray(3), "decoder.b": np.ones(1), "best.decoder.b": np.zeros(1)}
    >>> local = {"round": np.asarray(3), "unique.b": np.ones(1), "last.unique.b": np.zeros(1)}
    >>> shared, local = settled(shared, local)
    >>> float(shared["decoder.b"][0]), float(local["unique.b"][0])
    (0.0, 0.0)
    """
    local = _remembered(shared, local)
    if not int(shared["best"]):
        return shared, local
    best = {name: shared[f"best.{name}"] for name in shared if f"best.{name}" in shared}
    own = {name: local[f"kept.{name}"] for name in local if _is_unique(name)}
    return shared | best, local | own


def _remembered(shared: State, local: State) -> State:
    """Keep what a source had before its last round, if that was the best one so far."""
    best = int(shared["best"])
    if not best or best != int(local["round"]):
        return local
    return local | {f"kept.{name}": local[f"last.{name}"] for name in local if _is_unique(name)}


def _weights(network: AutoEncoder) -> State:
    """Return the weights of a network, by name."""
    return {name: to_numpy(values).copy() for name, values in network.state_dict().items()}


@torch.no_grad()
def _filled(network: AutoEncoder, shared: State, local: State) -> AutoEncoder:
    """Put the weights of a shared and a private state into a network of one source."""
    for name, weight in network.state_dict().items():
        weight.copy_(torch.as_tensor((local if _is_unique(name) else shared)[name]))
    return network


def _is_unique(name: str) -> bool:
    return name.startswith("unique.")


def _divided(weights: State) -> tuple[State, State]:
    """Return the weights of the unique encoder, and all others."""
    own = {name: values for name, values in weights.items() if _is_unique(name)}
    return own, {name: values for name, values in weights.items() if name not in own}


def _resumed(network: AutoEncoder, local: State) -> Any:
    """Return a source's own AdamW as it was left."""
    optimiser = optimiser_of(list(network.parameters()))
    for name, weight in network.named_parameters():
        moments = {
            theirs: torch.tensor(local[f"{ours}.{name}"], device=weight.device)
            for theirs, ours in MOMENTS.items()
        }
        steps = torch.tensor(float(local["steps"]), device=weight.device)
        optimiser.state[weight] = {"step": steps, **moments}
    return optimiser


def _moments(network: AutoEncoder, optimiser: Any) -> State:
    return {
        f"{ours}.{name}": to_numpy(optimiser.state[weight][theirs])
        for name, weight in network.named_parameters()
        for theirs, ours in MOMENTS.items()
    }


@contextmanager
def _chance(network: AutoEncoder, rng: np.random.Generator) -> Iterator[None]:
    """Let a network that may leave something out at random do so as this source's seed says."""
    if not _is_random(network):
        yield
        return
    with CHANCE, seeded(int(rng.integers(np.iinfo(np.int64).max))):
        yield


def _is_random(network: AutoEncoder) -> bool:
    return any(isinstance(m, Given) or getattr(m, "dropout", 0) for m in network.modules())


@contextmanager
def _engine(
    make_engine: MakeEngine, sources: Sequence[Any], local: Sequence[State]
) -> Iterator[Engine]:
    """Make an engine, and let torch have the threads that it leaves free."""
    before = torch.get_num_threads()
    engine = make_engine(sources, local)
    try:
        # what is set here also holds for threads that have not met torch yet
        torch.set_num_threads(max(1, before // getattr(engine, "n_threads", 1)))
        yield engine
    finally:
        engine.close()
        torch.set_num_threads(before)
