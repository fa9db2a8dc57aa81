"""Training with one optimiser for all weights, or by Algorithm 2: when to stop, and in batches."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from heterofactor.batches import DenseBatch  # noqa: E402
from heterofactor.losses import LOSSES, at_noise  # noqa: E402
from heterofactor.solvers.autoencoder import (  # noqa: E402
    Schedule,
    _Loss,
    joint,
)
from heterofactor.solvers.network_averaging import averaging  # noqa: E402
from small_networks import OBJECTIVE, problem, weights  # noqa: E402


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
        parts = zip(each, noise.split([4 * 6, 6 * 6, 5 * 6]), strict=True)
        asked = [DenseBatch(b.counts, b.inputs, None, m, b.offsets) for b, m in parts]
        run = averaging(network, OBJECTIVE, each, schedule, held=asked)
    missed = [value for _, value in run.history]
    assert run.converged and len(run.history) < 400
    assert run.best == 1 + int(np.argmin(missed))
    assert OBJECTIVE.mean(network, [held]) == pytest.approx(min(missed), rel=1e-5)


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


def test_batches_lead_to_the_same_optimum() -> None:
    """A convex problem, one linear layer: small steps in batches end where large ones do."""
    ends = []
    for n_batches in (1, 4):
        network, batch, _ = problem([8, 12])
        unique = [w for name, w in network.named_parameters() if name == "decoder.layers.1.bias"]
        joint(network, OBJECTIVE, batch, Schedule(0.05, 300), parameters=unique,
              n_batches=n_batches)  # fmt: skip
        ends.append(float(OBJECTIVE(network, batch).detach()))
    # the last steps in batches are of a hundredth of the rate, and go to and fro by as much
    assert ends[1] == pytest.approx(ends[0], rel=1e-4)


def test_the_value_of_a_round_in_batches_is_that_of_all_samples() -> None:
    """With a rate so small that nothing moves: penalties and losses count once."""
    network, batch, each = problem([8, 12])
    whole = float(OBJECTIVE(network, batch).detach())
    for n_batches in (1, 3, 20):
        run = joint(network, OBJECTIVE, batch, Schedule(1e-12, 1), n_batches=n_batches)
        assert run.history[0][0] == pytest.approx(whole, rel=1e-5)
        run = averaging(network, OBJECTIVE, each, Schedule(1e-12, 1), n_batches=n_batches)
        assert run.history[0][0] == pytest.approx(whole, rel=1e-5)


def test_an_interruption_keeps_the_best_so_far() -> None:
    def interrupt(number: int, value: float) -> None:
        if number == 30:
            raise KeyboardInterrupt

    network, batch, _ = problem([4, 6, 5])
    noise = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(5))
    held = DenseBatch(batch.counts, batch.inputs, None, noise, batch.offsets)
    run = joint(network, OBJECTIVE, batch, Schedule(0.02, 400, 500), held=held, watch=interrupt)
    assert run.interrupted and not run.converged and len(run.history) == 30
    assert run.stopped == "interrupted after 30 rounds; the best so far stands"
    missed = [value for _, value in run.history]
    assert run.best == 1 + int(np.argmin(missed)) < 30
    assert OBJECTIVE.mean(network, [held]) == pytest.approx(min(missed), rel=1e-5)
