"""Every product of a source is that of the centred and weighted matrix written out."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from heterofactor import sources as module
from heterofactor.losses import Squared
from heterofactor.sources import Dense, Sparse, weigh

EXACT = 1e-11  # relative; sums of some ten thousand products of order one


class Plain(Squared):
    """The squared loss under another name, which takes the general path through the residual."""


def explicit(source: Any) -> np.ndarray:
    """Write the matrices of a source out."""
    matrix = source.matrix.toarray()[None] if isinstance(source, Sparse) else source.matrix
    matrix = np.asarray(matrix, dtype=float)
    matrix = matrix if source.centre is None else matrix - source.centre
    return matrix if source.weight is None else matrix * source.weight


def assert_answers(source: Any, rng: np.random.Generator, rtol: float = EXACT) -> None:
    """Compare every answer of a source with the explicit matrices."""
    M = explicit(source)
    count, n1, n2 = M.shape
    assert source.shape == M.shape
    W, H = rng.normal(size=(count, n1, 2)), rng.normal(size=(count, n2, 2))
    size = np.abs(explicit_raw(source)).max() + 1  # rounding is relative to what is subtracted
    pairs = [
        (source.matmat(H), M @ H, size * n2),
        (source.rmatmat(W), M.mT @ W, size * n1),
        (source.normal(W), M @ (M.mT @ W), size**2 * n1 * n2),
        (source.energy, (M**2).sum(axis=(1, 2)), size**2 * n1 * n2),
    ]
    Z = W @ H.mT
    expected = ((M - Z) ** 2).sum(axis=(1, 2)) / 2, (Z - M) @ H, (Z - M).mT @ W
    size = (size + np.abs(Z).max()) ** 2 * n1 * n2
    for loss in (Squared(), Plain()):
        pairs += [
            (one, other, size) for one, other in zip(source.pull(loss, W, H), expected, strict=True)
        ]
    for found, wanted, scale in pairs:
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=rtol * scale)


def explicit_raw(source: Any) -> np.ndarray:
    matrix = source.matrix.toarray() if isinstance(source, Sparse) else source.matrix
    return matrix if source.weight is None else matrix * source.weight.max()


@st.composite
def made(draw: st.DrawFn) -> tuple[Any, np.random.Generator]:
    """Draw a source of any shape, kind, centre and weight."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sparse = draw(st.booleans())
    count = 1 if sparse else draw(st.integers(1, 3))
    n1, n2 = draw(st.integers(1, 8)), draw(st.integers(1, 40))
    matrix = rng.normal(size=(count, n1, n2)) + draw(st.sampled_from([0.0, 5.0]))
    if sparse:
        matrix = matrix * (rng.random(matrix.shape) < draw(st.sampled_from([0.0, 0.3, 1.0])))
    axis = draw(st.sampled_from([None, 1, 2]))
    mean_of = draw(st.booleans())
    centre = None if axis is None else matrix.mean(axis=axis, keepdims=True)
    if centre is not None and not mean_of:  # any centre will do
        centre = rng.normal(size=centre.shape)
    weight = rng.uniform(0.1, 9, size=(count, 1, 1)) if draw(st.booleans()) else None
    if sparse:
        kind = draw(st.sampled_from([scipy.sparse.csr_array, scipy.sparse.csc_array]))
        return Sparse(kind(matrix[0]), centre, weight), rng
    return Dense(matrix, centre, weight), rng


@given(made())
def test_every_answer_is_that_of_the_explicit_matrix(drawn):
    assert_answers(*drawn)


@given(made(), st.sampled_from([Squared(), Plain()]))
def test_the_pull_holds_the_slopes_of_its_value(drawn, loss):
    source, rng = drawn
    count, n1, n2 = source.shape
    W, H = rng.normal(size=(count, n1, 2)), rng.normal(size=(count, n2, 2))
    dW, dH = rng.normal(size=W.shape), rng.normal(size=H.shape)
    _, by_W, by_H = source.pull(loss, W, H)

    def value(step: float) -> float:
        return source.pull(loss, W + step * dW, H + step * dH)[0].sum()

    # a polynomial of degree four: the central difference is off by the cubic term, step^2, only
    slope = (value(1e-4) - value(-1e-4)) / 2e-4
    expected = np.sum(by_W * dW) + np.sum(by_H * dH)
    scale = abs(value(0)) + np.sum(W**2) * np.sum(H**2) + np.sum(dW**2) * np.sum(dH**2) + 1
    assert slope == pytest.approx(expected, abs=1e-6 * scale)


@pytest.mark.parametrize("centred", [None, 1, 2])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(40, 150), (40, 300), (300, 150)])
def test_blocks_answer_like_the_whole(centred, weighted, shape, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(1, *shape)) + 3
    centre = None if centred is None else matrix.mean(axis=centred, keepdims=True)
    weight = np.full((1, 1, 1), 0.3) if weighted else None
    whole = Dense(matrix, centre, weight)
    W = rng.normal(size=(1, shape[0], 3))
    expected = whole.normal(W), whole.energy
    monkeypatch.setattr(module, "BLOCK_BYTES", 1000)
    cut = Dense(matrix, centre, weight)
    assert len(list(cut._blocks())) > 1
    np.testing.assert_allclose(cut.normal(W), expected[0], rtol=0, atol=EXACT * shape[0] * shape[1])
    np.testing.assert_allclose(cut.energy, expected[1], rtol=EXACT)


def test_a_matrix_larger_than_a_block_is_cut(seed):
    rng = np.random.default_rng(seed)
    n1, n2 = 300, 2200  # 5.3 MB, above BLOCK_BYTES
    source = Dense(rng.normal(size=(1, n1, n2)))
    assert n1 * n2 * 8 > module.BLOCK_BYTES and len(list(source._blocks())) > 1
    assert_answers(source, rng)


@pytest.mark.parametrize("centred", [None, 1, 2])
def test_the_gram_path_answers_like_the_direct_one(centred, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(2, 5, 5 * module.GRAM_RATIO)) + 3
    centre = None if centred is None else matrix.mean(axis=centred, keepdims=True)
    wide = Dense(matrix, centre)
    assert wide._gram is not None
    W = rng.normal(size=(2, 5, 2))
    by_gram = wide.normal(W)
    monkeypatch.setattr(module, "GRAM_RATIO", 99)
    direct = Dense(matrix, centre)
    assert direct._gram is None
    np.testing.assert_allclose(by_gram, direct.normal(W), rtol=0, atol=1e-10)  # entries near 1e2


def test_a_stack_answers_like_its_matrices_one_at_a_time(seed):
    rng = np.random.default_rng(seed)
    matrix, W, H = (
        rng.normal(size=(4, 6, 9)),
        rng.normal(size=(4, 6, 2)),
        rng.normal(size=(4, 9, 2)),
    )
    centre, weight = matrix.mean(axis=2, keepdims=True), rng.uniform(1, 2, size=(4, 1, 1))
    stack = Dense(matrix, centre, weight)
    answers = [stack.matmat(H), stack.rmatmat(W), stack.normal(W), stack.energy]
    answers += stack.pull(Squared(), W, H)
    for k in range(4):
        one = Dense(matrix[k : k + 1], centre[k : k + 1], weight[k : k + 1])
        w, h = W[k : k + 1], H[k : k + 1]
        single = [one.matmat(h), one.rmatmat(w), one.normal(w), one.energy]
        single += one.pull(Squared(), w, h)
        for many, alone in zip(answers, single, strict=True):
            np.testing.assert_allclose(many[k : k + 1], alone, rtol=0, atol=EXACT)


@pytest.mark.parametrize("shape", [(4, 6), (4, 30)])
def test_torch_answers_like_numpy(shape, seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(2, *shape))
    centre, weight = matrix.mean(axis=2, keepdims=True), rng.uniform(1, 2, size=(2, 1, 1))
    W, H = rng.normal(size=(2, shape[0], 2)), rng.normal(size=(2, shape[1], 2))
    ours = Dense(matrix, centre, weight)
    theirs = Dense(*map(torch.asarray, (matrix, centre, weight)))
    w, h = torch.asarray(W), torch.asarray(H)
    pairs = [
        (ours.matmat(H), theirs.matmat(h)),
        (ours.rmatmat(W), theirs.rmatmat(w)),
        (ours.normal(W), theirs.normal(w)),
        (ours.energy, theirs.energy),
        *zip(ours.pull(Squared(), W, H), theirs.pull(Squared(), w, h), strict=True),
        *zip(ours.pull(Plain(), W, H), theirs.pull(Plain(), w, h), strict=True),
    ]
    for one, other in pairs:
        assert isinstance(other, torch.Tensor)
        np.testing.assert_allclose(other.numpy(), one, rtol=0, atol=EXACT)


def in_kind(kind: str, matrix: np.ndarray, centre: np.ndarray) -> Any:
    if kind == "dense":
        return Dense(matrix[None], centre)
    return Sparse(scipy.sparse.csr_array(matrix), centre)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("shape", [(20, 50), (20, 400)])
def test_single_precision_is_accurate_to_its_own_rounding(kind, shape, seed):
    rng = np.random.default_rng(seed)
    matrix = (rng.normal(size=shape) + 2).astype(np.float32)
    centre = matrix.mean(axis=1).reshape(1, -1, 1)
    single = in_kind(kind, matrix, centre)
    M = explicit(single)
    W = rng.normal(size=(1, shape[0], 2)).astype(np.float32)
    found, expected = single.normal(W), M @ (M.mT @ W)
    assert found.dtype == single.energy.dtype == np.float32
    # eps is 1.2e-7; some hundred roundings that mostly cancel
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    np.testing.assert_allclose(single.energy, (M**2).sum(axis=(1, 2)), rtol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("shape", [(20, 50), (20, 400)])
def test_a_mean_a_million_times_the_deviations_costs_no_more_than_its_digits(kind, shape, seed):
    rng = np.random.default_rng(seed)
    matrix = 1e6 * rng.normal(size=(shape[0], 1)) + rng.normal(size=shape)
    centre = matrix.mean(axis=1).reshape(1, -1, 1)
    source = in_kind(kind, matrix, centre)
    M = explicit(source)
    W = rng.normal(size=(1, shape[0], 2))
    expected = M @ (M.mT @ W)
    # six of sixteen digits go to the mean; the sparse product loses them twice
    lost = 1e-8 if kind == "dense" else 1e-4
    found = source.normal(W)
    np.testing.assert_allclose(found, expected, rtol=0, atol=lost * np.abs(expected).max())
    np.testing.assert_allclose(source.energy, (M**2).sum(axis=(1, 2)), rtol=1e-12)


@pytest.mark.parametrize("fill", [0.1, 1e6])
def test_the_energy_of_a_constant_sparse_matrix_is_no_less_than_nothing(fill):
    matrix = np.full((5, 7), fill)
    energy = in_kind("sparse", matrix, matrix.mean(axis=1).reshape(1, -1, 1)).energy
    assert 0 <= energy[0] <= (1e-15 * fill) ** 2 * 35 * 4  # two roundings of each mean


@pytest.mark.parametrize("sparse", [True, False])
def test_weighing_makes_every_energy_one_but_leaves_zero_alone(sparse, seed):
    matrices = np.random.default_rng(seed).normal(size=(3, 4, 5)) * [[[1e3]], [[1e-3]], [[0.0]]]
    if sparse:
        stacks, members = [Sparse(scipy.sparse.csr_array(m)) for m in matrices], [[2], [0], [1]]
    else:
        stacks, members = [Dense(matrices)], [[2, 0, 1]]
    weighted, weights = weigh(stacks, members, ["a", "b", "c"], each=True)
    energies = np.concatenate([source.energy for source in weighted])
    np.testing.assert_allclose(energies, [1, 1, 0], rtol=1e-14)
    norms = np.linalg.norm(matrices, axis=(1, 2))
    np.testing.assert_allclose(weights, [1 / norms[1], 1, 1 / norms[0]], rtol=1e-14)


def test_one_weight_for_all_is_a_power_of_two_of_their_mean_energy():
    matrices = np.random.default_rng(0).normal(size=(3, 4, 5)) * [[[1e3]], [[1e-3]], [[0.0]]]
    weighted, weights = weigh([Dense(matrices)], [[0, 1, 2]], ["a", "b", "c"], each=False)
    assert len(set(weights)) == 1
    assert np.log2(weights[0]).is_integer()
    assert 0.25 <= weighted[0].energy.mean() <= 4
    np.testing.assert_array_equal(weighted[0].rmatmat(np.eye(4)), weights[0] * matrices.mT)


def test_energies_that_overflow_are_refused_by_name():
    with pytest.warns(RuntimeWarning, match="overflow"):
        source = Dense(np.full((1, 2, 2), 1e200))
        assert np.isinf(source.energy).all()
    with pytest.raises(ValueError, match="Source 'b' holds values too large to square in float64"):
        weigh([source], [[0]], ["b"], each=True)
