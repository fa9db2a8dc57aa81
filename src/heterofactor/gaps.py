"""What to be warned of: lines never observed, sources of few entries, answers fitted as certain."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from heterofactor.linalg import Array, beside, namespace, to_numpy
from heterofactor.losses import Linked, Loss
from heterofactor.observed import Observed
from heterofactor.rounds import State
from heterofactor.solvers.alternating import joined
from heterofactor.tables import Tables

# A warning names so many sources.
NAMED = 5
# An answer has become certain where the link has carried it so far: exp(15) is three million.
CERTAIN = 15.0


def warn_of_gaps(
    sources: Sequence[Observed],
    members: Sequence[Sequence[int]],
    ranks: Sequence[int],
    tables: Tables,
    *,
    penalised: bool = False,
) -> None:
    """Say which sources have lines that were never observed, or hardly anything at all.

    Parameters
    ----------
    sources, members
        Stacks, and which tables each of them stands for.
    ranks : sequence of int
        The unique rank of each table.
    tables : Tables
        What the user brought.
    penalised : bool
        Whether a ridge keeps what few entries tell within bounds.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from heterofactor.gaps import warn_of_gaps
    >>> from heterofactor.masked import Masked
    >>> from heterofactor.brought import read_tables
    >>> tables = read_tables({"north": np.array([[1.0, np.nan], [2.0, np.nan]])})
    >>> source = Masked(np.ones((1, 2, 2)), np.array([[[1.0, 1.0], [0.0, 0.0]]]))
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     warn_of_gaps([source], [[0]], [0], tables)
    >>> print(caught[0].message)
    No entry was observed of some features of source 'north' (1 of 2): they are predicted by the
    centre, and by what other sources say of them.
    """
    lines = ("features", "samples") if tables.shared_axis == "features" else ("samples", "features")
    empty: dict[str, list[str]] = {what: [] for what in lines}
    few = []
    for source, places in zip(sources, members, strict=True):
        counted = [to_numpy(count) for count in source.counts]
        for k, place in enumerate(places):
            name, rank = tables.names[place], ranks[place]
            # a narrow one of a stack has columns that its table does not have
            n1, n2 = tables.values[place].shape[:: -1 if tables.shared_axis == "features" else 1]
            for what, counts, length in zip(lines, counted, (n1, n2), strict=True):
                if nothing := int((counts[k][:length] == 0).sum()):
                    empty[what].append(f"{name!r} ({nothing} of {length})")
            seen, own = int(counted[0][k].sum()), rank * (n1 + n2)
            if seen < own and not penalised:
                few.append(f"{name!r} ({seen} entries, {own} numbers)")
    others = (", and by what other sources say of them", "")
    for (what, found), rest in zip(empty.items(), others, strict=True):
        _warn(
            f"No entry was observed of some {what} of source {{}}: they are predicted by the "
            f"centre{rest}.",
            found,
            stacklevel=5,
        )
    _warn(
        "There are fewer observed entries than numbers in the unique part of source {}: do not "
        "trust that part, or lower n_unique for it, or set a ridge.",
        few,
        stacklevel=5,
    )


def warn_of_certainty(
    sources: Sequence[Observed],
    members: Sequence[Sequence[int]],
    names: Sequence[Hashable],
    loss: Loss,
    shared: State,
    locals_: Sequence[State],
) -> None:
    """Say which sources have entries whose fit would go on to grow without bound.

    Such are answers that can be told apart completely, and counts that are zero throughout: no
    finite factors are best.

    Parameters
    ----------
    sources, members, names
        Stacks, which tables each of them stands for, and the names of these.
    loss : Loss
        Only one with a link can have such entries.
    shared, locals_
        The scored states.
    """
    if not isinstance(loss, Linked):
        return
    found = []
    for source, local, places in zip(sources, locals_, members, strict=True):
        W = joined(shared["basis"], local["unique"])
        H = beside([local["shared_scores"] @ shared["turn"], local["unique_scores"]])
        certain, _ = source.majorise(_Certain(), W, H, local.get("offset"))
        found += [
            repr(names[place])
            for place, weight in zip(places, to_numpy(certain), strict=True)
            if weight > 0
        ]
    _warn(
        "The fit of some entries has become certain in source {}: nothing but the number of rounds "
        "kept factors from growing without bound. Lower the ranks, or set a ridge.",
        found,
        stacklevel=5,
    )


@dataclass(frozen=True)
class _Certain:
    """One where a prediction is certain, zero elsewhere."""

    def value(self, m: Array, z: Array) -> Array:
        xp = namespace(z)
        return xp.astype(xp.abs(z) > CERTAIN, z.dtype)

    def slope(self, m: Array, z: Array) -> Array:
        return z * 0

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        return z * 0, z


def _warn(text: str, sources: Sequence[str], stacklevel: int) -> None:
    """Warn of some sources, if there are any."""
    if sources:
        some = ", ".join(sources[:NAMED])
        more = len(sources) - NAMED
        some += f" and {more} more" if more > 0 else ""
        warnings.warn(text.format(some), stacklevel=stacklevel)
