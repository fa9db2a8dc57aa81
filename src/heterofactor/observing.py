"""From tables with holes, or of what was observed only, to sources that answer for what is there.

The other half of `tables`, for data that are not complete or not to be fitted by squares alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from heterofactor.entries import Entries
from heterofactor.linalg import Array, like, namespace, to_numpy
from heterofactor.losses import Absolute, Linked, Loss, is_open
from heterofactor.masked import Masked
from heterofactor.numeric import is_sparse
from heterofactor.observed import Observed
from heterofactor.stored import Stored
from heterofactor.tables import SHARD_BYTES, STACKED_BYTES, Centre, Tables, divide


def observed_sources(
    tables: Tables,
    ranks: Sequence[int],
    loss: Loss,
    centre: Centre,
    *,
    absent: bool = False,
    weights: Sequence[Array | None] | None = None,
) -> tuple[list[Observed], list[list[int]]]:
    """Return sources for solvers, and which tables each of them stands for.

    Parameters
    ----------
    tables : Tables
        Dense ones may have NaN where nothing was observed.
    ranks : sequence of int
        Their unique ranks; only tables of one rank are stacked.
    loss : Loss
        Under which the centres are found.
    centre : {"source", "global", None}
        What of each feature is fitted as an offset.
    absent : bool
        Whether the entries that a sparse table does not store were not observed; otherwise they
        are zeros.
    weights : sequence of array or None, optional
        For each table, how much its entries count.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.observing import observed_sources
    >>> from heterofactor.brought import read_tables
    >>> tables = read_tables([np.array([[1.0, np.nan], [2.0, 3.0], [3.0, 5.0]]), np.ones((3, 2))])
    >>> sources, members = observed_sources(tables, [1, 1], Squared(), "source")
    >>> sources[0].counts[0].tolist(), sources[0].centre[0].ravel().tolist(), members
    ([[3.0, 2.0], [3.0, 3.0]], [2.0, 4.0], [[0, 1]])
    """
    given = weights or [None] * len(tables.names)
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, table in enumerate(tables.values):
        if absent and is_sparse(table):
            alike.setdefault((ranks[place],), []).append(place)
            continue
        small = np.prod(table.shape) * 8 <= STACKED_BYTES
        alike.setdefault((ranks[place], *table.shape, small or place), []).append(place)
    sources: list[Observed] = []
    members: list[list[int]] = []
    for (_, *dense), group in alike.items():
        if not dense:
            shards = _of_like_width(group, tables)
            sources += [_entries(tables, places, given, centre) for places in shards]
        else:
            shards = divide(group, tables.values[group[0]], SHARD_BYTES)
            for places in shards:
                stack = [_masked(tables, place, given[place]) for place in places]
                sources.append(_stacked(stack, tables, centre))
        members += shards
    if centre == "global":
        sources = _with_global_centre(sources)
    _check_observable(sources, members, tables.names, loss)
    return [source.located(_located_by(loss, sources)) for source in sources], members


def observed_source(tables: Tables, place: int, loss: Loss, *, absent: bool = False) -> Observed:
    """Return one table as a source, not centred, as for new samples.

    Parameters
    ----------
    tables : Tables
        The samples.
    place : int
        Of the table.
    loss : Loss
        Under which its entries must be observable.
    absent : bool
        Whether entries that a sparse table does not store were not observed.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.observing import observed_source
    >>> from heterofactor.brought import read_tables
    >>> tables = read_tables(np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> observed_source(tables, 0, Squared()).shape
    (1, 2, 2)
    """
    source: Observed
    if absent and is_sparse(tables.values[place]):
        source = _entries(tables, [place], [None] * len(tables.names), None)
    else:
        source = _stacked([_masked(tables, place, None)], tables, None)
    _check_values([source], [[place]], tables.names, loss)
    return source


def _masked(tables: Tables, place: int, weight: Array | None) -> tuple[Array, Array | None]:
    """Return a table's entries, zero where nothing was observed, and how much they count."""
    table = tables.values[place]
    if isinstance(table, Stored):
        table.refuse()
    values = table.toarray() if is_sparse(table) else table
    xp = namespace(values)
    hole = xp.isnan(values)
    if weight is None and not bool(xp.any(hole)):
        return values, None
    seen = xp.astype(~hole, values.dtype)
    if weight is not None:
        seen = seen * like(weight.toarray() if is_sparse(weight) else weight, values)
    return xp.where(hole, 0.0, values), seen


def _stacked(parts: Sequence[tuple[Array, Array | None]], tables: Tables, centre: Centre) -> Masked:
    xp = namespace(parts[0][0])
    values = xp.stack([value for value, _ in parts])
    weight = None
    if any(part is not None for _, part in parts):
        ones = xp.ones_like(parts[0][0])
        weight = xp.stack([ones if part is None else part for _, part in parts])
    offset = None
    if centre is not None:
        offset = _weighted_means(values, weight)
    if tables.shared_axis == "features":
        values = values.mT
        weight = None if weight is None else weight.mT
        offset = None if offset is None else offset.mT
    return Masked(values, weight, offset)


def _weighted_means(values: Array, weight: Array | None) -> Array:
    """Return the mean of what was observed of each feature; zero where nothing was."""
    xp = namespace(values)
    if weight is None:
        return xp.mean(values, axis=-2, keepdims=True)
    total = xp.sum(weight, axis=-2, keepdims=True)
    return xp.sum(values * weight, axis=-2, keepdims=True) / xp.where(total > 0, total, 1.0)


def _of_like_width(places: Sequence[int], tables: Tables) -> list[list[int]]:
    """Divide sparse tables so that filling narrow ones up costs no more than their entries do."""
    own = 0 if tables.shared_axis == "features" else 1
    shards: list[list[int]] = []
    for place in sorted(places, key=lambda place: -tables.values[place].shape[own]):
        if shards:
            shard = [*shards[-1], place]
            widths = [tables.values[k].shape[own] for k in shard]
            entries = sum(tables.values[k].nnz for k in shard)
            if 2 * widths[-1] >= widths[0] or len(shard) * widths[0] <= entries:
                shards[-1] = shard
                continue
        shards.append([place])
    return shards


def _entries(
    tables: Tables, places: Sequence[int], given: Sequence[Array | None], centre: Centre
) -> Entries:
    """Return sparse tables as one stack, centred at the means of what was observed."""
    own = 0 if tables.shared_axis == "features" else 1
    widest = max(tables.values[place].shape[own] for place in places)
    parts, weights, offsets = [], [], []
    for place in places:
        table, weight = _without_holes(tables.values[place].tocsr()), None
        if given[place] is not None:
            weight = _at_entries(table, given[place])
            sums, total = (_sums(table, entries) for entries in (table.data * weight, weight))
        else:
            sums, total = (_sums(table, entries) for entries in (table.data, None))
        means = sums / np.where(total > 0, total, 1)
        if own:
            means = np.pad(means, (0, widest - len(means)))
        offsets.append(means.astype(table.dtype)[None, :])
        if not own:
            if weight is not None:
                weight = _like_entries(table, weight).T.tocsr().data
            table = table.T.tocsr()
        parts.append(table)
        weights.append(weight)
    offset = None
    if centre is not None:
        offset = np.stack(offsets)
        offset = offset if own else offset.mT
    return Entries.stack(parts, weights, offset)


def _without_holes(table: Any) -> Any:
    """Return a sparse table without the entries that are stored as NaN."""
    seen = ~np.isnan(table.data)
    if seen.all():
        return table
    rows = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))[seen]
    return scipy.sparse.csr_array((table.data[seen], (rows, table.indices[seen])), table.shape)


def _sums(table: Any, entries: Array | None) -> Array:
    """Add up numbers at a table's entries by columns; ones unless given."""
    return np.bincount(table.indices, entries, minlength=table.shape[1])


def _like_entries(table: Any, entries: Array) -> Any:
    """Return a sparse table of the same places with other entries, zeros among them."""
    return scipy.sparse.csr_array((entries, table.indices, table.indptr), table.shape)


def _at_entries(table: Any, weight: Array) -> Array:
    rows = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    if is_sparse(weight):
        weight = weight.tocsr()
        return np.asarray(weight[rows, table.indices], dtype=table.dtype).ravel()
    return np.broadcast_to(weight, table.shape)[rows, table.indices].astype(table.dtype)


@dataclass(frozen=True)
class _Tally:
    """A loss whose slopes add up to the weights of what was observed."""

    def value(self, m: Array, z: Array) -> Array:
        return z

    def slope(self, m: Array, z: Array) -> Array:
        return z * 0 + 1

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        return z * 0 + 1, z - 1


def _with_global_centre(sources: list[Observed]) -> list[Observed]:
    """Give all sources the weighted mean over all that was observed of each feature."""
    totals, sums = 0.0, 0.0
    for source in sources:
        count, n1, n2 = source.shape
        ones = like(np.ones((count, n2, 1)), source.energy)
        _, tally, _ = source.pull(_Tally(), like(np.zeros((count, n1, 1)), ones), ones)
        weight = to_numpy(tally)
        totals = totals + weight.sum(axis=0)
        sums = sums + (weight * to_numpy(source.centre)).sum(axis=0)
    mean = sums / np.where(totals > 0, totals, 1)
    found: list[Any] = []
    for source in sources:
        known: Any = source
        centre = np.broadcast_to(mean, known.centre.shape)
        found.append(replace(known, centre=like(centre, known.centre)))
    return found


def _located_by(loss: Loss, sources: Sequence[Observed]) -> Loss:
    """Return the loss under which centres are found; a robust one, where the threshold is open."""
    if is_open(loss):
        return Absolute().at_noise(raw_scale(sources))
    return loss


def raw_scale(sources: Sequence[Observed]) -> float:
    """Return the robust standard deviation of all centred entries together.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.masked import Masked
    >>> from heterofactor.observing import raw_scale
    >>> entries = np.random.default_rng(0).normal(size=(1, 50, 50))
    >>> round(raw_scale([Masked(entries)]), 1)
    1.0
    """
    counts = [float(to_numpy(source.counts[0]).sum()) for source in sources]
    variances = []
    for source in sources:
        count, n1, n2 = source.shape
        none = like(np.zeros((count, n1, 0)), source.energy)
        other = like(np.zeros((count, n2, 0)), source.energy)
        variances.append(float(to_numpy(source.noise(none, other, source.centre)).mean()))
    total = sum(c * v for c, v in zip(counts, variances, strict=True)) / max(sum(counts), 1)
    return total**0.5 or 1.0


def equalised(source: Observed) -> Observed:
    """Return the source with each matrix counting one, whatever its size and units.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.masked import Masked
    >>> from heterofactor.observing import equalised
    >>> equalised(Masked(np.full((1, 2, 2), 3.0))).energy.tolist()
    [1.0]
    """
    xp = namespace(source.energy)
    energy = xp.where(source.energy > 0, source.energy, 1.0)
    weighted: Any = source.weighted(energy**-0.5)
    return weighted  # type: ignore[no-any-return]


def equal_weights(
    sources: Sequence[Observed], members: Sequence[Sequence[int]], names: Sequence[Hashable]
) -> dict[Hashable, float]:
    """Return by what `equalised` multiplies the entries of each source.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.masked import Masked
    >>> from heterofactor.observing import equal_weights
    >>> equal_weights([Masked(np.full((1, 2, 2), 4.0))], [[0]], ["north"])
    {'north': 0.125}
    """
    return {
        names[place]: (float(energy) or 1.0) ** -0.5
        for source, places in zip(sources, members, strict=True)
        for place, energy in zip(places, to_numpy(source.energy), strict=True)
    }


def _check_observable(
    sources: Sequence[Observed],
    members: Sequence[Sequence[int]],
    names: Sequence[Hashable],
    loss: Loss,
) -> None:
    for source, places in zip(sources, members, strict=True):
        seen = to_numpy(source.counts[0]).sum(axis=-1)
        for place, entries in zip(places, seen, strict=True):
            if entries == 0:
                raise ValueError(
                    f"Source {names[place]!r} has no observed entry at all: leave it out; after "
                    "the fit, add_source can learn it once something is observed."
                )
    _check_values(sources, members, names, loss)


def _check_values(
    sources: Sequence[Observed],
    members: Sequence[Sequence[int]],
    names: Sequence[Hashable],
    loss: Loss,
) -> None:
    """Refuse entries that cannot be observed under the loss."""
    if not isinstance(loss, Linked):
        return
    for source, places in zip(sources, members, strict=True):
        for place, value in zip(places, to_numpy(source.refused(loss.unobservable)), strict=True):
            if not np.isnan(value):
                raise ValueError(
                    f"Source {names[place]!r} holds {value:g}, which cannot be observed under "
                    f"{loss!r}: expected only {loss.observable}. Choose another loss, or recode "
                    "the entries."
                )


def read_weights(weights: Any, tables: Tables) -> list[Array | None] | None:
    """Read how much entries count, as they come beside the tables.

    Parameters
    ----------
    weights : dict, list or array, optional
        For a dict or list of tables, one for each; for one table, one array. Each has the shape of
        its table, or one number for each of its samples (rows).
    tables : Tables
        What they are for.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.observing import read_weights
    >>> from heterofactor.brought import read_tables
    >>> tables = read_tables({"north": np.ones((2, 3))})
    >>> read_weights({"north": [1, 2]}, tables)[0].shape
    (2, 1)
    """
    if weights is None:
        return None
    names = tables.names
    if isinstance(weights, Mapping):
        if unknown := [name for name in weights if name not in names]:
            raise ValueError(f"weights= names {unknown[0]!r}, which is no source.")
        return [_weight(weights.get(name), name, tables, k) for k, name in enumerate(names)]
    if tables.container != "table":
        if len(weights) != len(names):
            raise ValueError(
                f"weights= has {len(weights)} entries, but there are {len(names)} sources: give "
                "one array for each."
            )
        return [_weight(weights[k], name, tables, k) for k, name in enumerate(names)]
    if not tables.positions:
        return [_weight(weights, names[0], tables, 0)]
    whole = weights.tocsr() if is_sparse(weights) else np.asarray(weights, dtype=float)
    expected = sum(len(positions) for positions in tables.positions)
    length = whole.shape[0 if tables.shared_axis == "features" or whole.ndim == 1 else 1]
    by_rows = tables.shared_axis == "features"
    if (by_rows or whole.ndim == 2) and length != expected:
        raise ValueError(
            f"weights= has shape {tuple(whole.shape)}, which does not fit X: expected its shape, "
            "or one number for each of its rows."
        )
    found = []
    for k, (name, positions) in enumerate(zip(names, tables.positions, strict=True)):
        part = whole
        if by_rows:
            part = whole[positions]
        elif whole.ndim == 2:
            part = whole[:, positions]
        found.append(_weight(part, name, tables, k))
    return found


def _weight(weight: Any, name: Hashable, tables: Tables, place: int) -> Array | None:
    if weight is None:
        return None
    if is_sparse(weight):
        return weight
    found = np.asarray(weight, dtype=float)
    shape = tuple(tables.values[place].shape)
    if found.shape == shape[:1]:
        found = found[:, None]
    elif found.shape != shape:
        raise ValueError(
            f"The weights of source {name!r} have shape {found.shape}, but its table has {shape}: "
            "give one weight for each entry, or one for each row."
        )
    if not bool(np.isfinite(found).all()) or bool((found < 0).any()):
        raise ValueError(
            f"The weights of source {name!r} hold {found[~(found >= 0) | ~np.isfinite(found)][0]}: "
            "expected finite numbers from zero on."
        )
    return found
