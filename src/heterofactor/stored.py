r"""Tables that are not held in memory: read in blocks, and what one pass over them tells.

A first pass finds what is missing, the means, and the moments of the table less a shift that is
near its centre. With :math:`D = M - a b'`, where a column of ones :math:`a` or a row of ones
:math:`b'` spreads the shift, the energy and the normal matrix about any centre
:math:`(a + e) b'` follow from :math:`DD'`, :math:`Db` and :math:`b'b`:

.. math:: (D - e b')(D - e b')' = DD' - Db\,e' - e\,(Db)' + (b'b)\,e e'.

Where the shared axis is short, nothing but the scores needs another pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from heterofactor.engines.threads import ONE_BLAS_THREAD, blas_threads
from heterofactor.linalg import Array
from heterofactor.stores import Opener, Reader, opener_of, read_ahead

# Large enough for a disk, and small enough to be in the processor's cache when it is used.
BLOCK_BYTES = 2**23
# On a shared axis no longer than this, making the n1 x n1 normal matrix takes no longer than the
# passes that it saves.
GRAM_LENGTH = 500
ONLY = "such tables must be complete, and only the squared loss without ridge or weights takes them"


@dataclass(frozen=True, eq=False)
class Moments:
    """What one pass tells of a table, each number in double precision.

    Attributes
    ----------
    means : array
        Of the features.
    shift : array or None
        What of each feature was subtracted, where that is not the means.
    squares : float
        The sum of squares of the table less its shift.
    cross : array of shape (n1,)
        Its product with the line that spreads the shift.
    length : float
        The sum of squares of that line.
    normal : array of shape (n1, n1) or None
        Its product with its transpose, where that is small beside the data.
    """

    means: Array
    shift: Any
    squares: float
    cross: Array
    length: float
    normal: Array | None

    def energy(self, e: Array) -> float:
        """Return the sum of squares about a centre that is off the shift by `e`."""
        return float(self.squares - 2 * e @ self.cross + self.length * e @ e)

    def gram(self, e: Array) -> Array | None:
        """Return the normal matrix about such a centre."""
        if self.normal is None:
            return None
        outer = np.outer(self.cross, e)
        return self.normal - outer - outer.T + self.length * np.outer(e, e)


@dataclass(frozen=True, eq=False)
class Stored:
    """A table that is not held in memory.

    Parameters
    ----------
    name
        Of the source, for what is said of it.
    opener : callable
        Opens the table for a pass.
    shape : (int, int)
        Rows and columns.
    dtype : numpy dtype
        The precision that entries are brought to.
    axis : {0, 1}
        Blocks are made of rows, or of columns: the axis that is the source's own.
    columns : pandas.Index, optional
        Their names.
    block_bytes : int
        How large a block is at most.
    keeps_gram : bool
        Whether a normal matrix may be kept.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.stored import stored
    >>> table = stored(lambda: np.arange(6).reshape(3, 2), "north")
    >>> table.shape, table.dtype, table.moments.means.tolist()
    ((3, 2), dtype('float64'), [2.0, 3.0])
    >>> (table @ np.ones((2, 1))).ravel().tolist()
    [1.0, 5.0, 9.0]
    """

    name: Hashable
    opener: Opener
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    axis: int = 0
    columns: pd.Index | None = None
    block_bytes: int = BLOCK_BYTES
    keeps_gram: bool = True

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """Refuse to become an array."""
        self.refuse()

    def refuse(self) -> NoReturn:
        """Say what such a table cannot be used for."""
        raise TypeError(
            f"Source {self.name!r} is not held in memory: {ONLY}. For anything else, load the "
            "table into memory."
        )

    def astype(self, dtype: Any, copy: bool = False) -> Stored:
        """Return the table in another precision; nothing is read."""
        return replace(self, dtype=np.dtype(dtype))

    def __matmul__(self, matrix: Array) -> Array:
        """Return the table times a matrix, in one pass."""
        product = np.zeros((self.shape[0], matrix.shape[1]), self.dtype)
        for block, places in self.blocks():
            with np.errstate(over="ignore", invalid="ignore"):  # said in our words
                if self.axis == 0:
                    product[places] = part = block @ matrix
                else:
                    product += (part := block @ matrix[places])
                self._check_finite(np.sum(part), block, places)
        return product

    def blocks(self) -> Iterator[tuple[Array, slice]]:
        """Yield blocks of rows (or columns) and their places, the next one read meanwhile."""
        reader = self._opened()
        across = self.shape[1 - self.axis]
        size = max(reader.dtype.itemsize, self.dtype.itemsize)
        width = min(max(1, self.block_bytes // (across * size)), self.shape[self.axis])
        found = reader.read(self.axis, width)
        blocks = read_ahead(found) if width < self.shape[self.axis] else found
        first = 0
        while True:
            try:
                block = next(blocks, None)
            except Exception as error:
                kind = ("rows", "columns")[self.axis]
                raise OSError(
                    f"Source {self.name!r} cannot be read, in {kind} {first} to "
                    f"{min(first + width, self.shape[self.axis]) - 1}: {_said(error)}."
                ) from error
            if block is None:
                break
            last = first + block.shape[self.axis]
            if block.shape[1 - self.axis] != across or last > self.shape[self.axis]:
                self._refuse_changed(f"a block of shape {block.shape} at {first}")
            yield block.astype(self.dtype, copy=False), slice(first, last)
            first = last
        if first != self.shape[self.axis]:
            self._refuse_changed(f"its end at {first}")

    def _opened(self) -> Reader:
        try:
            reader = self.opener()
            shape = tuple(reader.shape)
        except Exception as error:
            raise OSError(f"Source {self.name!r} cannot be opened: {_said(error)}.") from error
        if shape != self.shape:
            self._refuse_changed(f"the shape {shape}")
        return reader

    def _refuse_changed(self, found: str) -> NoReturn:
        raise ValueError(
            f"Source {self.name!r} has changed while it was used: its shape was {self.shape}, and "
            f"now {found} was found. Leave it as it is until the fit is done."
        )

    @property
    def moments(self) -> Moments:
        """What one pass over the table tells; a table with missing entries is refused."""
        # before Python 3.12, a cached_property would let the tables wait for each other
        if "moments" not in self.__dict__:
            self.__dict__["moments"] = self._find_moments()
        found: Moments = self.__dict__["moments"]
        return found

    def _find_moments(self) -> Moments:
        n1, n2 = self.shape[1 - self.axis], self.shape[self.axis]
        keeps = self.keeps_gram and n1 <= min(GRAM_LENGTH, n2)
        normal = np.zeros((n1, n1)) if keeps else None
        cross, squares, length = np.zeros(n1), 0.0, 0.0
        shift: Any = None
        means = []
        for block, places in self.blocks():
            with np.errstate(over="ignore", invalid="ignore"):  # said in our words
                mean: Array = np.mean(block, axis=0, dtype=np.float64)
                self._check_finite(np.sum(mean), block, places)
                if self.axis == 0:
                    shift = mean.astype(self.dtype) if shift is None else shift
                    D = (block - shift).T
                    cross += len(block) * (mean - shift)
                    length += len(block)
                else:
                    means.append(mean)
                    D = block - mean.astype(self.dtype)
                    cross += D @ mean.astype(self.dtype)
                    length += float(mean @ mean)
                if normal is None:
                    rows = D.T if self.axis == 0 else D  # as they lie in memory
                    squares += float(np.sum(np.vecdot(rows, rows), dtype=np.float64))
                else:
                    normal += D @ D.T
        squares = squares if normal is None else float(np.trace(normal))
        if not np.isfinite(squares):
            raise ValueError(
                f"Source {self.name!r} holds values too large to square in {self.dtype}: rescale "
                "it, or give it in double precision."
            )
        centre = np.concatenate(means) if shift is None else shift + cross / length
        return Moments(centre, shift, squares, cross, length, normal)

    def off_shift(self, centre: Array | None) -> Array:
        """Return how far a centre is off the shift of the moments.

        Parameters
        ----------
        centre : array of shape (n features,) or None
            Where the samples are shared, the means.
        """
        moments = self.moments
        if self.axis == 1:
            if centre is not None and not np.array_equal(centre, moments.means.astype(self.dtype)):
                raise ValueError(
                    f"Source {self.name!r} is not held in memory and shares its samples: expected "
                    "the means of its features for its centre, or none."
                )
            return np.full(self.shape[0], 0.0 if centre is not None else -1.0)
        return (0.0 if centre is None else centre) - moments.shift

    def _check_finite(self, total: Any, block: Array, places: slice) -> None:
        """Refuse a block with an entry that is missing or infinite, which shows in any sum."""
        if np.isfinite(total):
            return
        bad = np.argwhere(~np.isfinite(block))
        if not len(bad):
            raise ValueError(f"Source {self.name!r} holds values too large to add up: rescale it.")
        row, column = bad[0].tolist()
        what = "a missing entry" if np.isnan(block[row, column]) else "infinity"
        row, column = (
            (row + places.start, column) if self.axis == 0 else (row, column + places.start)
        )
        raise ValueError(
            f"Source {self.name!r} has {what} in row {row}, column {column}, but is not held in "
            f"memory: {ONLY}. Fill it in, or load the table into memory."
        )


def stored(table: Any, name: Hashable, axis: int = 0) -> Stored:
    """Return a table that is not held in memory, as it is read block by block.

    Parameters
    ----------
    table : path, callable, memory map, or object that is read by slices
    name
        Of the source.
    axis : {0, 1}
        The axis that is the source's own.

    Examples
    --------
    >>> from heterofactor.stored import stored
    >>> stored("nowhere.npy", "north")
    Traceback (most recent call last):
        ...
    OSError: Source 'north' cannot be opened: FileNotFoundError: ...
    """
    try:
        opener = opener_of(table)
        reader = opener()
        shape, dtype = tuple(reader.shape), np.dtype(reader.dtype)
    except Exception as error:
        raise OSError(f"Source {name!r} cannot be opened: {_said(error)}.") from error
    if len(shape) != 2 or min(shape) == 0:
        raise ValueError(
            f"Source {name!r} has shape {shape}: expected two dimensions, samples in rows and "
            "features in columns, and at least one of each."
        )
    if dtype.kind not in "fiub":
        raise ValueError(f"Source {name!r} holds {dtype} values, not real numbers.")
    single = dtype.kind == "f" and dtype.itemsize <= 4
    precision = np.dtype(np.float32 if single else np.float64)
    rows, columns = map(int, shape)
    return Stored(name, opener, (rows, columns), precision, axis, reader.columns, BLOCK_BYTES)


def examine(tables: Sequence[Stored]) -> None:
    """Find the moments of tables side by side, with BLAS limited to one thread for each.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.stored import examine, stored
    >>> tables = [stored(lambda: np.full((3, 2), 7.0), name) for name in ("north", "south")]
    >>> examine(tables)
    >>> tables[1].moments.means.tolist()  # nothing is read any more
    [7.0, 7.0]
    """
    threads = min(blas_threads(), len(tables))
    if threads > 1:
        ONE_BLAS_THREAD.enter()
        try:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(attrgetter("moments"), tables))
        finally:
            ONE_BLAS_THREAD.leave()


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": .")
