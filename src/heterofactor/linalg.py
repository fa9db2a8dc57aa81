"""The few decompositions the method needs, on stacks of matrices and in any array library.

Every function takes arrays of shape ``(..., rows, columns)`` of NumPy, torch or another library of
the array API standard, and answers in kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import array_api_compat
import numpy as np
from array_api_compat import device

# Entries of a matrix that is factored alone, and not with others of its stack.
TALL = 100_000

# An array of any library of the array API standard; the standard has no type to name it by.
Array = Any


def namespace(array: Array) -> Any:
    """Return the library of an array, as the array API standard has it."""
    if isinstance(array, np.ndarray):
        # NumPy has followed the standard since 2.1; wrappers take longer than many a small product
        return np
    return array_api_compat.array_namespace(array)


def like(values: Any, example: Array) -> Array:
    """Bring `values` into the library, precision and device of `example`."""
    xp = namespace(example)
    if isinstance(values, np.ndarray) and values.ndim > 0:
        values = np.ascontiguousarray(values)
    return xp.asarray(values, dtype=example.dtype, device=device(example))


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """Bring an array of any library to NumPy, for printing, tables and files."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
    return np.asarray(array)


def machine_epsilon(array: Array) -> float:
    """Return the relative rounding error of the array's precision."""
    return float(namespace(array).finfo(array.dtype).eps)


def complement(basis: Array, block: Array) -> Array:
    """Return orthonormal columns beside `basis` that span `block` as far as it leaves the basis.

    One Householder factorisation of ``[basis, block]``: where the block is deficient, the missing
    directions are filled in, so that the answer is always orthonormal (and never wider than the
    space left beside `basis`).

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.linalg import complement
    >>> basis, block = np.eye(3)[:, :1], np.array([[5.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    >>> np.abs(complement(basis, block)).tolist()  # the second column had nothing to say
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    xp = namespace(block)
    basis = xp.broadcast_to(basis, (*block.shape[:-1], basis.shape[-1]))
    if _is_tall(block):
        pairs = zip(xp.unstack(basis), xp.unstack(block), strict=True)
        return xp.stack([_tall_complement(*pair) for pair in pairs])
    q, _ = xp.linalg.qr(xp.concat([basis, block], axis=-1))
    return q[..., basis.shape[-1] :]


def orthonormal(block: Array) -> Array:
    """Return orthonormal columns that span `block`."""
    xp = namespace(block)
    if _is_tall(block):
        return xp.stack([_tall_complement(one[:, :0], one) for one in xp.unstack(block)])
    q, _ = xp.linalg.qr(block)
    return q


def _is_tall(block: Array) -> bool:
    """Say whether matrices of a stack are so large that they are better taken one by one.

    A factorisation needs several times the memory of what is factored.
    """
    return bool(block.ndim == 3 and block.shape[0] > 1 and block.shape[1] * block.shape[2] > TALL)


def _tall_complement(basis: Array, block: Array) -> Array:
    """Do the same by Gram matrices, ten times as fast; the second pass makes up for squaring."""
    xp, found = namespace(block), block
    for _ in range(2):
        for _ in range(2):  # once leaves what rounding left of a block nearly inside
            found = found - basis @ (basis.mT @ found)
        values, vectors = xp.linalg.eigh(found.mT @ found)
        if not float(values[0]) > 100 * machine_epsilon(values) * float(values[-1]):
            return complement(basis, block)
        found = found @ (vectors / xp.sqrt(values))
    return found


def polar(matrix: Array) -> Array:
    """Return the orthonormal frame nearest to a matrix of full rank; it has the same span.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.linalg import polar
    >>> polar(np.array([[2.0, 0.0], [0.0, 0.5], [0.0, 0.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    xp = namespace(matrix)
    values, vectors = xp.linalg.eigh(matrix.mT @ matrix)
    return matrix @ ((vectors / xp.sqrt(values)[..., None, :]) @ vectors.mT)


def frame_near(block: Array, basis: Array | None = None) -> Array:
    """Return the orthonormal frame nearest to a block, beside a basis if there is one.

    Where the block is deficient, directions are filled in.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.linalg import frame_near
    >>> frame_near(np.array([[1.0, 0.0], [0.0, 0.1], [0.0, 0.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    xp = namespace(block)
    if block.shape[-1] == 0:
        return block
    if basis is not None:
        for _ in range(2):  # once leaves what rounding left of a block nearly inside
            block = block - basis @ (basis.mT @ block)
    values, vectors = xp.linalg.eigh(block.mT @ block)
    floor = values[..., -1:] * (100 * machine_epsilon(values))
    if not bool(xp.all(values > floor)):
        return orthonormal(block) if basis is None else complement(basis, block)
    return block @ ((vectors / xp.sqrt(values)[..., None, :]) @ vectors.mT)


def symmetric(matrix: Array) -> Array:
    """Return the symmetric part of a matrix."""
    return (matrix + matrix.mT) / 2


def leading(matrix: Array, count: int) -> tuple[Array, Array]:
    """Return the largest eigenvalues of a symmetric matrix, in falling order, and their vectors."""
    xp = namespace(matrix)
    values, vectors = xp.linalg.eigh(symmetric(matrix))
    size = matrix.shape[-1]
    order = slice(size - count, size)
    return xp.flip(values[..., order], axis=-1), xp.flip(vectors[..., order], axis=-1)


def squared_norm(matrix: Array) -> Array:
    """Return the sum of squares of each matrix of a stack."""
    return namespace(matrix).sum(matrix * matrix, axis=(-2, -1))


def trace(matrix: Array) -> Array:
    """Return the trace of each matrix of a stack."""
    return namespace(matrix).linalg.trace(matrix)


def beside(blocks: Sequence[Array]) -> Array:
    """Put blocks of columns side by side."""
    return namespace(blocks[0]).concat(list(blocks), axis=-1)


def zeros(example: Array, width: int) -> Array:
    """Return columns of zeros, beside which `example` fits."""
    xp = namespace(example)
    shape = (*example.shape[:-1], width)
    return xp.zeros(shape, dtype=example.dtype, device=device(example))
