r"""How the heterogeneous auto-encoder is trained: jointly, or by the paper's Algorithm 2.

Both lower :math:`\sum_i \mathrm{loss}_i + R`, the loss over observed entries, with AdamW. Jointly,
one optimiser has all weights. In Algorithm 2 every source has private copies of the shared encoder
and of the decoder, and an optimiser of its own; the copies are averaged every round.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from heterofactor.batches import Batch, Tensor
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
    """

    history: list[tuple[float, float]] = field(default_factory=list)
    best: int = 0
    converged: bool = False
    stopped: str = ""


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

    def __call__(self, network: AutoEncoder, batch: Batch, share: float = 1.0) -> Tensor:
        """Return the loss of a batch, with this share of the penalty on what is shared."""
        shared, unique = network.penalty(self.ridge, self.kernel)
        missed = _Loss.apply(self.loss, batch.targets, self._predicted(network, batch))
        return missed / self.unit**2 + share * shared + unique

    def mean(self, network: AutoEncoder, batch: Batch | None) -> float:
        """Return the mean loss of the entries asked for; NaN without any."""
        if batch is None:
            return float("nan")
        with torch.no_grad():
            network.eval()
            z = self._predicted(network, batch)
            network.train()
            return float(torch.as_tensor(self.loss.value(batch.targets, z)).mean())

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
    watch : callable, optional
        Called as ``watch(round, value)``.

    Returns
    -------
    Run
    """
    trained = list(network.parameters() if parameters is None else parameters)
    for weight in network.parameters():
        weight.requires_grad_(any(weight is one for one in trained))
    optimiser = _optimiser(trained)

    def step(rate: float) -> float:
        value = objective(network, batch)
        _descend(optimiser, value, rate)
        return float(value.detach())

    return _rounds(step, lambda: network, objective, schedule, held, watch)


def averaging(
    network: AutoEncoder,
    objective: Objective,
    batches: Sequence[Batch],
    schedule: Schedule,
    *,
    held: Batch | None = None,
    watch: Watch | None = None,
) -> Run:
    """Train by Algorithm 2 of the paper; the network is changed.

    The penalty on what is shared is counted once, as the paper's objective has it: every source
    carries an equal share. (Its Algorithm 2, read to the letter, counts it once for each source.)

    Parameters
    ----------
    network : AutoEncoder
    objective : Objective
    batches : sequence of Batch
        The samples of each source.
    schedule, held, watch
        As for `joint`; `held` has the samples of all sources.

    Returns
    -------
    Run
    """
    copies = [network.alone(place) for place in range(len(batches))]  # at the sources
    optimisers = [_optimiser(list(one.parameters())) for one in copies]
    common = [[*one.shared.parameters(), *one.decoder.parameters()] for one in copies]
    server = [*network.shared.parameters(), *network.decoder.parameters()]

    def step(rate: float) -> float:
        value = 0.0
        for one, optimiser, own, batch in zip(copies, optimisers, common, batches, strict=True):
            _assign(own, server)  # the server broadcasts
            local = objective(one, batch, share=1 / len(copies))
            _descend(optimiser, local, rate)  # encoders and decoder, one step
            value += float(local.detach())
        means = [torch.stack(list(each)).mean(dim=0) for each in zip(*common, strict=True)]
        _assign(server, means)  # the server averages
        return value

    def whole() -> AutoEncoder:
        made = network.joined(copies)
        network.unique.load_state_dict(made.unique.state_dict())
        return network

    return _rounds(step, whole, objective, schedule, held, watch)


TRAINING = {"joint": joint, "averaging": averaging}


def _rounds(
    step: Callable[[float], float],
    network: Callable[[], AutoEncoder],
    objective: Objective,
    schedule: Schedule,
    held: Batch | None,
    watch: Watch | None,
) -> Run:
    """Take steps until held-out entries are predicted no better; keep the best weights."""
    run, best, kept = Run(), math.inf, None
    run.stopped = f"stopped after max_rounds={schedule.max_rounds} rounds"
    for number in range(1, schedule.max_rounds + 1):
        if held is not None:
            missed = objective.mean(network(), held)
            if missed < best:
                best, run.best = missed, number
                kept = copy.deepcopy(network().state_dict())
            elif number - run.best >= schedule.patience:
                run.converged = True
                run.stopped = (
                    f"held-out entries were predicted no better for {schedule.patience} rounds"
                )
                break
        value = step(schedule.at(number - 1))
        if not math.isfinite(value):
            raise ValueError(
                f"Training ran away: the objective is {value} in round {number}. Lower "
                "learning_rate, or raise ridge."
            )
        run.history.append((value, missed if held is not None else math.nan))
        if watch is not None:
            watch(number, value)
    if kept is not None and objective.mean(network(), held) >= best:
        network().load_state_dict(kept)
    else:
        network()
        run.best = len(run.history)
    return run


def _optimiser(parameters: list[Tensor]) -> Any:
    # the penalty is part of the objective, so that AdamW is not to decay weights as well
    return torch.optim.AdamW(parameters, weight_decay=0.0, fused=True)


def _descend(optimiser: Any, value: Tensor, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad(set_to_none=True)
    value.backward()
    optimiser.step()


@torch.no_grad()
def _assign(own: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for weight, value in zip(own, values, strict=True):
        weight.copy_(value)
