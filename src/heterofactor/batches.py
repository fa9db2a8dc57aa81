"""Samples of many sources as torch sees them: what goes into the networks, and what was observed.

Samples lie sorted by source. Inputs are zero where nothing was observed; predictions are asked for
where something was. Both are dense, or lists of entries of which nothing dense is made.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

# A tensor; torch is optional, and has no types here.
Tensor = Any


class Pattern:
    """The places of the entries of a sparse matrix, by rows and by columns.

    Parameters
    ----------
    rows, columns : array of int
        Of the entries, sorted by rows.
    shape : (int, int)
    device : str

    Examples
    --------
    >>> import numpy as np, torch
    >>> from heterofactor.batches import Pattern
    >>> pattern = Pattern(np.array([0, 1]), np.array([2, 0]), (2, 3))
    >>> pattern.matrix(torch.tensor([5.0, 7.0])).to_dense()
    tensor([[0., 0., 5.],
            [7., 0., 0.]])
    """

    def __init__(
        self, rows: Any, columns: Any, shape: tuple[int, int], device: str = "cpu"
    ) -> None:
        self.shape = shape
        order = np.lexsort((rows, columns))
        to = {"dtype": torch.int64, "device": device}
        self.rows, self.columns = torch.as_tensor(rows, **to), torch.as_tensor(columns, **to)
        self.order = torch.as_tensor(order, **to)
        self._starts = torch.as_tensor(_starts(rows, shape[0]), **to)
        self._turned = torch.as_tensor(_starts(columns, shape[1]), **to)
        self._across = self.rows[self.order]

    def matrix(self, values: Tensor) -> Tensor:
        """Return the matrix that has these values at the entries."""
        return _csr(self._starts, self.columns, values, self.shape)

    def turned(self, values: Tensor) -> Tensor:
        """Return its transpose."""
        return _csr(self._turned, self._across, values[self.order], self.shape[::-1])

    def taken(self, rows: Tensor) -> tuple[Pattern, Tensor]:
        """Return the pattern of some rows, and which of the entries these are."""
        places, lines = _ranges(self._starts, rows)
        columns = self.columns[places].cpu().numpy()
        shape = (len(rows), self.shape[1])
        return Pattern(lines.cpu().numpy(), columns, shape, str(rows.device)), places


def _starts(lines: Any, count: int) -> Any:
    return np.concatenate([[0], np.cumsum(np.bincount(lines, minlength=count))])


def _ranges(starts: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of all entries of some rows, and of which of these rows each one is."""
    counts = starts[rows + 1] - starts[rows]
    lines = torch.arange(len(rows), device=rows.device).repeat_interleave(counts)
    before = torch.cumsum(counts, 0) - counts
    within = torch.arange(len(lines), device=rows.device) - before[lines]
    return starts[rows][lines] + within, lines


def _csr(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():  # torch calls the format a beta, once
        warnings.filterwarnings("ignore", message="Sparse CSR", category=UserWarning)
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)


class _Product(torch.autograd.Function):
    """A constant sparse matrix times a dense one."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, turned: Tensor, dense: Tensor) -> Tensor:
        ctx.turned = turned
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        return None, None, ctx.turned @ slope.contiguous()


def times(pattern: Pattern, values: Tensor, dense: Tensor, *, turned: bool = False) -> Tensor:
    """Return the matrix that has these values at the entries, or its transpose, times a dense one.

    Differentiable in the dense one only.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from heterofactor.batches import Pattern, times
    >>> pattern = Pattern(np.array([0]), np.array([1]), (1, 2))
    >>> times(pattern, torch.tensor([3.0]), torch.ones(1, 1), turned=True)
    tensor([[0.],
            [3.]])
    """
    both = pattern.matrix(values), pattern.turned(values)
    return _Product.apply(*(both[::-1] if turned else both), dense)


class _Entries(torch.autograd.Function):
    """Some entries of a product of two dense matrices."""

    @staticmethod
    def forward(ctx: Any, pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(left, right)
        zeros = left.new_zeros(len(pattern.columns))
        found = torch.sparse.sampled_addmm(pattern.matrix(zeros), left, right, beta=0.0)
        return found.values()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        left, right = ctx.saved_tensors
        slope = slope.contiguous()
        return (
            None,
            ctx.pattern.matrix(slope) @ right.mT.contiguous(),
            (ctx.pattern.turned(slope) @ left.contiguous()).mT,
        )


@dataclass(frozen=True, eq=False)
class DenseBatch:
    """Samples whose inputs are dense.

    Attributes
    ----------
    counts : list of int
        How many samples each source has.
    inputs : tensor of shape (n_samples, n_features)
        Zero where nothing was observed.
    positions : tensor of int or None
        Of what is to be predicted, counted row by row, and sorted; None for everything.
    targets : tensor
        What was observed there.
    offsets : tensor
        What is added to the networks' prediction there.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.batches import DenseBatch
    >>> batch = DenseBatch([2], torch.eye(2), None, torch.ones(4), torch.zeros(4))
    >>> batch.pick(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 2., 3., 4.])
    """

    counts: list[int]
    inputs: Tensor
    positions: Tensor | None
    targets: Tensor
    offsets: Tensor

    def product(self, weight: Tensor) -> Tensor:
        """Return the inputs times one matrix, or times one for each source."""
        return grouped(self.inputs, weight, self.counts)

    def dense(self) -> Tensor:
        """Return the inputs as one dense matrix."""
        return self.inputs

    def thinned(self, share: float) -> DenseBatch:
        """Return the same with some inputs left out at random, and the others larger by as much."""
        return replace(self, inputs=torch.nn.functional.dropout(self.inputs, share))

    def taken(self, rows: Tensor, counts: list[int]) -> DenseBatch:
        """Return the batch of some samples, still sorted by source."""
        width = self.inputs.shape[1]
        if self.positions is None:
            everything = torch.arange(width, device=rows.device)
            places, positions = (rows[:, None] * width + everything).reshape(-1), None
        else:
            edges = width * torch.arange(len(self.inputs) + 1, device=rows.device)
            places, lines = _ranges(torch.searchsorted(self.positions, edges), rows)
            positions = lines * width + self.positions[places] % width
        targets, offsets = self.targets[places], self.offsets[places]
        return DenseBatch(counts, self.inputs[rows], positions, targets, offsets)

    def pick(self, table: Tensor) -> Tensor:
        """Return the entries of a table that are to be predicted."""
        flat = table.reshape(-1)
        return flat if self.positions is None else flat[self.positions]

    def predicted(self, scores: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the same entries of ``scores @ weight + bias``."""
        return self.pick(torch.addmm(bias, scores, weight))


class EntryBatch:
    """Samples of which only the observed entries are stored.

    Parameters
    ----------
    counts : list of int
        How many samples each source has.
    pattern : Pattern
        Of the observed entries that go in.
    inputs : tensor
        Their values.
    asked : Pattern
        Of the entries to be predicted; often the same.
    targets, offsets : tensor
        As for `DenseBatch`.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from heterofactor.batches import EntryBatch, Pattern
    >>> pattern = Pattern(np.array([0, 1]), np.array([1, 0]), (2, 2))
    >>> values = torch.tensor([2.0, 3.0])
    >>> batch = EntryBatch([2], pattern, values, pattern, values, torch.zeros(2))
    >>> batch.product(torch.eye(2))
    tensor([[0., 2.],
            [3., 0.]])
    """

    def __init__(
        self,
        counts: list[int],
        pattern: Pattern,
        inputs: Tensor,
        asked: Pattern,
        targets: Tensor,
        offsets: Tensor,
    ) -> None:
        self.counts, self.asked, self.targets, self.offsets = counts, asked, targets, offsets
        self._inputs, self._pattern = inputs, pattern
        self._wide: Pattern | None = None
        self._matrices: dict[str, tuple[Tensor, Tensor]] = {}

    def product(self, weight: Tensor) -> Tensor:
        """Return the inputs times one matrix, or times one for each source."""
        if weight.ndim == 2:
            return _Product.apply(*self._both("one", self._pattern), weight)
        wide = self._beside()
        return _Product.apply(*self._both("wide", wide), weight.reshape(-1, weight.shape[-1]))

    def _both(self, name: str, pattern: Pattern) -> tuple[Tensor, Tensor]:
        """Return the inputs and their transpose."""
        if name not in self._matrices:
            self._matrices[name] = pattern.matrix(self._inputs), pattern.turned(self._inputs)
        return self._matrices[name]

    def _beside(self) -> Pattern:
        """Return the places of the inputs if each source has columns of its own."""
        if self._wide is None:
            length, width = self._pattern.shape
            source = np.repeat(np.arange(len(self.counts)), self.counts)
            rows = self._pattern.rows.cpu().numpy()
            columns = self._pattern.columns.cpu().numpy() + width * source[rows]
            shape = (length, width * len(self.counts))
            self._wide = Pattern(rows, columns, shape, self._inputs.device)
        return self._wide

    def thinned(self, share: float) -> EntryBatch:
        """Return the same with some inputs left out at random, and the others larger by as much."""
        self._beside()
        made = copy.copy(self)
        made._inputs = torch.nn.functional.dropout(self._inputs, share)
        made._matrices = {}
        return made

    def taken(self, rows: Tensor, counts: list[int]) -> EntryBatch:
        """Return the batch of some samples, still sorted by source."""
        pattern, places = self._pattern.taken(rows)
        asked, at = (pattern, places)
        if self.asked is not self._pattern:
            asked, at = self.asked.taken(rows)
        targets, offsets = self.targets[at], self.offsets[at]
        return EntryBatch(counts, pattern, self._inputs[places], asked, targets, offsets)

    def dense(self) -> Tensor:
        """Return the inputs as one dense matrix."""
        return self._pattern.matrix(self._inputs).to_dense()

    def pick(self, table: Tensor) -> Tensor:
        """Return the entries of a table that are to be predicted."""
        return table[self.asked.rows, self.asked.columns]

    def predicted(self, scores: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the same entries of ``scores @ weight + bias``, and compute no others."""
        return _Entries.apply(self.asked, scores, weight) + bias[self.asked.columns]


Batch = DenseBatch | EntryBatch


def pieces(batch: Batch, count: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Divide samples at random into batches of one size, with a fair share of every source in each.

    Parameters
    ----------
    batch : Batch
    count : int
        How many batches, at most as many as there are samples; one is all samples as they are.
    rng : numpy Generator

    Yields
    ------
    Batch

    Examples
    --------
    >>> import numpy as np, torch
    >>> from heterofactor.batches import DenseBatch, pieces
    >>> entries = torch.arange(12.0)
    >>> batch = DenseBatch([4, 2], entries.reshape(6, 2), None, entries, 0 * entries)
    >>> [piece.counts for piece in pieces(batch, 2, np.random.default_rng(0))]
    [[2, 1], [2, 1]]
    """
    if count <= 1:
        yield batch
        return
    source = np.repeat(np.arange(len(batch.counts)), batch.counts)
    # every source is spread evenly over the line from 0 to 1, which is then cut
    place = np.concatenate([(rng.permutation(n) + rng.random()) / max(n, 1) for n in batch.counts])
    for rows in np.array_split(np.argsort(place, kind="stable"), count):
        counts = np.bincount(source[rows], minlength=len(batch.counts)).tolist()
        yield batch.taken(torch.as_tensor(np.sort(rows), device=batch.targets.device), counts)


def divided(batch: Batch | None, count: int) -> list[Batch]:
    """Divide samples into batches that stay: for what is only measured, and fits no better at once.

    Examples
    --------
    >>> from heterofactor.batches import divided
    >>> divided(None, 3)
    []
    """
    if batch is None:
        return []
    return list(pieces(batch, min(count, sum(batch.counts)), np.random.default_rng(0)))


def grouped(rows: Tensor, weight: Tensor, counts: Sequence[int]) -> Tensor:
    """Return the rows times one matrix, or times that of their source in a stack.

    One batched product where all sources have as many rows; otherwise one product for each.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.batches import grouped
    >>> grouped(torch.ones(3, 1), torch.tensor([[[2.0]], [[5.0]]]), [1, 2]).ravel()
    tensor([2., 5., 5.])
    """
    if weight.ndim == 2:
        return rows @ weight
    if len(set(counts)) == 1:
        stack = rows.reshape(len(counts), -1, rows.shape[-1])
        return torch.bmm(stack, weight).reshape(len(rows), -1)
    parts = zip(rows.split(list(counts)), weight.unbind(), strict=True)
    return torch.cat([part @ one for part, one in parts])
