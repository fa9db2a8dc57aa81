"""Training: Algorithm 2 step by step, the joint way, and when to stop."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from heterofactor.batches import DenseBatch  # noqa: E402
from heterofactor.losses import LOSSES, Squared, at_noise  # noqa: E402
from heterofactor.networks import AutoEncoder, make_networks  # noqa: E402
from heterofactor.solvers.autoencoder import (  # noqa: E402
    Objective,
    Schedule,
    _Loss,
    averaging,
    joint,
)

OBJECTIVE = Objective(Squared(), (0.3, 0.7))


def batch_of(places: list[int], counts: list[int], rows: "torch.Tensor") -> DenseBatch:
    kept = torch.cat([rows.split(counts)[k] for k in places])
    own = [counts[k] for k in places]
    return DenseBatch(own, kept, None, kept.reshape(-1), torch.zeros(kept.numel()))


def problem(counts: list[int]) -> tuple[AutoEncoder, DenseBatch, list[DenseBatch]]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(sum(counts), 6, generator=generator)
    places = list(range(len(counts)))
    each = [batch_of([k], counts, rows) for k in places]
    return make_networks([6, 5, 8], len(counts), 2, seed=1), batch_of(places, counts, rows), each


def weights(network: AutoEncoder) -> dict[str, "torch.Tensor"]:
    return {name: values.clone() for name, values in network.state_dict().items()}


def test_algorithm_2_is_its_lines_one_by_one() -> None:
    """Two rounds in plain torch: broadcast, a step at every source, average what is shared."""
    counts, schedule = [3, 5], Schedule(0.01, 2)
    network, _, each = problem(counts)
    expected = weights(network)
    clients = [network.alone(k) for k in range(2)]
    optimisers = [torch.optim.AdamW(c.parameters(), weight_decay=0.0) for c in clients]
    for number in range(2):
        for client, optimiser, batch in zip(clients, optimisers, each, strict=True):
            for name in expected:
                if not name.startswith("unique"):
                    client.state_dict()[name].copy_(expected[name])
            optimiser.param_groups[0]["lr"] = schedule.at(number)
            z = client(batch)
            squares = {
                part: sum((w**2).sum() for n, w in client.named_parameters()
                          if n.startswith(part) and n.endswith("weight"))
                for part in ("shared", "unique", "decoder")
            }  # fmt: skip
            # the penalty on what is shared counts once: each of the two sources has half of it
            value = ((z - batch.targets) ** 2).sum() / 2
            value = value + 0.3 / 2 * (squares["shared"] + squares["decoder"]) / 2
            value = value + 0.7 / 2 * squares["unique"]
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
        for name in expected:
            found = [client.state_dict()[name] for client in clients]
            shared = not name.startswith("unique")
            expected[name] = (torch.stack(found).mean(0) if shared else torch.cat(found)).clone()
    run = averaging(network, OBJECTIVE, each, schedule)
    assert len(run.history) == 2
    for name, values in weights(network).items():
        torch.testing.assert_close(values, expected[name], rtol=1e-4, atol=1e-6)


def test_with_one_source_both_ways_are_the_same() -> None:
    network, batch, each = problem([6])
    other, _, _ = problem([6])
    joint(network, OBJECTIVE, batch, Schedule(0.01, 5))
    averaging(other, OBJECTIVE, each, Schedule(0.01, 5))
    for name, values in weights(network).items():
        torch.testing.assert_close(values, weights(other)[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("solver", ["joint", "averaging"])
def test_training_lowers_the_objective(solver: str) -> None:
    network, batch, each = problem([4, 6, 5])
    before = float(OBJECTIVE(network, batch).detach())
    schedule = Schedule(0.01, 100)
    if solver == "joint":
        run = joint(network, OBJECTIVE, batch, schedule)
    else:
        run = averaging(network, OBJECTIVE, each, schedule)
    after = float(OBJECTIVE(network, batch).detach())
    assert run.history[0][0] == pytest.approx(before, rel=1e-5)
    assert after < before / 2
    assert run.stopped == "stopped after max_rounds=100 rounds"


@pytest.mark.parametrize("solver", ["joint", "averaging"])
def test_the_best_weights_on_held_out_entries_are_kept(solver: str) -> None:
    """Held-out rows of pure noise: sooner or later they are predicted worse and worse."""
    network, batch, each = problem([4, 6, 5])
    noise = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(5))
    held = DenseBatch(batch.counts, batch.inputs, None, noise, batch.offsets)
    schedule = Schedule(0.02, 400, patience=5)
    if solver == "joint":
        run = joint(network, OBJECTIVE, batch, schedule, held=held)
    else:
        run = averaging(network, OBJECTIVE, each, schedule, held=held)
    missed = [value for _, value in run.history]
    assert run.converged and len(run.history) < 400
    assert run.best == 1 + int(np.argmin(missed))
    assert OBJECTIVE.mean(network, held) == pytest.approx(min(missed), rel=1e-5)


def test_only_what_is_asked_for_is_trained() -> None:
    network, batch, _ = problem([4, 6])
    before = weights(network)
    joint(
        network, OBJECTIVE, batch, Schedule(0.01, 3), parameters=list(network.unique.parameters())
    )
    for name, values in weights(network).items():
        assert bool((values == before[name]).all()) == (not name.startswith("unique"))


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_the_library_have_their_own_slopes_in_torch(name: str) -> None:
    loss = at_noise(LOSSES[name](), 0.5)
    rng = np.random.default_rng(0)
    observed = torch.as_tensor(rng.integers(0, 2, 30).astype(float))
    z = torch.as_tensor(rng.normal(size=30)).requires_grad_()
    value = _Loss.apply(loss, observed, z)
    value.backward()
    m, at = observed.numpy(), z.detach().numpy()
    assert float(value.detach()) == pytest.approx(loss.value(m, at).sum(), rel=1e-12)
    np.testing.assert_allclose(z.grad.numpy(), loss.slope(m, at), rtol=1e-12, atol=1e-14)


def test_what_runs_away_is_said() -> None:
    network, batch, _ = problem([4, 6])
    with torch.no_grad():
        network.decoder.layers[0].weight += float("inf")
    with pytest.raises(ValueError, match=r"ran away.*round 1.*Lower learning_rate"):
        joint(network, OBJECTIVE, batch, Schedule(0.01, 3))
