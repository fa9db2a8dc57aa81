"""One table for each source, as the sources that solvers see, and given back as users had them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from array_api_compat import device

from heterofactor.linalg import Array, namespace, to_numpy
from heterofactor.numeric import is_sparse, itemsize
from heterofactor.ondisk import OnDisk
from heterofactor.sources import Dense, Gathered, Source, Sparse
from heterofactor.stored import Stored, examine

SharedAxis = Literal["features", "samples"]
Centre = Literal["source", "global"] | None
# Smaller matrices are copied into stacks, so that thousands cost a few batched calls.
STACKED_BYTES = 2**18
# A stack of more bytes than this leaves the cache between one product and the next.
SHARD_BYTES = 5 * 2**20
# Matrices that lie apart cost a call each; with so many bytes in a shard, the calls for what is
# done with their products are nothing beside that.
GATHERED_BYTES = 2**24
# One that is smaller than this is not worth dividing between threads.
UNDIVIDED_BYTES = 2**20


@dataclass(frozen=True, eq=False)
class Tables:
    """The users' tables, one for each source, samples in rows.

    Attributes
    ----------
    names : list
        Of the sources; 0, 1, ... where the user gave none.
    values : list of 2-d arrays, scipy.sparse arrays or Stored
        Floating point, one precision.
    index, columns : list of pandas.Index or None
        The labels of rows and columns, where a table had them.
    shared_axis : {"features", "samples"}
        What the sources have in common.
    container : {"list", "dict", "table"}
        What the user brought.
    positions : list of int arrays
        For one labelled table: which of its rows (or columns) belong to each source.
    """

    names: list[Hashable]
    values: list[Array]
    index: list[pd.Index | None]
    columns: list[pd.Index | None]
    shared_axis: SharedAxis
    container: Literal["list", "dict", "table"]
    positions: list[np.ndarray[Any, Any]] = field(default_factory=list)
    stack: Array | None = None  # all values in one array, where they are views of it
    whole: tuple[pd.Index | None, pd.Index | None] = (None, None)  # labels of one labelled table

    @property
    def shared_length(self) -> int:
        """The length of the shared axis."""
        return int(self.values[0].shape[1 if self.shared_axis == "features" else 0])

    @property
    def lengths(self) -> list[int]:
        """The length of each source along the axis that is its own."""
        return [int(v.shape[0 if self.shared_axis == "features" else 1]) for v in self.values]

    @property
    def has_sparse(self) -> bool:
        """Whether any table is sparse."""
        return any(is_sparse(table) for table in self.values)

    def example(self) -> Array:
        """Return an empty array of the shared length, in the tables' library and precision."""
        first = self.values[0]
        if is_sparse(first) or isinstance(first, Stored):
            return np.zeros((self.shared_length, 0), dtype=first.dtype)
        matrix = first.mT if self.shared_axis == "features" else first
        return matrix[:, :0]

    @cached_property
    def complete(self) -> bool:
        """Whether no entry is missing; what is infinite is refused.

        Every entry shows in the mean of its feature, which is needed anyway. Tables that are not
        held in memory refuse what is missing when they are read.
        """
        complete = True
        for place, finite in zip(self._at_hand, self._finite, strict=True):
            if not finite:
                self._refuse_infinite(place)
                complete = False
        return complete

    def centres(self, centre: Centre) -> list[Array | None]:
        """Return what to subtract from each complete table: one number for each feature."""
        means = self._means
        if centre is None:
            return [None] * len(means)
        if centre == "source":
            return means
        if self.shared_axis == "samples":
            raise ValueError(
                "centre='global' needs features that all sources share, but they share their "
                "samples (shared_axis='samples'): use centre='source' or centre=None."
            )
        weights = [length / sum(self.lengths) for length in self.lengths]
        total = sum(weight * mean for weight, mean in zip(weights, means, strict=True))
        return [total] * len(means)

    @cached_property
    def _stacked(self) -> Array | None:
        """All values in one array: as they came, or copied where they are small and alike."""
        first = self.values[0]
        if self.stack is not None or self.shared_axis == "samples" or len(self.values) < 2:
            return self.stack
        alike = all(isinstance(v, np.ndarray) and v.shape == first.shape for v in self.values)
        return np.stack(self.values) if alike and first.nbytes <= STACKED_BYTES else None

    @property
    def _at_hand(self) -> list[int]:
        """Which tables are held in memory."""
        return [k for k, value in enumerate(self.values) if not isinstance(value, Stored)]

    @cached_property
    def _means(self) -> list[Array]:
        found = [mean for means in self._stacked_means for mean in namespace(means).unstack(means)]
        at_hand = iter(found)
        examine([table for table in self.values if isinstance(table, Stored)])
        return [
            table.moments.means.astype(table.dtype) if isinstance(table, Stored) else next(at_hand)
            for table in self.values
        ]

    @cached_property
    def _stacked_means(self) -> list[Array]:
        with np.errstate(over="ignore", invalid="ignore"):  # said in our words elsewhere
            if self._stacked is not None:
                return [_column_means(self._stacked)]
            return [_column_means(self.values[place])[None, ...] for place in self._at_hand]

    @property
    def _finite(self) -> list[bool]:
        """Whether all means of each table are finite."""
        found: list[bool] = []
        for means in self._stacked_means:
            xp = namespace(means)
            found += to_numpy(xp.all(xp.isfinite(means), axis=-1)).tolist()
        return found

    def _refuse_infinite(self, place: int) -> None:
        name, table = self.names[place], self.values[place]
        entries = table.tocoo() if is_sparse(table) else table
        values = entries.data if is_sparse(table) else table
        xp = namespace(values)
        bad = xp.isinf(values)
        if not bool(xp.any(bad)):
            if bool(xp.any(xp.isnan(values))):
                return
            raise ValueError(
                f"Source {name!r} holds values too large to add up, even in double precision: "
                "rescale it."
            )
        found = [to_numpy(axis) for axis in xp.nonzero(bad)]
        if is_sparse(table):
            found = [axis[bad] for axis in (entries.row, entries.col)]
        row, column = min(zip(found[0].tolist(), found[1].tolist(), strict=True))
        if self.positions and self.shared_axis == "features":
            row = int(self.positions[place][row])
        elif self.positions:
            column = int(self.positions[place][column])
        raise ValueError(
            f"Source {name!r} contains infinity: {len(found[0])} of its entries, the first in row "
            f"{row}, column {column}{' of X' if self.positions else ''}. If these are missing "
            "entries, write NaN for them."
        )

    def sources(
        self, centres: Sequence[Array | None], ranks: Sequence[int]
    ) -> tuple[list[Source], list[list[int]]]:
        """Return the sources for solvers, and which tables each of them stands for.

        Small tables of one shape and one rank are stacked; large ones are used where they lie.
        """
        if self._stacked is not None and len(set(ranks)) == 1:
            stack, centres = self._centred(centres)
            members = divide(range(len(self.names)), stack[0, ...], SHARD_BYTES)
            stacks: list[Source] = [
                self._dense(stack[p[0] : p[-1] + 1, ...], centres, p) for p in members
            ]
            return stacks, members
        alike: dict[tuple[Any, ...], list[int]] = {}
        for place, table in enumerate(self.values):
            apart = "sparse" if is_sparse(table) else "stored" if isinstance(table, Stored) else ""
            kind = apart or _bytes(table) <= STACKED_BYTES
            alike.setdefault((kind, *table.shape, ranks[place]), []).append(place)
        made: list[Source] = []
        members = []
        for (kind, *_), group in alike.items():
            shards = divide(group, self.values[group[0]], SHARD_BYTES if kind else GATHERED_BYTES)
            gather = self._stack if kind is True else self._gathered
            made += [gather(places, centres) for places in shards]
            members += shards
        return made, members

    def _stack(self, places: list[int], centres: Sequence[Array | None]) -> Dense:
        """Copy small tables into one stack."""
        xp = namespace(self.values[places[0]])
        stack = xp.stack([self.values[place] for place in places])
        if centres[places[0]] is not None:  # the copy is ours to centre
            stack -= xp.stack([centres[place] for place in places])[:, None, :]
        return self._dense(stack, [None] * len(self.names), places)

    def _gathered(self, places: list[int], centres: Sequence[Array | None]) -> Source:
        """Leave tables where they lie."""
        parts = [self._apart(place, centres) for place in places]
        return Gathered(parts) if len(parts) > 1 else parts[0]

    def _apart(self, place: int, centres: Sequence[Array | None]) -> Source:
        table = self.values[place]
        if isinstance(table, Stored):
            return OnDisk(table, centres[place])
        if is_sparse(table):
            return self._sparse(table, centres[place])
        return self._dense(table[None, ...], centres, [place])

    def _centred(self, centres: Sequence[Array | None]) -> tuple[Array, Sequence[Array | None]]:
        """Return the stack of all tables; centred, where it is a copy that is ours to change."""
        stack: Array = self._stacked
        if self.stack is not None or centres[0] is None:
            return stack, centres
        del self.__dict__["_stacked"]  # the next to ask gets a copy of its own
        stack -= namespace(stack).stack(list(centres))[:, None, :]
        return stack, [None] * len(centres)

    def _dense(self, stack: Array, centres: Sequence[Array | None], places: list[int]) -> Dense:
        chosen = [centres[place] for place in places]
        xp = namespace(stack)
        offset = None if chosen[0] is None else xp.stack(chosen)[:, None, :]
        if self.shared_axis == "features":
            return Dense(stack.mT, None if offset is None else offset.mT)
        return Dense(stack, offset)

    def _sparse(self, table: Any, centre: Array | None) -> Sparse:
        offset = None if centre is None else centre[None, None, :]
        if self.shared_axis == "features":
            return Sparse(table.T, None if offset is None else offset.mT)
        return Sparse(table, offset)

    def emptied(self) -> Tables:
        """Return what is needed to give results back, without the tables' entries."""
        return replace(self, values=[], index=[], columns=[], stack=None)

    def with_name(self, name: Hashable) -> Tables:
        """Return the same with one name more; one labelled table becomes a dict of tables."""
        container: Literal["list", "dict"] = "list" if self.container == "list" else "dict"
        return replace(self, names=[*self.names, name], container=container, positions=[])

    def collect(self, parts: Sequence[Any]) -> Any:
        """Give back one table for each source in the container that the user brought.

        For one labelled table, the parts go back to where their rows (or columns) came from.
        """
        if self.container == "list":
            return list(parts)
        if self.container == "dict":
            return dict(zip(self.names, parts, strict=True))
        if not self.positions:
            return parts[0]
        xp = namespace(parts[0])
        axis = 0 if self.shared_axis == "features" else 1
        order = np.argsort(np.concatenate(self.positions), kind="stable")
        return chosen(xp.concat(list(parts), axis=axis), order, axis)


def chosen(values: Array, places: np.ndarray[Any, Any], axis: int) -> Array:
    """Return some rows (or columns) of a table, in the order of their places.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.tables import chosen
    >>> chosen(np.array([[1.0], [2.0], [3.0]]), np.array([2, 0]), axis=0).ravel().tolist()
    [3.0, 1.0]
    """
    if is_sparse(values) or isinstance(values, np.ndarray):
        # what not every library can, but the fastest way in any memory order
        return values[places] if axis == 0 else values[:, places]
    xp = namespace(values)
    return xp.take(values, xp.asarray(places, device=device(values)), axis=axis)


def divide(places: Sequence[int], matrix: Array, most: int) -> list[list[int]]:
    """Divide matrices of one shape into an even number of shards of about so many bytes.

    Parameters
    ----------
    places : sequence of int
        Of the matrices.
    matrix : array
        One of them.
    most : int
        How many bytes a shard should have at most.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.tables import divide
    >>> divide(range(4), np.zeros((1000, 1000)), 16_000_000)
    [[0, 1], [2, 3]]
    """
    total = _bytes(matrix) * len(places)
    if total <= UNDIVIDED_BYTES:
        return [list(places)]
    size = -(-len(places) // (2 * -(-total // (2 * most))))
    return [list(places[k : k + size]) for k in range(0, len(places), size)]


def _bytes(matrix: Array) -> int:
    """How large a table is; of a sparse one, what it would take if it were dense."""
    rows, columns = matrix.shape
    return int(rows) * int(columns) * itemsize(matrix)


def _column_means(table: Array) -> Array:
    """Return the means over the rows; added up in double, as single loses digits with many rows."""
    if is_sparse(table):
        rows = table.shape[0]
        return (table.T @ np.ones(rows) / rows).astype(table.dtype)
    xp = namespace(table)
    total = xp.sum(table, axis=-2, dtype=xp.float64)
    return xp.astype(total / table.shape[-2], table.dtype)
