"""HAE's joint training beside a plain transcription in PyTorch; writes ``results/hae.md``.

Entries as sparse as MovieLens-100K's, in ten sources. The transcription is what one writes first:
dense tables with masks, a module for each source, and a loop over the sources. Loss and gradients
are compared before anything is measured. ``python benchmarks/hae.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measure import describe_machine, peak_memory
from report import Seconds, Table, write

try:
    import torch
    from torch import nn

    from heterofactor.batches import EntryBatch, Pattern
    from heterofactor.losses import Squared
    from heterofactor.networks import AutoEncoder, Layer, Layers
    from heterofactor.solvers.autoencoder import Objective, Schedule, joint
except ImportError:
    torch = None

N_SAMPLES, N_FEATURES, N_SOURCES, OBSERVED = 1682, 943, 10, 0.057
# Units of the shared encoder's hidden layer and of the scores; of the unique encoders'; folds.
SIZE, OWN, N_FOLDS = 500, 50, 5
RIDGE = (25.0, 300.0)
RATE = 1e-3
STEPS = 10
# Relative differences of two ways to add up a million numbers in single precision.
LOSS_TOLERANCE, SLOPE_TOLERANCE = 1e-5, 1e-3

Entries = dict[str, np.ndarray]


def make_entries(seed: int = 0) -> Entries:
    """Draw which entries were observed, and ratings from 1 to 5 there."""
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(rng.random((N_SAMPLES, N_FEATURES)) < OBSERVED)
    values = rng.integers(1, 6, len(rows)).astype(np.float32)
    cuts = np.sort(rng.choice(np.arange(20, N_SAMPLES - 20), N_SOURCES - 1, replace=False))
    counts = np.diff([0, *cuts, N_SAMPLES])
    return {"rows": rows, "columns": columns, "values": values, "counts": counts}


def our_problem(entries: Entries) -> tuple[Any, Any, Any]:
    """Return the library's network, objective and batch."""
    chance = torch.Generator().manual_seed(0)
    shared = [Layer(N_FEATURES, SIZE, chance, activation="sigmoid"), Layer(SIZE, SIZE, chance)]
    own: dict[str, Any] = {"n_sources": N_SOURCES}
    unique = [
        Layer(N_FEATURES, OWN, chance, activation="sigmoid", **own),
        Layer(OWN, SIZE, chance, **own),
    ]
    decoder = Layers([Layer(SIZE, N_FEATURES, chance)])
    network = AutoEncoder(Layers(shared), Layers(unique), decoder, N_FOLDS)
    pattern = Pattern(entries["rows"], entries["columns"], (N_SAMPLES, N_FEATURES))
    values = torch.from_numpy(entries["values"])
    counts = entries["counts"].tolist()
    batch = EntryBatch(counts, pattern, values, pattern, values, torch.zeros_like(values))
    return network, Objective(Squared(), RIDGE), batch


def our_steps(entries: Entries) -> Callable[[int], None]:
    """Return what takes so many of the library's steps."""
    network, objective, batch = our_problem(entries)

    def steps(count: int) -> None:
        joint(network, objective, batch, Schedule(RATE, count))

    return steps


if torch is not None:

    class Plain(nn.Module):
        """The same auto-encoder, with a module for each source."""

        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Sequential(
                nn.Linear(N_FEATURES, SIZE), nn.Sigmoid(), nn.Linear(SIZE, SIZE)
            )
            self.unique = nn.ModuleList(
                nn.Sequential(nn.Linear(N_FEATURES, OWN), nn.Sigmoid(), nn.Linear(OWN, SIZE))
                for _ in range(N_SOURCES)
            )
            self.decoder = nn.Linear(SIZE, N_FEATURES)

        def forward(self, x: Any, source: int) -> Any:
            shared, unique = self.shared(x), self.unique[source](x)
            A = shared.reshape(len(x), N_FOLDS, -1)
            B = unique.reshape(len(x), N_FOLDS, -1)
            B = B - B @ A.mT @ torch.linalg.solve(A @ A.mT, A)
            return self.decoder(shared + B.reshape(len(x), -1))

        def loss(self, tables: Any, masks: Any) -> Any:
            total = 0.0
            for source, (x, mask) in enumerate(zip(tables, masks, strict=True)):
                total = total + (((self(x, source) - x) * mask) ** 2).sum() / 2
            for name, weight in self.named_parameters():
                if weight.ndim == 2:
                    ridge = RIDGE[name.startswith("unique")]
                    total = total + ridge / 2 * (weight**2).sum()
            return total


def plain_problem(entries: Entries) -> tuple[Any, list[Any], list[Any]]:
    """Return the transcription, and tables and masks of all sources."""
    torch.manual_seed(0)
    table = torch.zeros(N_SAMPLES, N_FEATURES)
    mask = torch.zeros(N_SAMPLES, N_FEATURES)
    places = torch.from_numpy(entries["rows"]), torch.from_numpy(entries["columns"])
    table[places] = torch.from_numpy(entries["values"])
    mask[places] = 1.0
    counts = entries["counts"].tolist()
    return Plain(), list(table.split(counts)), list(mask.split(counts))


def plain_steps(entries: Entries) -> Callable[[int], None]:
    """Return what takes so many of the transcription's steps."""
    network, tables, masks = plain_problem(entries)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.0)

    def steps(count: int) -> None:
        for _ in range(count):
            optimiser.zero_grad()
            network.loss(tables, masks).backward()
            optimiser.step()

    return steps


def largest_differences(entries: Entries) -> tuple[float, float]:
    """Return by how much loss and gradients of the two differ at the same weights, relatively."""
    network, objective, batch = our_problem(entries)
    plain, tables, masks = plain_problem(entries)
    pairs = [*zip(_linear(plain.shared), network.shared.layers, strict=True)]
    pairs += [(plain.decoder, network.decoder.layers[0])]
    with torch.no_grad():
        for linear, layer in pairs:
            linear.weight.copy_(layer.weight.T)
            linear.bias.copy_(layer.bias)
        for source, own in enumerate(plain.unique):
            for linear, layer in zip(_linear(own), network.unique.layers, strict=True):
                linear.weight.copy_(layer.weight[source].T)
                linear.bias.copy_(layer.bias[source])
    ours, theirs = objective(network, batch), plain.loss(tables, masks)
    ours.backward()
    theirs.backward()
    slopes = [(linear.weight.grad.T, layer.weight.grad) for linear, layer in pairs]
    slopes += [(linear.bias.grad, layer.bias.grad) for linear, layer in pairs]
    for k, layer in enumerate(network.unique.layers):
        every = [_linear(own)[k] for own in plain.unique]
        slopes.append((torch.stack([one.weight.grad.T for one in every]), layer.weight.grad))
        slopes.append((torch.stack([one.bias.grad for one in every]), layer.bias.grad))
    apart = max(float((a - b).norm() / b.norm()) for a, b in slopes)
    return abs(ours.item() / theirs.item() - 1), apart


def _linear(network: Any) -> list[Any]:
    return [layer for layer in network if isinstance(layer, nn.Linear)]


def load(path: Path) -> Entries:
    with np.load(path) as file:
        return dict(file)


def warm_up() -> None:
    """Let the libraries take what they keep: for products, dense and sparse, and for AdamW."""
    torch.set_num_threads(1)
    rows = torch.ones(50, 50, requires_grad=True)
    torch.linalg.solve(rows.detach() + torch.eye(50), rows).sum().backward()
    places = np.arange(50)
    pattern, values = Pattern(places, places, (50, 50)), torch.ones(50)
    batch = EntryBatch([50], pattern, values, pattern, values, 0 * values)
    batch.predicted(batch.product(rows), rows, values).sum().backward()
    for fused in (False, True):
        torch.optim.AdamW([rows], fused=fused).step()


def train(make: Callable[[Entries], Callable[[int], None]], entries: Entries) -> None:
    make(entries)(3)


def cpu_seconds(entries: Entries, repeats: int) -> dict[str, Seconds]:
    """Return the processor's time for a step, in turns, after one round that is not counted."""
    contestants = {name: make(entries) for name, make in MAKERS.items()}
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(1 + repeats):
        for name, steps in contestants.items():
            start = time.process_time()
            steps(STEPS)
            taken[name].append((time.process_time() - start) / STEPS)
    return {name: Seconds(min(t[1:]), statistics.median(t[1:])) for name, t in taken.items()}


MAKERS = {"HAE": our_steps, "plain PyTorch": plain_steps}


def step_table(repeats: int) -> Table:
    """Measure a step of both."""
    entries = make_entries()
    loss, slope = largest_differences(entries)
    if loss > LOSS_TOLERANCE or slope > SLOPE_TOLERANCE:
        raise ValueError(
            f"The two do not compute the same: losses differ by {loss:.1e}, gradients by "
            f"{slope:.1e}, relatively."
        )
    seconds = cpu_seconds(entries, repeats)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "entries.npz"
        np.savez(path, **entries)
        memory = {
            name: peak_memory(partial(load, path), warm_up, partial(train, make))
            for name, make in MAKERS.items()
        }
    best = seconds["HAE"].best
    rows = [
        {
            "": name,
            "CPU s a step": seconds[name],
            "times HAE": seconds[name].best / best,
            "peak memory, MB": round(memory[name] / 1e6),
        }
        for name in MAKERS
    ]
    note = (
        f"{N_SAMPLES} samples of {N_FEATURES} features in {N_SOURCES} sources, "
        f"{100 * OBSERVED:g} % observed; shared encoder {N_FEATURES}-{SIZE}-{SIZE}, unique ones "
        f"{N_FEATURES}-{OWN}-{SIZE}, {N_FOLDS} folds, a linear decoder; single precision, one "
        f"thread. A step is loss, gradient and AdamW; best (median) of {repeats} turns of {STEPS} "
        f"steps. At the same weights the two differ by {loss:.0e} in the loss and by {slope:.0e} "
        "in the gradient, relatively. Memory is that of the observed entries in each one's own "
        "form, the network, and three steps, above the entries as lists."
    )
    return Table("step", "One step of joint training", note, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="how often steps are timed")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if torch is None:
        print("Left out: torch is not installed.")
        return
    torch.set_num_threads(1)
    machine, table = describe_machine(), step_table(options.repeats)
    print(table.markdown())
    write(options.output, "hae", "HAE", machine, [table])


if __name__ == "__main__":  # the processes whose memory is measured import this file, too
    main()
