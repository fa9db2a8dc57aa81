"""Where tables lie that are not held in memory: how each kind is opened, and read block by block.

An opener is called anew for every pass over a table, so that no file stays open between passes,
and a change in between is seen. What it returns is a `Reader`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from array_api_compat import is_array_api_obj

from heterofactor.linalg import Array
from heterofactor.numeric import is_sparse


class Reader(Protocol):
    """An open table."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How many rows and columns it has."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """In what its entries are stored."""

    @property
    def columns(self) -> pd.Index | None:
        """The names of its columns, if it knows them."""

    def read(self, axis: int, width: int) -> Iterator[Array]:
        """Yield all its rows (or columns) in blocks of at most so many, in their order."""


Opener = Callable[[], Reader]


@dataclass(frozen=True, eq=False)
class Sliced:
    """Any object that is read by slices: of zarr, h5py, a backed AnnData's ``X``, and others.

    Parameters
    ----------
    table : object
        With ``shape``, ``dtype``, and slices of rows (of columns, where the samples are shared),
        which are arrays or scipy.sparse arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.stores import Sliced
    >>> [block.shape for block in Sliced(np.ones((5, 3))).read(axis=0, width=2)]
    [(2, 3), (2, 3), (1, 3)]
    """

    table: Any
    columns: pd.Index | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """How many rows and columns it has."""
        return tuple(self.table.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """In what its entries are stored."""
        dtype: np.dtype[Any] = np.dtype(self.table.dtype)
        return dtype

    def read(self, axis: int, width: int) -> Iterator[Array]:
        """Yield all its rows (or columns) in blocks of at most so many, in their order."""
        chunks = getattr(self.table, "chunks", None)
        if isinstance(chunks, tuple) and isinstance(chunks[axis], int) and chunks[axis] < width:
            width -= width % chunks[axis]  # a chunk that is cut would be unpacked twice
        for first in range(0, self.shape[axis], width):
            some = slice(first, first + width)
            block = self.table[some] if axis == 0 else self.table[:, some]
            yield block.toarray() if is_sparse(block) else np.asarray(block)


@dataclass(frozen=True)
class Flat:
    """Entries one after the other in a file, as NumPy writes them.

    They are read, not mapped: pages of a map count as memory that is held, and a file that is cut
    short ends a program that has it mapped.

    Parameters
    ----------
    path : str
        Of the file.
    offset : int
        Where in it the entries begin.
    dtype : numpy dtype
        Of the entries.
    shape : (int, int)
        Rows and columns.
    by_rows : bool
        Whether entries that are neighbours are of one row.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from heterofactor.stores import Flat
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     np.arange(6.0).tofile(file.name)
    ...     flat = Flat(file.name, 0, np.dtype(float), (3, 2), by_rows=True)
    ...     [block.tolist() for block in flat.read(axis=0, width=2)]
    [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]
    """

    path: str
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    by_rows: bool
    columns: pd.Index | None = None

    def read(self, axis: int, width: int) -> Iterator[Array]:
        """Yield all its rows (or columns) in blocks of at most so many, in their order."""
        lines, length = self.shape if self.by_rows else self.shape[::-1]
        along = (axis == 0) == self.by_rows
        with open(self.path, "rb", buffering=0) as file:
            for first in range(0, self.shape[axis], width):
                last = min(first + width, self.shape[axis])
                if along:
                    block = np.empty((last - first, length), self.dtype)
                    self._fill(file, block, first * length)
                else:
                    block = np.empty((lines, last - first), self.dtype)
                    for line in range(lines):
                        self._fill(file, block[line], line * length + first)
                yield block if self.by_rows else block.T

    def _fill(self, file: Any, block: Array, first: int) -> None:
        """Read entries from the file until the block is full."""
        file.seek(self.offset + first * self.dtype.itemsize)
        missing = memoryview(block.reshape(-1).view(np.uint8))
        while missing:
            count = file.readinto(missing)
            if not count:
                raise EOFError(f"{self.path!r} ends before its {self.shape} entries do")
            missing = missing[count:]


def open_npy(path: str) -> Flat:
    """Open a ``.npy`` file.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from heterofactor.stores import open_npy
    >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
    ...     np.save(file.name, np.ones((5, 3)))
    ...     open_npy(file.name).shape
    (5, 3)
    """
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            header = np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = header(file)
        return Flat(path, file.tell(), dtype, shape, not by_columns)


class Parquet:
    """A parquet file of numbers; columns that pandas wrote as an index are left out.

    Parameters
    ----------
    path : str
        Of the file.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from heterofactor.stores import Parquet
    >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
    ...     pd.DataFrame({"length": [1.0, 2.0], "width": [3.0, 4.0]}).to_parquet(file.name)
    ...     Parquet(file.name).shape
    (2, 2)
    """

    def __init__(self, path: str) -> None:
        try:
            import pyarrow.parquet
        except ModuleNotFoundError as error:
            raise ImportError(f"{path!r} needs pyarrow: pip install pyarrow") from error
        self.path = path
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        names = [name for name in schema.names if name not in index]
        types = {name: schema.field(name).type.to_pandas_dtype() for name in names}
        for name, kind in types.items():
            if np.dtype(kind).kind not in "fiub":
                raise TypeError(f"column {name!r} holds {schema.field(name).type}, not numbers")
        self.shape = (rows, len(names))
        self.columns = pd.Index(names)
        single = all(np.dtype(kind) == np.float32 for kind in types.values())
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if single else np.float64)

    def read(self, axis: int, width: int) -> Iterator[Array]:
        """Yield all its rows (or columns) in blocks of at most so many, in their order."""
        import pyarrow.parquet

        names = self.columns.tolist()
        with pyarrow.parquet.ParquetFile(self.path) as file:
            if axis == 1:
                for first in range(0, len(names), width):
                    yield self._array(file.read(names[first : first + width], use_threads=False))
                return
            # a batch that ends with its row group is shorter
            for batch in file.iter_batches(width, columns=names, use_threads=False):
                yield self._array(batch)

    def _array(self, table: Any) -> Array:
        block = np.empty((table.num_rows, table.num_columns), self.dtype)
        for place, column in enumerate(table.columns):
            block[:, place] = column.to_numpy(zero_copy_only=False)
        return block


PATHS: dict[str, Callable[[str], Reader]] = {".npy": open_npy, ".parquet": Parquet}


def is_stored(table: Any) -> bool:
    """Say whether a table is none in memory, but a path, a callable, or read by slices.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.stores import is_stored
    >>> is_stored("north.npy"), is_stored(lambda: np.ones((2, 2))), is_stored(np.ones((2, 2)))
    (True, True, False)
    """
    if isinstance(table, (str, os.PathLike)) or (callable(table) and not hasattr(table, "shape")):
        return True
    at_hand = is_array_api_obj(table) or is_sparse(table) or hasattr(table, "to_numpy")
    sliced = all(hasattr(table, name) for name in ("shape", "dtype", "__getitem__"))
    return sliced and not at_hand and len(table.shape) == 2


def is_mapped(table: Any) -> bool:
    """Say whether an array is the map of a file.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.stores import is_mapped
    >>> is_mapped(np.ones((2, 2)))
    False
    """
    return isinstance(table, np.memmap) and table.filename is not None


def streams(table: Any, in_blocks: bool) -> bool:
    """Say whether a table is read block by block; `in_blocks` says so of memory maps.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.stores import streams
    >>> streams("north.npy", in_blocks=False), streams(np.ones((2, 2)), in_blocks=True)
    (True, False)
    """
    return is_stored(table) or (in_blocks and is_mapped(table))


def opener_of(table: Any) -> Opener:
    """Return what opens a table, again for each pass.

    Parameters
    ----------
    table : path, callable, memory map, or object that is read by slices

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.stores import opener_of
    >>> opener_of(lambda: np.ones((5, 3)))().shape
    (5, 3)
    """
    if isinstance(table, (str, os.PathLike)):
        path = os.fspath(table)
        kind = Path(path).suffix.lower()
        if kind not in PATHS:
            raise ValueError(
                f"expected a path that ends in {' or '.join(PATHS)}, not {path!r}; for another "
                "kind of file, give a callable that opens it"
            )
        return partial(PATHS[kind], path)
    if is_mapped(table):
        return _opener_of_map(table)
    if callable(table) and not hasattr(table, "shape"):
        return partial(_called, table)
    return partial(Sliced, table)


def _called(call: Callable[[], Any]) -> Reader:
    return opener_of(call())()


def _opener_of_map(table: np.memmap[Any, Any]) -> Opener:
    """Read what is mapped from its file, unless what is mapped is not what is in the file."""
    root: Any = table
    while isinstance(root.base, np.ndarray):
        root = root.base
    flags, mode = table.flags, getattr(root, "mode", "c")
    if mode == "c" or not (flags.c_contiguous or flags.f_contiguous):
        return partial(Sliced, table)
    begins = [np.lib.array_utils.byte_bounds(part)[0] for part in (table, root)]
    offset = root.offset + begins[0] - begins[1]
    path = str(table.filename)
    return partial(Flat, path, offset, table.dtype, table.shape, flags.c_contiguous)


def read_ahead(blocks: Iterator[Array]) -> Iterator[Array]:
    """Yield blocks while a thread reads the next one.

    Examples
    --------
    >>> from heterofactor.stores import read_ahead
    >>> list(read_ahead(iter([1, 2, 3])))
    [1, 2, 3]
    """
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            yield block
