r"""How the heterogeneous auto-encoder is trained, with one optimiser for all weights.

What is lowered is :math:`\sum_i \mathrm{loss}_i + R`, the loss over observed entries, with AdamW.
The paper's Algorithm 2, `network_averaging`, lowers the same, with an optimiser for each source.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from heterofactor.batches import Batch, Tensor, divided, pieces
from heterofactor.losses import Loss
from heterofactor.networks import AutoEncoder

# Rounds in which the rate rises, as a share of all; then it falls as a cosine to the share LAST.
WARM, LAST = 0.05, 0.01

Watch = Callable[[int, float], None]


@dataclass
class Run:
    """What a training came to.

    Attributes
    ----------
    history : list of (value, held_out)
        One pair a round: the objective, and the mean loss of held-out entries (NaN without any),
        both before the round's step.
    best : int
        The round whose weights were kept, counted from 1.
    converged : bool
        Whether it stopped because held-out entries were predicted no better.
    stopped : str
        Why it stopped, a sentence.
    interrupted : bool
        Whether it was stopped from the keyboard.
    """

    history: list[tuple[float, float]] = field(default_factory=list)
    best: int = 0
    converged: bool = False
    stopped: str = ""
    interrupted: bool = False


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Parameters
    ----------
    rate : float
        The largest learning rate of AdamW.
    max_rounds : int
        When to stop at the latest.
    patience : int
        Stop when held-out entries have not been predicted better for so many rounds.

    Examples
    --------
    >>> from heterofactor.solvers.autoencoder import Schedule
    >>> [round(Schedule(0.01, 100).at(step), 4) for step in (0, 5, 99)]
    [0.002, 0.01, 0.0001]
    """

    rate: float
    max_rounds: int
    patience: int = 20

    def at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0: a short rise, then a cosine."""
        warm = max(1, round(WARM * self.max_rounds))
        if step < warm:
            return self.rate * (step + 1) / warm
        turn = math.pi * (step - warm) / max(1, self.max_rounds - 1 - warm)
        return self.rate * (LAST + (1 - LAST) * (1 + math.cos(turn)) / 2)


@dataclass(frozen=True)
class Objective:
    """What is lowered: the loss of the entries asked for, and the penalty on weights.

    Parameters
    ----------
    loss : Loss
    ridge : (float, float)
        On the weights that are shared, and on those of the unique encoders.
    kernel : float
        On the kernels.
    unit : float
        The networks predict in this unit of the data, and the loss is divided by its square, so
        that penalties mean the same in all units.
    """

    loss: Loss
    ridge: tuple[float, float] = (0.0, 0.0)
    kernel: float = 0.0
    unit: float = 1.0

    def __call__(
        self, network: AutoEncoder, batch: Batch, share: float = 1.0, part: float = 1.0
    ) -> Tensor:
        """Return the loss of a batch, with a part of the penalty, and a share of what is shared."""
        shared, unique = network.penalty(self.ridge, self.kernel)
        missed = _Loss.apply(self.loss, batch.targets, self._predicted(network, batch))
        return missed / self.unit**2 + part * (share * shared + unique)

    def total(self, network: AutoEncoder, batches: Iterable[Batch]) -> tuple[float, int]:
        """Return the loss of the entries asked for, without penalties, and how many they are."""
        missed, count = 0.0, 0
        with torch.no_grad():
            network.eval()
            for batch in batches:
                z = self._predicted(network, batch)
                missed += float(torch.as_tensor(self.loss.value(batch.targets, z)).sum())
                count += len(batch.targets)
            network.train()
        return missed, count

    def mean(self, network: AutoEncoder, batches: Iterable[Batch]) -> float:
        """Return the mean loss of the entries asked for; NaN without any."""
        missed, count = self.total(network, batches)
        return missed / count if count else math.nan

    def _predicted(self, network: AutoEncoder, batch: Batch) -> Tensor:
        return self.unit * network(batch) + batch.offsets


class _Loss(torch.autograd.Function):
    """The sum of a loss of the library, and its slope: what torch needs to know of it."""

    @staticmethod
    def forward(ctx: Any, loss: Loss, observed: Tensor, z: Tensor) -> Tensor:
        ctx.loss = loss
        ctx.save_for_backward(observed, z)
        return torch.as_tensor(loss.value(observed, z)).sum()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        observed, z = ctx.saved_tensors
        return None, None, slope * torch.as_tensor(ctx.loss.slope(observed, z))


def joint(
    network: AutoEncoder,
    objective: Objective,
    batch: Batch,
    schedule: Schedule,
    *,
    held: Batch | None = None,
    parameters: Sequence[Tensor] | None = None,
    n_batches: int = 1,
    seed: int = 0,
    watch: Watch | None = None,
) -> Run:
    """Train all weights, or some, with one optimiser; the network is changed.

    Parameters
    ----------
    network : AutoEncoder
    objective : Objective
    batch : Batch
        The samples of all sources.
    schedule : Schedule
    held : Batch, optional
        The same samples, asking for entries that are held out.
    parameters : sequence of tensor, optional
        What to train; everything if left out.
    n_batches : int
        In how many steps a round goes through the samples.
    seed : int
        Of which samples go together.
    watch : callable, optional
        Called as ``watch(round, value)``.

    Returns
    -------
    Run
    """
    trained = list(network.parameters() if parameters is None else parameters)
    for weight in network.parameters():
        weight.requires_grad_(any(weight is one for one in trained))
    optimiser, rng = optimiser_of(trained), np.random.default_rng(seed)

    def step(rate: float) -> float:
        value = 0.0
        for piece in pieces(batch, n_batches, rng):
            left = objective(network, piece, part=1 / n_batches)
            descend(optimiser, left, rate)
            value += float(left.detach())
        return value

    return _rounds(step, network, objective, schedule, divided(held, n_batches), watch)


def _rounds(
    step: Callable[[float], float],
    network: AutoEncoder,
    objective: Objective,
    schedule: Schedule,
    held: Sequence[Batch],
    watch: Watch | None,
) -> Run:
    """Take steps until held-out entries are predicted no better; keep the best weights."""
    run, best, kept = Run(), math.inf, None
    run.stopped = f"stopped after max_rounds={schedule.max_rounds} rounds"
    try:
        for number in range(1, schedule.max_rounds + 1):
            missed = objective.mean(network, held)
            if missed < best:
                best, run.best = missed, number
                kept = copy.deepcopy(network.state_dict())
            elif kept is not None and number - run.best >= schedule.patience:
                run.converged, run.stopped = True, waited(schedule.patience)
                break
            value = step(schedule.at(number - 1))
            refuse_infinite(value, number)
            run.history.append((value, missed))
            if watch is not None:
                watch(number, value)
    except KeyboardInterrupt:
        run.interrupted, run.best = True, min(run.best, len(run.history))
        run.stopped = f"interrupted after {len(run.history)} rounds; the best so far stands"
    if kept is not None and not objective.mean(network, held) < best:
        network.load_state_dict(kept)
    else:
        run.best = len(run.history)
    return run


def waited(patience: int) -> str:
    """Say that training stopped because it went on for so many rounds to no good.

    Examples
    --------
    >>> from heterofactor.solvers.autoencoder import waited
    >>> waited(30)
    'held-out entries were predicted no better for 30 rounds'
    """
    return f"held-out entries were predicted no better for {patience} rounds"


def refuse_infinite(value: float, number: int) -> None:
    """Refuse to go on where the objective is not a number any more.

    Examples
    --------
    >>> from heterofactor.solvers.autoencoder import refuse_infinite
    >>> refuse_infinite(1.5, 1)
    """
    if not math.isfinite(value):
        raise ValueError(
            f"Training ran away: the objective is {value} in round {number}. Lower "
            "learning_rate, or raise ridge; networks of your own must answer with finite numbers."
        )


def optimiser_of(parameters: list[Tensor]) -> Any:
    """Return AdamW without its own decay: the penalty is part of the objective.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.solvers.autoencoder import optimiser_of
    >>> optimiser_of([torch.nn.Parameter(torch.ones(2))]).param_groups[0]["weight_decay"]
    0.0
    """
    return torch.optim.AdamW(parameters, weight_decay=0.0, fused=True)


def descend(optimiser: Any, value: Tensor, rate: float) -> None:
    """Take a step down the slope of a value.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.solvers.autoencoder import descend, optimiser_of
    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> descend(optimiser_of([weight]), (weight**2).sum(), 0.25)
    >>> weight.data
    tensor([0.7500, 0.7500])
    """
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad(set_to_none=True)
    value.backward()
    optimiser.step()
