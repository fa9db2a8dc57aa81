"""Scores of new samples by least squares, given the factors of a fit.

Where the features are shared, the bases are orthonormal and a sample's scores are products with
them. Where the samples are shared, a new sample is a new row of the bases: its shared coordinates
are fitted to all the sources that observed it together, its unique ones to each.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from heterofactor.factors import Factors
from heterofactor.linalg import Array, beside, like, machine_epsilon, namespace, trace
from heterofactor.tables import Tables


def score_samples(
    factors: Factors,
    centres: dict[Hashable, Array | None],
    tables: Tables,
    names: Sequence[Any],
    *,
    equally: bool = False,
) -> list[tuple[Array, Array]]:
    """Return the shared and the unique scores of each table's samples.

    Parameters
    ----------
    factors : Factors
        Of the fit.
    centres : dict of array or None
        What to subtract from each source's features.
    tables : Tables
        The new samples.
    names : sequence
        For each table, the source it is from; None for a source never seen, which has no unique
        scores and is centred by the mean of the centres.
    equally : bool
        Where the samples are shared: let every source count the same for the shared coordinates,
        whatever its size and units, as in a fit with ``scale="source"``.

    Returns
    -------
    list of (shared, unique)
        Arrays with a row for each sample; where the samples are shared, `shared` is the same for
        all tables.

    Examples
    --------
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import make_heterogeneous
    >>> from heterofactor.scores import score_samples
    >>> from heterofactor.brought import read_tables
    >>> data = make_heterogeneous(2, n_shared=2, n_unique=1, random_state=0)
    >>> model = HMF(2, 1).fit(data.sources)
    >>> new = read_tables(data.sources["source1"][:4])
    >>> (shared, unique), = score_samples(model.factors_, model.centres_, new, ["source1"])
    >>> shared.shape, unique.shape
    ((4, 2), (4, 1))
    """
    if tables.shared_axis == "samples":
        return _joint_rows(factors, centres, tables, names, equally)
    found = []
    for table, name in zip(tables.values, names, strict=True):
        basis = factors.shared_basis
        unique = basis[:, :0] if name is None else factors.unique_bases[name]
        found.append(_products(table, centre_of(centres, name), basis, unique))
    return found


def centre_of(centres: dict[Hashable, Array | None], name: Any) -> Array | None:
    """Return a source's centre, or the mean of all for a source never seen."""
    if name is not None:
        return centres[name]
    known = [centre for centre in centres.values() if centre is not None]
    return sum(known) / len(known) if known else None


def _products(table: Any, centre: Array | None, first: Array, second: Array) -> tuple[Array, Array]:
    """Return the products of a centred table with two matrices, read once."""
    both = beside([first, second])
    found = table @ both if centre is None else table @ both - centre @ both
    width = first.shape[-1]
    return found[:, :width], found[:, width:]


def _joint_rows(
    factors: Factors,
    centres: dict[Hashable, Array | None],
    tables: Tables,
    names: Sequence[Any],
    equally: bool,
) -> list[tuple[Array, Array]]:
    """Fit shared coordinates to all sources together, eliminating the unique ones of each."""
    matrix: Array = 0
    right: Array = 0
    kept = []
    for table, name in zip(tables.values, names, strict=True):
        shared, unique = factors.shared_scores[name], factors.unique_scores[name]
        own = _damped(unique.mT @ unique)
        xp = namespace(own)
        imitated = xp.linalg.solve(own, unique.mT @ shared)
        rest = shared - unique @ imitated
        if equally:
            rest = rest / (factors.energy[name] or 1.0)
        by_rest, by_own = _products(table, centres[name], rest, unique)
        matrix, right = matrix + rest.mT @ shared, right + by_rest
        kept.append((by_own, unique.mT @ shared, own))
    xp = namespace(right)
    coordinates = xp.linalg.solve(_damped(matrix), right.mT).mT
    found = []
    for by_own, both, own in kept:
        found.append((coordinates, xp.linalg.solve(own, by_own.mT - both @ coordinates.mT).mT))
    return found


def _damped(gram: Array) -> Array:
    """Keep a Gram matrix invertible where components explain nothing."""
    size = gram.shape[-1]
    ridge = float(trace(gram)) * machine_epsilon(gram)
    return gram + like(np.eye(size) * (ridge or 1.0), gram)
