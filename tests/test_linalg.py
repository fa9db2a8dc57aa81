"""The decompositions are what they say, on stacks, in every precision and library."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heterofactor import linalg
from heterofactor.linalg import (
    beside,
    complement,
    leading,
    like,
    machine_epsilon,
    orthonormal,
    polar,
    squared_norm,
    symmetric,
    to_numpy,
    trace,
    zeros,
)

EXACT = 1e-13  # some hundred ulp: more than a QR or an eigendecomposition of ten columns leaves


def frame(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=shape))[0]


@st.composite
def bases_and_blocks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Draw a basis, and a stack of blocks that may be deficient, zero, or inside the basis."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, count = draw(st.integers(2, 9)), draw(st.integers(1, 3))
    r1 = draw(st.integers(0, n - 1))
    width = draw(st.integers(0, n - r1))
    basis, block = frame(rng, n, r1), rng.normal(size=(count, n, width))
    kind = draw(st.sampled_from(["full", "zero", "equal columns", "inside", "tiny"]))
    if kind == "zero":
        block = block * 0
    elif kind == "equal columns" and width:
        block = block[..., :1] + np.zeros(width)
    elif kind == "inside":
        block = basis @ rng.normal(size=(count, r1, width))
    elif kind == "tiny":
        block = block * 1e-200
    return basis, block


@pytest.fixture(params=["small", "tall"])
def _size(request):
    """Take matrices of a stack together, or one by one as if they were large."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "tall":
            patch.setattr(linalg, "TALL", 0)
        yield


@pytest.mark.usefixtures("_size")
@given(bases_and_blocks())
def test_complement_is_orthonormal_and_orthogonal_whatever_the_block(drawn):
    basis, block = drawn
    found = complement(basis, block)
    assert found.shape == block.shape
    identity = np.broadcast_to(np.eye(block.shape[-1]), (len(block), *2 * block.shape[-1:]))
    np.testing.assert_allclose(found.mT @ found, identity, atol=EXACT)
    np.testing.assert_allclose(basis.T @ found, 0, atol=EXACT)


@pytest.mark.usefixtures("_size")
@given(bases_and_blocks())
def test_complement_and_basis_span_the_block(drawn):
    basis, block = drawn
    both = np.concatenate(
        [np.broadcast_to(basis, (len(block), *basis.shape)), complement(basis, block)], axis=-1
    )
    size = max(1.0, np.abs(block).max(initial=0.0))
    np.testing.assert_allclose(both @ (both.mT @ block), block, atol=10 * EXACT * size)


def test_complement_is_never_wider_than_the_room_beside_the_basis(seed):
    rng = np.random.default_rng(seed)
    found = complement(frame(rng, 5, 3), rng.normal(size=(2, 5, 4)))
    assert found.shape == (2, 5, 2)
    np.testing.assert_allclose(found.mT @ found, np.stack([np.eye(2)] * 2), atol=EXACT)


@pytest.mark.usefixtures("_size")
def test_orthonormal_keeps_the_span(seed):
    block = np.random.default_rng(seed).normal(size=(3, 7, 2))
    found = orthonormal(block)
    np.testing.assert_allclose(found.mT @ found, np.stack([np.eye(2)] * 3), atol=EXACT)
    np.testing.assert_allclose(found @ (found.mT @ block), block, atol=10 * EXACT)


def test_polar_is_the_nearest_frame(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(6, 3))
    found = polar(matrix)
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=EXACT)
    nearest = np.linalg.norm(found - matrix)
    u, _, vt = np.linalg.svd(matrix, full_matrices=False)
    np.testing.assert_allclose(found, u @ vt, atol=EXACT)
    others = [frame(rng, 6, 3) for _ in range(50)]
    others += [np.linalg.qr(found + 1e-3 * rng.normal(size=(6, 3)))[0] for _ in range(50)]
    for other in others:
        signs = np.sign(np.sum(other * found, axis=0))
        assert np.linalg.norm(other * signs - matrix) > nearest


def test_polar_leaves_a_frame_as_it_is(seed):
    given_ = frame(np.random.default_rng(seed), 4, 6, 3)
    np.testing.assert_allclose(polar(given_), given_, atol=EXACT)


def test_leading_are_the_largest_eigenvalues_in_falling_order(seed):
    rng = np.random.default_rng(seed)
    vectors = frame(rng, 5, 5)
    values = np.array([3.0, -4.0, 0.5, 2.0, 1.0])
    found, directions = leading((vectors * values) @ vectors.T, 3)
    np.testing.assert_allclose(found, [3.0, 2.0, 1.0], atol=EXACT)
    overlap = np.abs(directions.T @ vectors[:, [0, 3, 4]])
    np.testing.assert_allclose(overlap, np.eye(3), atol=EXACT)


def test_leading_none_is_an_empty_block():
    values, vectors = leading(np.eye(3), 0)
    assert values.shape == (0,) and vectors.shape == (3, 0)


def test_leading_sees_the_symmetric_part_only(seed):
    matrix = np.random.default_rng(seed).normal(size=(4, 4))
    np.testing.assert_array_equal(leading(matrix, 2)[0], leading(symmetric(matrix), 2)[0])


def test_traces_and_norms_are_of_each_matrix(seed):
    stack = np.random.default_rng(seed).normal(size=(3, 4, 4))
    np.testing.assert_allclose(trace(stack), [np.trace(m) for m in stack], rtol=EXACT)
    np.testing.assert_allclose(squared_norm(stack), [np.sum(m**2) for m in stack], rtol=EXACT)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_answers_keep_the_precision(dtype):
    block = np.random.default_rng(0).normal(size=(2, 5, 2)).astype(dtype)
    basis = np.eye(5, 1, dtype=dtype)
    gram = block.mT @ block
    answers = [complement(basis, block), polar(block), *leading(gram, 1), zeros(block, 2)]
    assert {str(answer.dtype) for answer in answers} == {dtype}
    assert machine_epsilon(block) == np.finfo(dtype).eps


def test_zeros_fit_beside_their_example():
    example = np.ones((3, 4, 2), dtype=np.float32)
    made = beside([example, zeros(example, 3)])
    assert made.shape == (3, 4, 5) and made.dtype == np.float32
    assert not made[..., 2:].any()


def test_like_takes_the_precision_of_its_example():
    assert like(np.eye(2)[::-1].T, np.zeros(1, dtype=np.float32)).dtype == np.float32
    assert like(1.5, np.zeros(1)) == 1.5


def test_torch_agrees_with_numpy(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    basis, block = frame(rng, 6, 2), rng.normal(size=(3, 6, 2))
    there, blocks = torch.asarray(basis), torch.asarray(block)
    pairs = [
        (polar(block), polar(blocks)),
        (leading(block.mT @ block, 1)[0], leading(blocks.mT @ blocks, 1)[0]),
        (squared_norm(block), squared_norm(blocks)),
        (trace(block.mT @ block), trace(blocks.mT @ blocks)),
    ]
    ours, theirs = complement(basis, block), complement(there, blocks)
    pairs.append((ours @ ours.mT, theirs @ theirs.mT))  # signs are a library's own
    for one, other in pairs:
        assert isinstance(other, torch.Tensor)
        np.testing.assert_allclose(to_numpy(other), one, atol=EXACT)


def test_to_numpy_detaches_what_has_a_gradient():
    torch = pytest.importorskip("torch")
    found = to_numpy(torch.ones(2, requires_grad=True))
    assert type(found) is np.ndarray and found.tolist() == [1.0, 1.0]
