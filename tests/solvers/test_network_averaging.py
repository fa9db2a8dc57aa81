"""Algorithm 2 as a stage: its lines, pure steps, messages that are summed, on every engine."""

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.numpy import load as loads  # noqa: E402
from safetensors.numpy import save as saves  # noqa: E402

from heterofactor.batches import DenseBatch  # noqa: E402
from heterofactor.engines import Serial, Threads  # noqa: E402
from heterofactor.losses import Squared  # noqa: E402
from heterofactor.networks import AutoEncoder, make_networks  # noqa: E402
from heterofactor.solvers.autoencoder import Run, Schedule, joint  # noqa: E402
from heterofactor.solvers.network_averaging import (  # noqa: E402
    NetworkAveraging,
    Samples,
    averaging,
    settled,
)
from small_networks import OBJECTIVE, problem, weights  # noqa: E402


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


def held_out(each: list[DenseBatch]) -> list[DenseBatch]:
    """Return pure noise to be predicted, which sooner or later is predicted worse and worse."""
    generator = torch.Generator().manual_seed(5)
    noises = [torch.randn(batch.targets.shape, generator=generator) for batch in each]
    pairs = zip(each, noises, strict=True)
    return [DenseBatch(b.counts, b.inputs, None, noise, b.offsets) for b, noise in pairs]


def stage_and_sources() -> tuple[NetworkAveraging, list[Samples], dict[str, Any], list[Any]]:
    """Return a stage, its sources, and the states that a run begins with."""
    network, _, each = problem([4, 6, 5])
    stage = NetworkAveraging(OBJECTIVE, Schedule(0.02, 50), n_local_steps=2, n_batches=2)
    pairs = enumerate(zip(each, held_out(each), strict=True))
    samples = [Samples(network.alone(k), batch, [held]) for k, (batch, held) in pairs]
    shared = stage.start(network, 3)
    first = [
        {name: v.numpy().copy() for name, v in one.network.state_dict().items() if "unique" in name}
        | {"seed": np.asarray(k)}
        for k, one in enumerate(samples)
    ]
    local = [stage.init(one, shared, own) for one, own in zip(samples, first, strict=True)]
    return stage, samples, shared, local


def trained(**options: Any) -> tuple[AutoEncoder, Run]:
    network, _, each = problem([4, 6, 5])
    schedule = Schedule(0.02, 40, patience=10)
    return network, averaging(network, OBJECTIVE, each, schedule, **options)


def test_steps_are_pure_and_states_are_flat_dicts_of_arrays() -> None:
    stage, samples, shared, local = stage_and_sources()
    before = [{name: np.copy(v) for name, v in s.items()} for s in (shared, local[1])]
    one, message = stage.step(samples[1], Squared(), shared, local[1])
    stage.step(samples[1], Squared(), shared, one)  # whatever it did in between
    again, same = stage.step(samples[1], Squared(), shared, local[1])
    for state, old in ((shared, before[0]), (local[1], before[1]), (one, again), (message, same)):
        assert state.keys() == old.keys()
        for name, values in state.items():
            assert isinstance(values, np.ndarray)
            np.testing.assert_array_equal(values, old[name])
    assert loads(saves(one)).keys() == one.keys()  # a checkpoint is a file of arrays


def test_a_source_may_be_sent_elsewhere() -> None:
    """To another process or machine: it answers there what it answers here."""
    stage, samples, shared, local = stage_and_sources()
    sent = pickle.loads(pickle.dumps((stage, samples[1])))
    found = sent[0].step(sent[1], Squared(), shared, local[1])
    expected = stage.step(samples[1], Squared(), shared, local[1])
    for one, other in zip(found, expected, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])


def test_messages_are_copies_of_what_is_shared_and_sums() -> None:
    """No weight of a unique encoder, no moment and no score leaves a source."""
    stage, samples, shared, local = stage_and_sources()
    _, message = stage.step(samples[0], Squared(), shared, local[0])
    weights = {n: v.shape for n, v in message.items() if n.startswith(("shared.", "decoder."))}
    assert weights == {n: shared[n].shape for n in weights} and len(weights) == 8
    numbers = {"sources", "value", "held_out", "held_count"}
    assert message.keys() == weights.keys() | numbers
    assert all(message[name].shape == () for name in numbers)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_every_engine_comes_to_the_same(n_threads: int, held: bool) -> None:
    options: dict[str, Any] = {"n_local_steps": 2, "n_batches": 2, "seed": 3}
    if held:
        options["held"] = held_out(problem([4, 6, 5])[2])
    network, run = trained(**options)
    other, same = trained(**options, make_engine=lambda s, own: Threads(s, own, n_threads))
    assert run.best == same.best and run.stopped == same.stopped
    # one thread of BLAS or several may round otherwise, and forty rounds make more of that
    np.testing.assert_allclose(run.history, same.history, rtol=1e-4)
    for name, values in weights(network).items():
        torch.testing.assert_close(values, weights(other)[name], rtol=1e-3, atol=1e-4)


def test_what_is_left_out_at_random_is_the_same_on_every_engine() -> None:
    def encoder(n_in: int, n_out: int) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(n_in, n_out), torch.nn.Dropout(0.3))

    found = []
    for engine in (Serial, lambda s, own: Threads(s, own, 3)):
        _, _, each = problem([4, 6, 5])
        network = make_networks([6, 8], 3, 2, seed=1, encoder=encoder)
        averaging(network, OBJECTIVE, each, Schedule(0.02, 20), make_engine=engine)
        found.append(weights(network))
    for name, values in found[0].items():
        torch.testing.assert_close(values, found[1][name], rtol=1e-3, atol=1e-4)


def test_the_order_of_the_sources_makes_no_difference() -> None:
    network, _, each = problem([4, 6, 5])
    averaging(network, OBJECTIVE, each, Schedule(0.02, 20))
    turned = problem([4, 6, 5])[0]
    with torch.no_grad():
        for weight in turned.unique.parameters():
            weight.copy_(weight.flip(0))
    averaging(turned, OBJECTIVE, each[::-1], Schedule(0.02, 20))
    for name, values in weights(network).items():
        found = weights(turned)[name]
        found = found.flip(0) if name.startswith("unique") else found
        torch.testing.assert_close(values, found, rtol=1e-3, atol=1e-5)


def test_running_means_of_networks_are_averaged_as_weights_are() -> None:
    def encoder(n_in: int, n_out: int) -> Any:
        return torch.nn.Sequential(torch.nn.BatchNorm1d(n_in), torch.nn.Linear(n_in, n_out))

    _, _, each = problem([4, 6, 5])
    network = make_networks([6, 8], 3, 2, seed=1, encoder=encoder)
    averaging(network, OBJECTIVE, each, Schedule(0.02, 1))
    means = torch.stack([batch.inputs.mean(0) for batch in each])
    found = weights(network)
    # torch moves running means by a tenth each time
    torch.testing.assert_close(found["shared.networks.0.0.running_mean"], means.mean(0) / 10)
    torch.testing.assert_close(found["unique.networks.2.0.running_mean"], means[2] / 10)
    assert int(found["shared.networks.0.0.num_batches_tracked"]) == 1


@pytest.mark.parametrize("rounds", [0, 1, 2, 12])
def test_an_interruption_at_any_time_keeps_the_best_so_far(rounds: int) -> None:
    class Interrupted(Serial):
        left = rounds

        def round(self, stage: Any, loss: Any, shared: Any) -> Any:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            return super().round(stage, loss, shared)

    held = held_out(problem([4, 6, 5])[2])
    network, run = trained(held=held, make_engine=Interrupted)
    assert run.interrupted and not run.converged and len(run.history) == rounds
    assert f"interrupted after {rounds} rounds" in run.stopped
    missed = sum(OBJECTIVE.total(network.of(k), [held[k]])[0] for k in range(3))
    if rounds == 0:
        start = problem([4, 6, 5])[0]
        for name, values in weights(network).items():
            torch.testing.assert_close(values, weights(start)[name], rtol=0, atol=0)
    else:
        best = min(value for _, value in run.history)
        assert missed / sum(len(b.targets) for b in held) == pytest.approx(best, rel=1e-5)


def test_a_source_without_held_out_entries_takes_part() -> None:
    held: Sequence[Any] = [*held_out(problem([4, 6, 5])[2])[:2], None]
    _, run = trained(held=held)
    assert np.isfinite([value for _, value in run.history]).all()


def test_states_at_the_end_hold_the_best_weights() -> None:
    """What a site that keeps its own encoder does when the server says that it is over."""
    stage, samples, shared, local = stage_and_sources()
    engine, before = Serial(samples, local), []
    for _ in range(12):
        before.append([own["unique.layers.0.weight"] for own in engine.locals()])
        shared = stage.merge(shared, engine.round(stage, Squared(), shared))
    best = int(shared["best"])
    assert 0 < best < 12  # noise is predicted worse and worse
    for own, expected in zip(engine.locals(), before[best - 1], strict=True):
        _, found = settled(shared, own)
        np.testing.assert_array_equal(found["unique.layers.0.weight"], expected)


def test_torch_shares_its_threads_with_the_engine() -> None:
    seen = []

    class Watched(Threads):
        def round(self, stage: Any, loss: Any, shared: Any) -> Any:
            seen.extend(self._map(lambda source, local: torch.get_num_threads()))
            return super().round(stage, loss, shared)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        trained(make_engine=lambda s, own: Watched(s, own, 2))
        assert set(seen) == {2}
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_what_runs_away_is_said() -> None:
    network, _, each = problem([4, 6])
    with torch.no_grad():
        network.decoder.layers[0].weight += float("inf")
    with pytest.raises(ValueError, match=r"ran away.*round 1.*Lower learning_rate"):
        averaging(network, OBJECTIVE, each, Schedule(0.01, 3))
