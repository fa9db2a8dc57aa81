"""From tables to batches: centred, scaled, zero where nothing was observed, entries held out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from heterofactor.batches import Batch, DenseBatch, EntryBatch, Pattern
from heterofactor.linalg import to_numpy
from heterofactor.losses import Linked, Loss
from heterofactor.numeric import is_sparse
from heterofactor.tables import Centre

Values = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Seen:
    """The entries of one table that were observed.

    Attributes
    ----------
    shape : (int, int)
    rows, columns : array of int
        Of the entries, row by row.
    values : array
    sparse : bool
        Whether no dense table is to be made of them.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.samples import seen
    >>> found = seen(np.array([[1.0, np.nan], [2.0, 3.0]]), absent=False)
    >>> found.values, found.columns
    (array([1., 2., 3.]), array([0, 0, 1]))
    """

    shape: tuple[int, int]
    rows: Values
    columns: Values
    values: Values
    sparse: bool

    def part(self, chosen: Values) -> Seen:
        """Return some of the entries only."""
        rows, columns, values = self.rows[chosen], self.columns[chosen], self.values[chosen]
        return Seen(self.shape, rows, columns, values, self.sparse)


def seen(table: Any, *, absent: bool) -> Seen:
    """Return what was observed of a table; `absent` says how a sparse one is to be read."""
    if is_sparse(table) and absent:
        entries = table.tocsr().tocoo()
        rows, columns, values = entries.row, entries.col, entries.data
        sparse = True
    else:
        dense = to_numpy(table.toarray() if is_sparse(table) else table)
        rows, columns = np.nonzero(~np.isnan(dense))
        values, sparse = dense[rows, columns], False
    order = slice(None) if not sparse else np.lexsort((columns, rows))
    found = Seen(tuple(table.shape), rows[order], columns[order], values[order], sparse)
    return found.part(~np.isnan(found.values)) if sparse else found


def centres_of(parts: Sequence[Seen], centre: Centre, loss: Loss) -> list[Values | None]:
    """Return what each source's features are centred at, on the scale of the data.

    A feature that a source has never shown has the mean of the others. Under a loss with a link,
    every mean is drawn a little to the overall one, so that it has a finite prediction.
    """
    if centre is None:
        return [None] * len(parts)
    width = parts[0].shape[1]
    sums = [np.bincount(part.columns, part.values, width) for part in parts]
    counts = [np.bincount(part.columns, minlength=width) for part in parts]
    total, count = sum(sums), sum(counts)
    overall = float(np.sum(total) / np.sum(count))
    prior = 1.0 if isinstance(loss, Linked) else 0.0
    pooled = (total + prior * overall) / np.maximum(count + prior, 1)
    pooled = np.where(count > 0, pooled, overall)
    if centre == "global":
        return [pooled] * len(parts)
    found: list[Values | None] = []
    for mine, n in zip(sums, counts, strict=True):
        mean = (mine + prior * pooled) / np.maximum(n + prior, 1)
        found.append(np.where(n > 0, mean, pooled))
    return found


def spread_of(parts: Sequence[Seen], centres: Sequence[Values | None]) -> float:
    """Return the root mean square of all centred entries."""
    squares = sum(float((_centred(*pair) ** 2).sum()) for pair in zip(parts, centres, strict=True))
    return (squares / sum(len(part.values) for part in parts)) ** 0.5 or 1.0


def _centred(part: Seen, centre: Values | None) -> Values:
    return part.values if centre is None else part.values - centre[part.columns]


def split(parts: Sequence[Seen], share: float, rng: Any) -> tuple[list[Seen], list[Seen]]:
    """Divide the entries of each table at random into those held out and those kept: one at least.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.samples import seen, split
    >>> kept, held = split([seen(np.ones((1, 1)), absent=False)], 0.9, np.random.RandomState(0))
    >>> len(kept[0].values), len(held[0].values)
    (1, 0)
    """
    kept, held = [], []
    for part in parts:
        count = len(part.values)
        out = rng.permutation(count) < min(round(share * count), count - 1)
        kept.append(part.part(~out))
        held.append(part.part(out))
    return kept, held


def batch_of(
    inputs: Sequence[Seen],
    asked: Sequence[Seen],
    centres: Sequence[Values | None],
    offsets: Sequence[Values | None],
    spread: float,
    device: str,
) -> Batch:
    """Return the batch of all tables, whose samples come one table after the other.

    Parameters
    ----------
    inputs, asked : sequence of Seen
        What goes into the networks, and what is to be predicted.
    centres, spread
        Inputs are centred and divided by the spread.
    offsets : sequence of array or None
        What the prediction of each feature starts from, on the scale of predictions.
    device : str
    """
    counts = [part.shape[0] for part in inputs]
    shape = (sum(counts), inputs[0].shape[1])
    one = [_centred(*pair) for pair in zip(inputs, centres, strict=True)]
    values = _tensor(np.concatenate(one) / spread, device)
    rows, columns = _places(inputs)
    out_rows, out_columns = _places(asked)
    targets = _tensor(np.concatenate([part.values for part in asked]), device)
    pairs = zip(asked, offsets, strict=True)
    starts = [np.zeros(len(p.values)) if o is None else o[p.columns] for p, o in pairs]
    start = _tensor(np.concatenate(starts), device)
    if all(part.sparse for part in inputs):
        pattern = Pattern(rows, columns, shape, device)
        wanted = pattern if inputs is asked else Pattern(out_rows, out_columns, shape, device)
        return EntryBatch(counts, pattern, values, wanted, targets, start)
    dense = torch.zeros(shape, device=device)
    dense[torch.as_tensor(rows, device=device), torch.as_tensor(columns, device=device)] = values
    positions = out_rows * shape[1] + out_columns
    everything = len(positions) == shape[0] * shape[1]
    where = None if everything else torch.as_tensor(positions, device=device)
    return DenseBatch(counts, dense, where, targets, start)


def _places(parts: Sequence[Seen]) -> tuple[Values, Values]:
    """Return rows and columns of all entries, where tables lie one below the other."""
    first = np.cumsum([0, *(part.shape[0] for part in parts)])
    rows = [part.rows + start for part, start in zip(parts, first[:-1], strict=True)]
    return np.concatenate(rows), np.concatenate([part.columns for part in parts])


def _tensor(values: Values, device: str) -> Any:
    return torch.as_tensor(np.asarray(values, dtype=np.float32), device=device)


def start_of(loss: Loss, centre: Values | None) -> Values | None:
    """Return where predictions start from: the centre, on the scale of the link."""
    if centre is None or not isinstance(loss, Linked):
        return centre
    start: Values = loss.unlink(centre)
    return start


def centre_of(centres: dict[Hashable, Any], name: Any) -> Values | None:
    """Return a source's centre, or the mean of all for a source never seen."""
    known = [centre for centre in centres.values() if centre is not None]
    found: Values | None = np.mean(known, axis=0) if known else None
    return found if name is None else centres[name]


def check_values(parts: Sequence[Seen], names: Sequence[Hashable], loss: Loss) -> None:
    """Refuse sources of which nothing was observed, or what cannot be under the loss."""
    for part, name in zip(parts, names, strict=True):
        if len(part.values) == 0:
            raise ValueError(f"Source {name!r} has no observed entry at all: leave it out.")
        if isinstance(loss, Linked) and bool(np.any(wrong := loss.unobservable(part.values))):
            raise ValueError(
                f"Source {name!r} holds {part.values[wrong][0]:g}, which cannot be observed under "
                f"{loss!r}: expected only {loss.observable}. Choose another loss, or recode the "
                "entries."
            )
