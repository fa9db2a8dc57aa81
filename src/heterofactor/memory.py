"""How much of a limit of memory is left for blocks, once the factors have theirs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral

from heterofactor.engines.threads import blas_threads
from heterofactor.stored import BLOCK_BYTES, GRAM_LENGTH, Stored
from heterofactor.tables import Tables

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
# Of a thread: the block that it computes with, the one that is read meanwhile, and for each a copy
# in another precision or less its centre; and half as much again, which the allocator may not have
# given back.
BLOCKS = 6
# Scores are held as found and as turned; bases also as sketches, with what the data make of them.
SCORES = 3
BASES = 8


def bytes_of(limit: str | int) -> int:
    """Return a limit of memory in bytes.

    Parameters
    ----------
    limit : str or int
        Such as ``"2GB"``, ``"500 MB"`` or ``"1.5GiB"``; a number is one of bytes.

    Examples
    --------
    >>> from heterofactor.memory import bytes_of
    >>> bytes_of("2GB"), bytes_of("1.5 GiB"), bytes_of(10**9)
    (2000000000, 1610612736, 1000000000)
    """
    if isinstance(limit, Integral) and not isinstance(limit, bool) and limit > 0:
        return int(limit)
    text = limit if isinstance(limit, str) else ""
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get(found[2].upper(), 0) if found else 0
    number = float(found[1]) * unit if found else 0.0
    if number < 1:
        raise ValueError(
            f"max_memory is {limit!r}: expected a number of bytes, or text such as '2GB', '500MB' "
            "or '1.5GiB'."
        )
    return int(number)


def within(tables: Tables, ranks: Sequence[int], n_shared: int, limit: str | int | None) -> Tables:
    """Return tables whose blocks leave room for the factors within a limit of memory.

    Tables that the user holds in memory are not counted.

    Parameters
    ----------
    tables : Tables
        Of a fit.
    ranks : sequence of int
        Their unique ranks.
    n_shared : int
        Their shared rank.
    limit : str, int or None
        As `bytes_of` takes it; None for no limit.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.memory import within
    >>> from heterofactor.brought import read_tables
    >>> tables = read_tables({"north": lambda: np.ones((1000, 50))})
    >>> within(tables, [1], 1, "1MB").values[0].block_bytes < 250_000
    True
    """
    kept = [value for value in tables.values if isinstance(value, Stored)]
    if limit is None or not kept:
        return tables
    most, n1 = bytes_of(limit), tables.shared_length
    held = sum(
        (SCORES * length + BASES * n1) * (n_shared + rank) * int(value.dtype.itemsize)
        for value, length, rank in zip(tables.values, tables.lengths, ranks, strict=True)
    )
    threads = blas_threads()
    line = max(value.dtype.itemsize for value in kept) * n1
    needed = held + BLOCKS * threads * line
    if needed > most:
        raise ValueError(
            f"max_memory is {limit!r}, but the factors and one line of each table that is read at "
            f"a time take about {_said(needed)}: raise it, or lower n_shared or n_unique."
        )
    grams = sum(2 * 8 * n1**2 for value in kept if n1 <= min(GRAM_LENGTH, max(value.shape)))
    keeps = needed + grams <= most
    left = most - held - (grams if keeps else 0)
    size = max(line, min(BLOCK_BYTES, left // (BLOCKS * threads)))
    values = [
        replace(value, block_bytes=size, keeps_gram=keeps) if isinstance(value, Stored) else value
        for value in tables.values
    ]
    return replace(tables, values=values)


def _said(count: int) -> str:
    return f"{count / 1e9:.2g} GB" if count >= 10**9 else f"{count / 1e6:.2g} MB"
