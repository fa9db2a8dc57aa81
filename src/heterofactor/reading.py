"""Tables from files: csv, tsv, parquet, npy, npz; what is wrong is named by file and column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

# What readers of files raise when a file is not what its name says.
UNREADABLE = (OSError, ValueError, EOFError, BadZipFile)


def read_sources(
    paths: Sequence[Path],
    *,
    header: bool | None = None,
    index_col: str | None = None,
    source_column: str | None = None,
) -> dict[str, Any]:
    r"""Read the tables of sources, named after their files.

    Every array of an npz file is a source, named as in the file.

    Parameters
    ----------
    paths : sequence of Path
        Files ending in .csv, .tsv, .parquet, .npy or .npz.
    header : bool, optional
        Whether the first row of csv and tsv files has the names of the features; found out from
        the file if left out: it does where it holds text.
    index_col : str, optional
        Name or number (from 0) of the column with the names of the samples; found out if left
        out: it is the first column where that holds text, or has no name.
    source_column : str, optional
        For a single file: the column that says which source each row is of.

    Returns
    -------
    dict of str to DataFrame or array

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from heterofactor.reading import read_sources
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "north.csv")
    ...     _ = path.write_text("sample,length,width\na,1,2\nb,3,4\n")
    ...     sources = read_sources([path])
    >>> sources["north"]
            length  width
    sample
    a            1      2
    b            3      4
    """
    if source_column is not None:
        if len(paths) != 1:
            raise ValueError("--source-column needs a single file, whose rows it tells apart.")
        return _split(paths[0], _read(paths[0], header, index_col, source_column), source_column)
    found: dict[str, Any] = {}
    for path in paths:
        table = _read(path, header, index_col, None)
        for name, part in table.items() if isinstance(table, dict) else [(path.stem, table)]:
            if name in found:
                raise ValueError(
                    f"{path}: there is a source {name!r} already: rename one of the two files, "
                    "whose names are the names of the sources."
                )
            found[name] = part
    return found


def _read(path: Path, header: bool | None, index_col: str | None, source: str | None) -> Any:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    kind = path.suffix.lower()
    try:
        if kind in (".npy", ".npz"):
            stored: Any = np.load(path, allow_pickle=False)
            if kind == ".npy":
                return stored
            with stored:
                return {name: stored[name] for name in stored.files}
        if kind == ".parquet":
            table = pd.read_parquet(path)
            if index_col is not None:
                table = _indexed(path, table, index_col)
        elif kind in (".csv", ".tsv"):
            table = _read_text(path, "\t" if kind == ".tsv" else None, header, index_col, source)
        else:
            raise _NotRead(f"{path}: expected a name ending in .csv, .tsv, .parquet, .npy or .npz.")
    except _NotRead:
        raise
    except ImportError as error:
        raise _NotRead(f"{path}: parquet files need pyarrow: pip install pyarrow.") from error
    except UNREADABLE as error:
        raise _NotRead(f"{path}: cannot be read: {error or type(error).__name__}.") from error
    if table.shape[1] == 0 or table.shape[0] == 0:
        raise _NotRead(f"{path}: there are no numbers in this file.")
    for name in table.columns:
        if name != source:
            _check_numbers(path, name, table[name])
    return table


class _NotRead(ValueError):
    """Says which file could not be read, and why."""


def _read_text(
    path: Path,
    separator: str | None,
    header: bool | None,
    index_col: str | None,
    source: str | None,
) -> pd.DataFrame:
    if separator is None:
        with path.open(encoding="utf-8") as stream:
            first = stream.readline()
        separator = ";" if first.count(";") > first.count(",") else ","
    head = pd.read_csv(
        path, sep=separator, header=None, nrows=50, dtype=str, keep_default_na=False
    )  # fmt: skip
    if header is None:
        header = _has_header(head)
    table = pd.read_csv(path, sep=separator, header=0 if header else None, low_memory=False)
    if not isinstance(table.index, pd.RangeIndex):
        # pandas takes the first column as index where the rows are longer than the header
        return table
    if index_col is not None:
        return _indexed(path, table, index_col)
    first_column = head.iloc[1 if header else 0 :, 0]
    nameless = header and head.iloc[0, 0] == ""
    texts = len(first_column) > 0 and not first_column.map(_is_number).any()
    if table.shape[1] > 1 and table.columns[0] != source and (nameless or texts):
        table = table.set_index(table.columns[0])
        table.index.name = None if nameless or not header else table.index.name
        if not header:
            table.columns = pd.RangeIndex(table.shape[1])
    return table


def _has_header(head: pd.DataFrame) -> bool:
    """Say whether the first row has names: text beside its first cell, or above a number."""
    first = [str(cell) for cell in head.iloc[0]]
    if any(cell and not _is_number(cell) for cell in first[1:]):
        return True
    if first[0] == "":
        return len(first) > 1 and all(first[1:]) and len(head) > 1 and str(head.iloc[1, 0]) != ""
    return not _is_number(first[0]) and len(head) > 1 and _is_number(str(head.iloc[1, 0]))


def _is_number(cell: str) -> bool:
    """Say whether a cell holds a number, or the word for a missing one."""
    try:
        float(cell)
    except ValueError:
        return cell.strip().lower() in ("", "na", "n/a", "null", "none", "<na>")
    return True


def _indexed(path: Path, table: pd.DataFrame, index_col: str) -> pd.DataFrame:
    if index_col in table.columns:
        return table.set_index(index_col)
    if index_col.isdecimal() and int(index_col) < table.shape[1]:
        return table.set_index(table.columns[int(index_col)])
    some = ", ".join(map(str, table.columns[:10]))
    raise _NotRead(f"{path}: there is no column {index_col!r} for --index-col: found {some}.")


def _check_numbers(path: Path, name: Any, column: pd.Series) -> None:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return
    wrong = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
    says = f"{wrong.iloc[0]!r}" if len(wrong) else f"{column.dtype} values"
    raise _NotRead(
        f"{path}: column {str(name)!r} holds {says}, not numbers: drop it, make it the index with "
        "--index-col, or encode it as numbers."
    )


def _split(path: Path, table: Any, column: str) -> dict[str, Any]:
    """Return the rows of each source, in the order in which the sources first appear."""
    if not isinstance(table, pd.DataFrame):
        raise ValueError(f"{path}: --source-column needs a file with columns: csv, tsv or parquet.")
    if column not in table.columns:
        some = ", ".join(map(str, table.columns[:10]))
        raise ValueError(
            f"{path}: there is no column {column!r} for --source-column: found {some}."
        )
    labels, features = table[column], table.drop(columns=column)
    if labels.isna().any():
        place = int(np.flatnonzero(labels.isna())[0])
        raise ValueError(f"{path}: column {column!r} names no source in row {place}: fill it in.")
    groups = labels.astype(str)
    return {name: features[groups == name] for name in groups.unique()}
