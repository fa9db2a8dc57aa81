"""What one source observed: a matrix of the paper's orientation, ``n1 x n2``, shared axis first.

A source here is a *stack* of one or more matrices of one shape, so that thousands of small tables
cost a few batched calls; large ones stay where they lie and are gathered, so that only products
are taken one by one. It answers with products only; a centre that is subtracted is never written
into the user's data.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from array_api_compat import device

from heterofactor.linalg import Array, like, namespace, squared_norm, to_numpy
from heterofactor.losses import Loss, Squared
from heterofactor.numeric import itemsize

# A block of a large matrix stays in the processor's cache between the two products of `normal`.
BLOCK_BYTES = 2**22
# With this many columns for each row, the n1 x n1 normal matrix is small beside the data, and is
# paid back within the first few rounds.
GRAM_RATIO = 4
# Where centring leaves less of the energy than this, it is added up from the centred entries.
CANCELLED = 1e-3


class Source(Protocol):
    """What a source must answer; every array has the stack as its first axis."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many matrices, and the rows (the shared axis) and columns of each."""

    @property
    def energy(self) -> Array:
        """The sum of squares of each matrix."""

    def matmat(self, H: Array) -> Array:
        """Return the matrices times `H`."""

    def rmatmat(self, W: Array) -> Array:
        """Return the transposed matrices times `W`."""

    def normal(self, W: Array) -> Array:
        """Return ``M (M' W)``, all that the squared loss of complete data needs."""

    def pull(self, loss: Loss, W: Array, H: Array) -> tuple[Array, Array, Array]:
        """Return the loss at ``Z = W H'``, its slope times `H`, its transposed slope times `W`."""

    def weighted(self, weight: Array) -> Source:
        """Return the source whose matrices are multiplied with weights, one for each."""


@dataclass(frozen=True, eq=False)
class Dense:
    """Complete matrices, less a centre that is constant along the columns or along the rows.

    Parameters
    ----------
    matrix : array of shape (count, n1, n2)
        A view of the user's data where that can be had.
    centre : array of shape (count, n1, 1) or (count, 1, n2), optional
        What is subtracted.
    weight : array of shape (count, 1, 1), optional
        What the centred matrices are multiplied with.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.sources import Dense
    >>> stack = np.arange(24.0).reshape(2, 3, 4)
    >>> source = Dense(stack, centre=stack.mean(axis=-1, keepdims=True))
    >>> source.shape
    (2, 3, 4)
    >>> float(source.matmat(np.ones((4, 1))).max())  # rows add up to zero
    0.0
    """

    matrix: Array
    centre: Array | None = None
    weight: Array | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many matrices, and the rows (the shared axis) and columns of each."""
        count, n1, n2 = self.matrix.shape
        return count, n1, n2

    def matmat(self, H: Array) -> Array:
        """Return the matrices times `H`."""
        return _centred(self, self.matrix @ H, H)

    def rmatmat(self, W: Array) -> Array:
        """Return the transposed matrices times `W`."""
        return _centred_transposed(self, self.matrix.mT @ W, W)

    def normal(self, W: Array) -> Array:
        """Return ``M (M' W)``, reading the data once."""
        return self.normal_once(W) if self._gram is None else self._gram @ W

    def normal_once(self, W: Array) -> Array:
        """Return ``M (M' W)`` of data that will not be asked again: nothing is kept for later."""
        twice = 1.0 if self.weight is None else self.weight**2
        total: Array = 0
        if self.centre is None:
            for block, _ in self._blocks():
                total = total + block @ (block.mT @ W * twice)
            return total
        a, b = _outer(self)
        pulled, lost = a.mT @ W, 0
        for block, columns in self._blocks():
            along = b[..., columns]
            scores = (block.mT @ W - along.mT * pulled) * twice
            total, lost = total + block @ scores, lost + along @ scores
        return total - a * lost

    def pull(self, loss: Loss, W: Array, H: Array) -> tuple[Array, Array, Array]:
        """Return the loss at ``Z = W H'``, its slope times `H`, its transposed slope times `W`.

        The squared loss never forms the residual.
        """
        if isinstance(loss, Squared):
            return _pull_squared(self, W, H)
        xp = namespace(self.matrix)
        M = self._explicit()
        Z = W @ H.mT
        slope = loss.slope(M, Z)
        return xp.sum(loss.value(M, Z), axis=(-2, -1)), slope @ H, slope.mT @ W

    @cached_property
    def energy(self) -> Array:
        """The sum of squares of each matrix, once its centre is subtracted."""
        xp = namespace(self.matrix)
        raw: Array = 0
        for block, _ in self._blocks():
            raw = raw + xp.sum(xp.vecdot(block.mT, block.mT), axis=-1)
        energy = raw
        if self.centre is not None:
            # |M - a b|^2 = |M|^2 - <a b, 2 M - a b>, where that leaves enough digits
            a, b = _outer(self)
            energy = raw - xp.sum(a * (2 * (self.matrix @ b.mT) - a * (b @ b.mT)), axis=(-2, -1))
            if bool(xp.any(energy < CANCELLED * raw)):
                energy = 0
                for block, columns in self._blocks():
                    energy = energy + squared_norm(block - a * b[..., columns])
        return energy if self.weight is None else energy * self.weight[:, 0, 0] ** 2

    def weighted(self, weight: Array) -> Dense:
        """Return the source whose matrices are multiplied with weights, one for each."""
        return _weighted(self, weight)

    @cached_property
    def _gram(self) -> Array | None:
        """The normal matrices ``M M'`` where they are small beside the data."""
        _, n1, n2 = self.shape
        if n2 < GRAM_RATIO * n1:
            return None
        total: Array = 0
        for block, columns in self._blocks():
            if self.centre is not None:
                a, b = _outer(self)
                block = block - a * b[..., columns]
            total = total + block @ block.mT
        return total if self.weight is None else total * self.weight**2

    def _explicit(self) -> Array:
        centred = self.matrix if self.centre is None else self.matrix - self.centre
        return centred if self.weight is None else centred * self.weight

    def _blocks(self) -> Iterator[tuple[Array, slice]]:
        """Cut a matrix that is larger than the cache into blocks of columns."""
        count, n1, n2 = self.shape
        width = max(64, BLOCK_BYTES // (n1 * itemsize(self.matrix)))
        if count > 1:
            width = n2
        for first in range(0, n2, width):
            columns = slice(first, min(first + width, n2))
            yield self.matrix[..., columns], columns


@dataclass(frozen=True, eq=False)
class Sparse:
    """One sparse matrix whose absent entries are zeros, less a centre; never made dense.

    Parameters
    ----------
    matrix : scipy.sparse array of shape (n1, n2)
        In a format whose products are fast (CSR or CSC), each entry stored once.
    centre : array of shape (1, n1, 1) or (1, 1, n2), optional
        What is subtracted.
    weight : array of shape (1, 1, 1), optional
        What the centred matrix is multiplied with.

    Examples
    --------
    >>> import numpy as np, scipy.sparse
    >>> from heterofactor.sources import Dense, Sparse
    >>> matrix = scipy.sparse.random_array((6, 5), density=0.5, rng=0, format="csr")
    >>> centre = matrix.mean(axis=1).reshape(1, 6, 1)
    >>> dense = Dense(matrix.toarray()[None], centre)
    >>> W = np.ones((1, 6, 2))
    >>> bool(np.allclose(Sparse(matrix, centre).normal(W), dense.normal(W)))
    True
    """

    matrix: Any
    centre: Array | None = None
    weight: Array | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """One matrix, and its rows (the shared axis) and columns."""
        return (1, *self.matrix.shape)

    def matmat(self, H: Array) -> Array:
        """Return the matrix times `H`."""
        return _centred(self, (self.matrix @ _single(H))[None], H)

    def rmatmat(self, W: Array) -> Array:
        """Return the transposed matrix times `W`."""
        return _centred_transposed(self, (self.matrix.T @ _single(W))[None], W)

    def normal(self, W: Array) -> Array:
        """Return ``M (M' W)``."""
        return self.matmat(self.rmatmat(W))

    def pull(self, loss: Loss, W: Array, H: Array) -> tuple[Array, Array, Array]:
        """Return the loss at ``Z = W H'``, its slope times `H`, its transposed slope times `W`."""
        if isinstance(loss, Squared):
            return _pull_squared(self, W, H)
        return Dense(self.matrix.toarray()[None], self.centre, self.weight).pull(loss, W, H)

    @cached_property
    def energy(self) -> Array:
        """The sum of squares of the matrix, once its centre is subtracted."""
        _, n1, n2 = self.shape
        entries = self.matrix.tocoo(copy=False)
        stored, absent = entries.data, np.zeros(1)
        if self.centre is not None:
            line = self.centre.reshape(-1)
            by_rows = self.centre.shape[-2:] == (n1, 1)
            places, length = (entries.row, n2) if by_rows else (entries.col, n1)
            stored = stored - line[places]
            absent = (length - np.bincount(places, minlength=line.shape[0])) * line**2
        total = (np.sum(stored**2) + np.sum(absent)).astype(self.matrix.dtype).reshape(1)
        return total if self.weight is None else total * self.weight.reshape(1) ** 2

    def weighted(self, weight: Array) -> Sparse:
        """Return the source whose matrix is multiplied with a weight."""
        return _weighted(self, weight)


@dataclass(frozen=True, eq=False)
class Gathered:
    """Sources of one shape that answer as one stack, each from where it lies.

    Their products are taken one by one, what is done with the products is done for all at once.

    Parameters
    ----------
    parts : sequence of Source
        Stacks whose matrices have one shape.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.sources import Dense, Gathered
    >>> source = Gathered([Dense(np.full((1, 3, 4), 2.0)), Dense(np.ones((1, 3, 4)))])
    >>> source.shape, source.energy.tolist()
    ((2, 3, 4), [48.0, 12.0])
    """

    parts: Sequence[Source]

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """How many matrices, and the rows (the shared axis) and columns of each."""
        return sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:]

    def matmat(self, H: Array) -> Array:
        """Return the matrices times `H`."""
        return _concat([part.matmat(h) for part, h in self._with(H)])

    def rmatmat(self, W: Array) -> Array:
        """Return the transposed matrices times `W`."""
        return _concat([part.rmatmat(w) for part, w in self._with(W)])

    def normal(self, W: Array) -> Array:
        """Return ``M (M' W)``."""
        return _concat([part.normal(w) for part, w in self._with(W)])

    def pull(self, loss: Loss, W: Array, H: Array) -> tuple[Array, Array, Array]:
        """Return the loss at ``Z = W H'``, its slope times `H`, its transposed slope times `W`."""
        pairs = zip(self._with(W), self._with(H), strict=True)
        answers = [part.pull(loss, w, h) for (part, w), (_, h) in pairs]
        value, by_W, by_H = map(_concat, zip(*answers, strict=True))
        return value, by_W, by_H

    @cached_property
    def energy(self) -> Array:
        """The sum of squares of each matrix, once its centre is subtracted."""
        return _concat([part.energy for part in self.parts])

    def weighted(self, weight: Array) -> Gathered:
        """Return the source whose matrices are multiplied with weights, one for each."""
        return Gathered([part.weighted(w) for part, w in self._with(weight)])

    def _with(self, stack: Array) -> Iterator[tuple[Source, Array]]:
        """Pair every part with its own share of a stack."""
        first = 0
        for part in self.parts:
            last = first + part.shape[0]
            yield part, stack[first:last, ...]
            first = last


Kind = TypeVar("Kind", Dense, Sparse)


def weigh(
    sources: Sequence[Source],
    members: Sequence[Sequence[int]],
    names: Sequence[Hashable],
    *,
    each: bool,
) -> tuple[list[Source], list[float]]:
    """Give every matrix a weight, so that no product of a fit overflows or underflows.

    Parameters
    ----------
    sources : sequence of Source
        Stacks of matrices.
    members : sequence of sequence of int
        The place of each matrix among all.
    names : sequence
        Of all matrices.
    each : bool
        Give each matrix the weight that makes its own sum of squares one; a zero matrix keeps
        one. Otherwise all get the same power of two, which rounds nothing, and makes the mean sum
        of squares about one.

    Returns
    -------
    weighted : list of Source
    weights : list of float
        In the order of the places.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.sources import Dense, weigh
    >>> sources = [Dense(np.full((1, 2, 2), 3.0)), Dense(np.full((1, 2, 2), 4.0))]
    >>> weigh(sources, [[0], [1]], ["a", "b"], each=True)[1]
    [0.16..., 0.125]
    >>> weigh(sources, [[0], [1]], ["a", "b"], each=False)[1]
    [0.125, 0.125]
    """
    weights = [1.0] * sum(map(len, members))
    for source, places in zip(sources, members, strict=True):
        for place, energy in zip(places, to_numpy(source.energy).tolist(), strict=True):
            if not math.isfinite(energy):
                raise ValueError(
                    f"Source {names[place]!r} holds values too large to square in "
                    f"{source.energy.dtype}: rescale it, or give it in double precision."
                )
            weights[place] = energy**-0.5 if energy > 0 else 1.0
    if not each:
        sizes = [weight**-2 for weight in weights]
        weights = [2.0 ** -round(math.log2(sum(sizes) / len(sizes)) / 2)] * len(weights)
    weighted = [
        source.weighted(like(np.array([weights[place] for place in places]), source.energy))
        for source, places in zip(sources, members, strict=True)
    ]
    return weighted, weights


def _weighted(source: Kind, weight: Array) -> Kind:
    before = 1 if source.weight is None else source.weight
    weighted = replace(source, weight=before * weight[:, None, None])
    # what is known of the old one need not be read off the data again
    weighted.__dict__["energy"] = source.energy * weight**2
    return weighted


def _concat(parts: Sequence[Array]) -> Array:
    return namespace(parts[0]).concat(list(parts))


def _pull_squared(source: Dense | Sparse, W: Array, H: Array) -> tuple[Array, Array, Array]:
    xp = namespace(W)
    image, scores = source.matmat(H), source.rmatmat(W)
    HH, WW = H.mT @ H, W.mT @ W
    fit = xp.sum(HH * WW, axis=(-2, -1))
    value = (source.energy - 2 * xp.sum(image * W, axis=(-2, -1)) + fit) / 2
    return value, W @ HH - image, H @ WW - scores


def _outer(source: Dense | Sparse) -> tuple[Array, Array]:
    """Write the centre as an outer product a b of a column and a row; one of them is all ones."""
    centre: Array = source.centre
    xp = namespace(centre)
    count, n1, n2 = source.shape
    if centre.shape == (count, n1, 1):
        return centre, xp.ones((count, 1, n2), dtype=centre.dtype, device=device(centre))
    return xp.ones((count, n1, 1), dtype=centre.dtype, device=device(centre)), centre


def _centred(source: Dense | Sparse, product: Array, H: Array) -> Array:
    """Turn the product of the raw matrices with `H` into that of the centred, weighted ones."""
    if source.centre is not None:
        a, b = _outer(source)
        product = product - a * (b @ H)
    return product if source.weight is None else product * source.weight


def _centred_transposed(source: Dense | Sparse, product: Array, W: Array) -> Array:
    """Turn the product of the raw transposed matrices with `W` into that of the centred ones."""
    if source.centre is not None:
        a, b = _outer(source)
        product = product - b.mT * (a.mT @ W)
    return product if source.weight is None else product * source.weight


def _single(W: Array) -> Array:
    return W if W.ndim == 2 else W[0]
