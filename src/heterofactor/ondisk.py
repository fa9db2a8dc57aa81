"""The source that streams a table which is not held in memory.

Every answer is the sum of the answers of its blocks, or their answers one after the other. Where
the shared axis is short, the moments of the table have all answers but the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from heterofactor.linalg import Array
from heterofactor.losses import Loss
from heterofactor.sources import Dense
from heterofactor.stored import Stored


@dataclass(frozen=True, eq=False)
class OnDisk:
    """A source that streams its matrix in blocks of columns, less a centre.

    Parameters
    ----------
    table : Stored
        Its rows are the matrix's columns where the features are shared (``table.axis == 0``).
    centre : array of shape (n features,), optional
        What is subtracted of each feature; its means, where the samples are shared.
    weight : array of shape (1, 1, 1), optional
        What the centred matrix is multiplied with.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ondisk import OnDisk
    >>> from heterofactor.sources import Dense
    >>> from heterofactor.stored import stored
    >>> table = np.random.default_rng(0).normal(size=(9, 4))
    >>> source, W = OnDisk(stored(lambda: table, "north")), np.ones((1, 4, 2))
    >>> bool(np.allclose(source.normal(W), Dense(table.T[None]).normal(W)))
    True
    """

    table: Stored
    centre: Array | None = None
    weight: Array | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """One matrix, and its rows (the shared axis) and columns."""
        axis = self.table.axis
        return 1, self.table.shape[1 - axis], self.table.shape[axis]

    def matmat(self, H: Array) -> Array:
        """Return the matrix times `H`."""
        return self._sum(lambda block, places: block.matmat(H[..., places, :]))

    def rmatmat(self, W: Array) -> Array:
        """Return the transposed matrix times `W`."""
        product = np.empty((1, self.shape[2], W.shape[-1]), self.table.dtype)
        for block, places in self._blocks():
            product[:, places, :] = block.rmatmat(W)
        return product

    def normal(self, W: Array) -> Array:
        """Return ``M (M' W)``, in one pass at most."""
        if self._gram is not None:
            return self._gram @ W
        return self._sum(lambda block, _: block.normal_once(W))

    def pull(self, loss: Loss, W: Array, H: Array) -> tuple[Array, Array, Array]:
        """Return the loss at ``Z = W H'``, its slope times `H`, its transposed slope times `W`."""
        value: Array = np.zeros(1, self.table.dtype)
        by_W, by_H = np.zeros_like(W), np.empty_like(H)
        for block, places in self._blocks():
            some, slope, by_H[:, places, :] = block.pull(loss, W, H[..., places, :])
            value, by_W = value + some, by_W + slope
        return value, by_W, by_H

    @cached_property
    def energy(self) -> Array:
        """The sum of squares of the matrix, once its centre is subtracted."""
        energy = np.asarray([self.table.moments.energy(self._off)], self.table.dtype)
        return energy if self.weight is None else energy * self.weight.reshape(1) ** 2

    def weighted(self, weight: Array) -> OnDisk:
        """Return the source whose matrix is multiplied with a weight."""
        before = 1 if self.weight is None else self.weight
        return replace(self, weight=before * weight[:, None, None])

    @cached_property
    def _gram(self) -> Array | None:
        gram = self.table.moments.gram(self._off)
        if gram is None:
            return None
        weight = 1.0 if self.weight is None else float(self.weight.reshape(())) ** 2
        return (gram * weight).astype(self.table.dtype)[None]

    @property
    def _off(self) -> Array:
        return self.table.off_shift(self.centre)

    def _sum(self, answer: Callable[[Dense, slice], Array]) -> Array:
        total: Array = 0
        for block, places in self._blocks():
            total = total + answer(block, places)
        return total

    def _blocks(self) -> Iterator[tuple[Dense, slice]]:
        """Yield blocks of columns, each a complete source."""
        by_rows = self.table.axis == 0
        for block, places in self.table.blocks():
            matrix = block.T[None] if by_rows else block[None]
            offset = None
            if self.centre is not None:
                offset = self.centre[None, :, None] if by_rows else self.centre[None, None, places]
            yield Dense(matrix, offset, self.weight), places
