"""The projection between scores is exact and differentiable; stacks are the networks one by one."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from heterofactor.batches import (  # noqa: E402
    Batch,
    DenseBatch,
    EntryBatch,
    Pattern,
    grouped,
    pieces,
)
from heterofactor.networks import (  # noqa: E402
    AutoEncoder,
    Given,
    Layer,
    Layers,
    deflated,
    make_networks,
    orthonormal_rows,
)

# The promise, in single precision.
ORTHOGONAL = 1e-5


def scores(seed: int, *shape: int, dtype: str = "float32") -> "torch.Tensor":
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=getattr(torch, dtype))


def misfit(shared: "torch.Tensor", unique: "torch.Tensor", folds: int) -> float:
    """Return the largest relative inner product of the columns of two scores."""
    one, other = (c.detach().reshape(len(c), folds, -1).double() for c in (shared, unique))
    inner = torch.linalg.matrix_norm(one @ other.mT)
    sizes = torch.linalg.matrix_norm(one) * torch.linalg.matrix_norm(other)
    return float((inner / sizes.clamp(min=1e-30)).max())


@pytest.mark.parametrize("folds", [1, 2, 5])
def test_scores_are_orthogonal_by_group(seed: int, folds: int) -> None:
    shared, unique = scores(seed, 50, 60), scores(seed + 10, 50, 60)
    assert misfit(shared, deflated(shared, unique, folds), folds) < ORTHOGONAL


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6, 1e-9, 0.0])
def test_nearly_dependent_columns_are_no_harm(seed: int, gap: float) -> None:
    shared = scores(seed, 40, 3, 12)
    shared[:, 2] = shared[:, 0] + gap * shared[:, 2]
    unique = scores(seed + 10, 40, 36)
    found = deflated(shared.reshape(40, 36), unique, 3)
    assert misfit(shared.reshape(40, 36), found, 3) < ORTHOGONAL


def test_columns_of_very_different_sizes_are_no_harm(seed: int) -> None:
    shared = scores(seed, 40, 3, 12) * torch.tensor([1e4, 1.0, 1e-4])[:, None]
    unique = scores(seed + 10, 40, 36)
    found = deflated(shared.reshape(40, 36), unique, 3).reshape(40, 3, 12)
    for k in range(3):  # the small ones as well as the large ones
        assert misfit(shared[:, k].reshape(40, 12), found.reshape(-1, 12)[k::3], 1) < 1e-3


def test_unique_scores_nearly_inside_the_span_stay_orthogonal(seed: int) -> None:
    shared = scores(seed, 40, 2, 10)
    unique = scores(seed + 5, 40, 2, 2) @ shared + 1e-4 * scores(seed + 10, 40, 2, 10)
    found = deflated(shared.reshape(40, 20), unique.reshape(40, 20), 2)
    assert misfit(shared.reshape(40, 20), found, 2) < ORTHOGONAL


def test_zero_scores_leave_unique_ones_finite() -> None:
    found = deflated(torch.zeros(3, 12), torch.ones(3, 12), 2)
    assert bool(torch.isfinite(found).all())


def test_projection_agrees_with_the_formula(seed: int) -> None:
    shared, unique = (scores(seed + k, 7, 2, 9, dtype="float64") for k in (0, 1))
    across = shared.mT @ torch.linalg.solve(shared @ shared.mT, shared)  # A (A'A)^-1 A'
    expected = unique - unique @ across
    found = deflated(shared.reshape(7, 18), unique.reshape(7, 18), 2).reshape(7, 2, 9)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_projection_has_the_slope_of_finite_differences(seed: int) -> None:
    shared, unique = (scores(seed + k, 3, 20, dtype="float64") for k in (0, 1))
    pair = (shared.requires_grad_(), unique.requires_grad_())
    assert torch.autograd.gradcheck(lambda a, b: deflated(a, b, 2), pair)


def test_slopes_are_finite_where_columns_are_dependent() -> None:
    shared = torch.ones(4, 12, requires_grad=True)  # both columns alike
    deflated(shared, scores(0, 4, 12), 2).square().sum().backward()
    assert bool(torch.isfinite(shared.grad).all())


def test_frames_are_orthonormal_however_deficient(seed: int) -> None:
    rows = scores(seed, 20, 3, 8)
    rows[::2, 1] = rows[::2, 0]
    rows[5] = 0
    frame = orthonormal_rows(rows)
    one = torch.eye(3).expand(20, 3, 3)
    torch.testing.assert_close(frame @ frame.mT, one, rtol=0, atol=1e-5)


@pytest.mark.parametrize("counts", [[3, 3, 3], [1, 5, 3], [0, 9, 0]])
def test_a_stack_is_its_matrices_one_by_one(counts: list[int]) -> None:
    rows, weight = scores(0, 9, 4), scores(1, 3, 4, 5)
    expected = torch.cat([part @ w for part, w in zip(rows.split(counts), weight, strict=True)])
    torch.testing.assert_close(grouped(rows, weight, counts), expected)


@pytest.mark.parametrize("kernel", ["compact", "gaussian"])
def test_kernels_are_those_of_explicit_differences(kernel: str) -> None:
    layer = Layer(6, 5, torch.Generator().manual_seed(0), kernel=kernel)
    with torch.no_grad():
        layer.sending += 0.4 * scores(1, 6, 5)
    squares = ((layer.sending[:, None, :] - layer.receiving[None, :, :]) ** 2).sum(-1)
    expected = (1 - squares).clamp(min=0) if kernel == "compact" else torch.exp(-squares)
    assert kernel == "gaussian" or 0 < int((expected == 0).sum()) < 30  # some of both kinds
    torch.testing.assert_close(layer.mask(), expected, rtol=1e-5, atol=1e-6)


def both_batches(counts: list[int]) -> tuple[DenseBatch, EntryBatch]:
    """Return the same observed entries, dense and as a list."""
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.random((sum(counts), 7)) < 0.6)
    values = torch.as_tensor(rng.normal(size=len(rows)), dtype=torch.float32)
    pattern = Pattern(rows, columns, (sum(counts), 7))
    dense = pattern.matrix(values).to_dense()
    zeros, places = torch.zeros_like(values), torch.as_tensor(rows * 7 + columns)
    listed = EntryBatch(counts, pattern, values, pattern, values, zeros)
    return DenseBatch(counts, dense, places, values, zeros), listed


@pytest.mark.parametrize("kernel", [None, "compact"])
def test_lists_of_entries_give_what_dense_tables_give(kernel: str | None) -> None:
    network = make_networks([7, 6, 8], 3, 2, seed=0, kernel=kernel)
    found = []
    for batch in both_batches([2, 4, 3]):
        network.zero_grad()
        predicted = network(batch)
        ((predicted - batch.targets) ** 2).sum().backward()
        found.append([predicted.detach(), *(w.grad.clone() for w in network.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def opened(batch: Batch) -> "torch.Tensor":
    """Return one row for each sample: its inputs, and its targets and offsets where there are."""
    beside = []
    for values in (batch.targets, batch.offsets):
        table = torch.full_like(batch.dense(), torch.nan)
        if isinstance(batch, EntryBatch):
            table[batch.asked.rows, batch.asked.columns] = values
        elif batch.positions is None:
            table[:] = values.reshape(table.shape)
        else:
            table.view(-1)[batch.positions] = values
        beside.append(table)
    return torch.cat([batch.dense(), *beside], dim=1)


def three_kinds(counts: list[int]) -> list[Batch]:
    """Return lists of entries, asking for others than go in; tables with holes, and without."""
    _, listed = both_batches(counts)
    rng = np.random.default_rng(1)
    rows, columns = np.nonzero(rng.random((sum(counts), 7)) < 0.3)
    values = torch.as_tensor(rng.normal(size=len(rows)), dtype=torch.float32)
    other = Pattern(rows, columns, (sum(counts), 7))
    inputs = listed.dense()
    return [
        listed,
        EntryBatch(counts, listed.asked, listed.targets, other, values, 2 * values),
        DenseBatch(counts, inputs, torch.as_tensor(rows * 7 + columns), values, 2 * values),
        DenseBatch(counts, inputs, None, inputs.reshape(-1), 2 * inputs.reshape(-1)),
    ]


@pytest.mark.parametrize("count", [1, 2, 5, 14])
@pytest.mark.parametrize("counts", [[4, 6, 4], [1, 0, 13]])
def test_pieces_are_all_samples_once_each(counts: list[int], count: int) -> None:
    for batch in three_kinds(counts):
        found = list(pieces(batch, count, np.random.default_rng(0)))
        assert len(found) == count
        sizes = [sum(piece.counts) for piece in found]
        assert max(sizes) - min(sizes) <= 1
        for place in range(3):  # source by source, whatever their order inside of it
            own = [opened(piece).split(piece.counts)[place] for piece in found]
            rows, expected = torch.cat(own), opened(batch).split(counts)[place]
            keys = [torch.nan_to_num(t, 9.0).tolist() for t in (rows, expected)]
            assert sorted(keys[0]) == sorted(keys[1])


def test_pieces_have_every_source_in_proportion(seed: int) -> None:
    counts = [100, 50, 10]
    inputs = torch.zeros(160, 2)
    batch = DenseBatch(counts, inputs, None, inputs.reshape(-1), inputs.reshape(-1))
    for piece in pieces(batch, 10, np.random.default_rng(seed)):
        assert sum(piece.counts) == 16
        # each source is spread evenly, so that a cut can be off by one on either side
        assert np.abs(np.array(piece.counts) - [10, 5, 1]).max() <= 2


def test_networks_are_the_same_on_pieces_as_on_all_samples() -> None:
    network = make_networks([7, 6, 8], 3, 2, seed=0, kernel="compact")
    for batch in three_kinds([4, 6, 4]):
        whole = ((network(batch) - batch.targets) ** 2).sum()
        found = pieces(batch, 3, np.random.default_rng(0))
        parts = sum(((network(piece) - piece.targets) ** 2).sum() for piece in found)
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-4)


def test_one_source_is_encoded_as_among_all() -> None:
    network = make_networks([7, 6, 8], 3, 2, seed=0)
    rows = scores(0, 9, 7)
    _, every = network.scores(rows, [2, 4, 3])
    _, own = network.of(1).scores(rows[2:6], [4])
    torch.testing.assert_close(own, every[2:6])


def test_joining_undoes_taking_apart() -> None:
    network = make_networks([7, 6, 8], 3, 2, seed=0)
    again = network.joined([network.alone(k) for k in range(3)])
    for name, values in network.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], values, rtol=0, atol=0)


def test_networks_of_the_users_own_go_in_the_same_places() -> None:
    network = make_networks(
        [7, 6, 8], 3, 2, seed=0, encoder=torch.nn.Linear, decoder=torch.nn.Linear
    )
    assert isinstance(network.unique, Given) and len(network.unique.networks) == 3
    for batch in both_batches([2, 4, 3]):
        assert network(batch).shape == batch.targets.shape
    shared, unique = network.scores(scores(0, 9, 7), [2, 4, 3])
    assert misfit(shared, unique, 2) < ORTHOGONAL


def test_without_unique_encoders_it_is_a_plain_auto_encoder() -> None:
    chance = torch.Generator().manual_seed(0)
    network = AutoEncoder(Layers([Layer(7, 4, chance)]), None, Layers([Layer(4, 7, chance)]))
    shared, unique = network.scores(scores(0, 3, 7), [3])
    assert shared.shape == (3, 4) and unique is None


def test_inputs_are_left_out_in_training_only() -> None:
    network = make_networks([7, 6, 8], 3, 2, seed=0)
    network.dropout = 0.5
    for batch in both_batches([2, 4, 3]):
        torch.manual_seed(0)
        thin = batch.thinned(0.5).dense()
        whole = batch.dense()
        assert bool(((thin == 0) | torch.isclose(thin, 2 * whole)).all())
        assert 0 < int((thin != 0).sum()) < int((whole != 0).sum())
        training = network.train()(batch)
        network.eval()
        assert not torch.allclose(training, network(batch))
        torch.testing.assert_close(network(batch), network(batch), rtol=0, atol=0)


def test_units_are_left_out_in_training_only() -> None:
    layer = Layer(50, 3, torch.Generator().manual_seed(0), dropout=0.5)
    rows = scores(0, 4, 50)
    torch.manual_seed(0)
    many = torch.stack([layer(rows, [4]).detach() for _ in range(4000)])
    whole = layer.eval()(rows, [4])
    # what is left counts for more, so that the mean is that of all units; four standard errors
    error = 4 * many.std(dim=0) / 4000**0.5
    assert bool(((many.mean(dim=0) - whole).abs() < error).all())
    assert float(many.std(dim=0).min()) > 0.1
