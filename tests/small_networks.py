"""A small problem for auto-encoders: a few samples of some sources, and networks."""

import torch

from heterofactor.batches import DenseBatch
from heterofactor.losses import Squared
from heterofactor.networks import AutoEncoder, make_networks
from heterofactor.solvers.autoencoder import Objective

OBJECTIVE = Objective(Squared(), (0.3, 0.7))


def batch_of(places: list[int], counts: list[int], rows: torch.Tensor) -> DenseBatch:
    kept = torch.cat([rows.split(counts)[k] for k in places])
    own = [counts[k] for k in places]
    return DenseBatch(own, kept, None, kept.reshape(-1), torch.zeros(kept.numel()))


def problem(counts: list[int]) -> tuple[AutoEncoder, DenseBatch, list[DenseBatch]]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(sum(counts), 6, generator=generator)
    places = list(range(len(counts)))
    each = [batch_of([k], counts, rows) for k in places]
    return make_networks([6, 5, 8], len(counts), 2, seed=1), batch_of(places, counts, rows), each


def weights(network: AutoEncoder) -> dict[str, torch.Tensor]:
    return {name: values.clone() for name, values in network.state_dict().items()}
