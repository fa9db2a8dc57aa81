"""Ranks as users give them, resolved for each source; what cannot be had is refused."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from heterofactor.tables import Tables

Ranks = int | Sequence[int] | Mapping[Hashable, int]


def resolve_ranks(n_shared: int, n_unique: Ranks, tables: Tables) -> list[int]:
    """Return the unique rank of each source.

    Parameters
    ----------
    n_shared : int
        Number of shared components.
    n_unique : int, sequence of int, or dict of int
        For all sources, in their order, or by name.
    tables : Tables
        The sources.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ranks import resolve_ranks
    >>> from heterofactor.brought import read_tables
    >>> tables = read_tables({"north": np.ones((4, 5)), "south": np.ones((3, 5))})
    >>> resolve_ranks(2, {"south": 1, "north": 3}, tables)
    [3, 1]
    """
    names = tables.names
    ranks = _listed(n_unique, names)
    own_axis = "features" if tables.shared_axis == "samples" else "samples"
    for name, rank, length in zip(names, ranks, tables.lengths, strict=True):
        if not _is_count(rank):
            raise ValueError(
                f"n_unique is {rank!r} for source {name!r}: expected an integer of at least 0."
            )
        if n_shared + rank > tables.shared_length:
            raise ValueError(
                f"The ranks are too large: n_shared={n_shared} and n_unique={rank} of source "
                f"{name!r} need {n_shared + rank} {tables.shared_axis}, but the sources share "
                f"{tables.shared_length} {tables.shared_axis[:-1]}(s): lower n_shared or n_unique."
            )
        if rank > length:
            raise ValueError(
                f"The ranks are too large: n_unique={rank} of source {name!r}, which has only "
                f"{length} {own_axis[:-1]}(s): lower n_unique for it."
            )
    if n_shared > sum(tables.lengths):
        raise ValueError(
            f"The ranks are too large: n_shared={n_shared}, but all sources together have only "
            f"{sum(tables.lengths)} {own_axis[:-1]}(s): lower n_shared."
        )
    return [int(rank) for rank in ranks]


def _is_count(rank: Any) -> bool:
    return isinstance(rank, Integral) and not isinstance(rank, bool) and int(rank) >= 0


def _listed(n_unique: Any, names: list[Hashable]) -> list[Any]:
    if isinstance(n_unique, Mapping):
        if unknown := [name for name in n_unique if name not in names]:
            raise ValueError(
                f"n_unique names {unknown[0]!r}, which is no source: the sources are "
                f"{', '.join(map(repr, names[:10]))}."
            )
        if missing := [name for name in names if name not in n_unique]:
            raise ValueError(
                f"n_unique has no entry for source {missing[0]!r}: give the unique rank of every "
                "source, or one number for all."
            )
        return [n_unique[name] for name in names]
    if isinstance(n_unique, Sequence | np.ndarray) and not isinstance(n_unique, str):
        if len(n_unique) != len(names):
            raise ValueError(
                f"n_unique gives {len(n_unique)} ranks, but there are {len(names)} sources: give "
                "one for each, or one number for all."
            )
        return list(n_unique)
    return [n_unique] * len(names)
