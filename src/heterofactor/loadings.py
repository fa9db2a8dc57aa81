"""What components are made of: the weight of every feature on them, under the features' names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from heterofactor.hmf import HMF
from heterofactor.linalg import to_numpy


def loadings(model: HMF, sources: Sequence[Hashable] | None = None) -> dict[str, pd.DataFrame]:
    """Return tables of loadings, features in rows and components in columns, by title.

    Where the features are shared, these are the shared components and each source's unique ones.
    Where the samples are shared, every source has features of its own: one table for each, with
    loadings as parts of the source's norm, so that their squares add up to the share of variance
    that a component explains.

    Parameters
    ----------
    model : HMF
        A fitted model.
    sources : sequence, optional
        Names of sources; all if left out.

    Examples
    --------
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import load_beijing_air
    >>> from heterofactor.loadings import loadings
    >>> model = HMF(2, 1, scale="source").fit(load_beijing_air().sources)
    >>> tables = loadings(model, ["Changping"])
    >>> {title: table.shape for title, table in tables.items()}
    {'shared': (11, 2), 'unique to Changping': (11, 1)}
    >>> list(tables["shared"].index)[:3]
    ['PM2.5', 'PM10', 'SO2']
    """
    check_is_fitted(model)
    factors, known = model.factors_, model.source_names_
    for name in sources or []:
        if name not in known:
            some = ", ".join(map(repr, known[:10]))
            raise ValueError(f"There is no source {name!r}: the sources are {some}.")
    chosen = known if sources is None else list(sources)
    if model.shared_axis == "features":
        index = _feature_names(model, known[0], int(factors.shared_basis.shape[0]))
        bases = {"shared": factors.shared_basis}
        bases |= {f"unique to {name}": factors.unique_bases[name] for name in chosen}
        return {
            title: pd.DataFrame(
                to_numpy(basis),
                index,
                [f"{title.split()[0]}{k}" for k in range(basis.shape[1])],
            )
            for title, basis in bases.items()
        }
    found = {}
    for name in chosen:
        shared, unique = factors.shared_scores[name], factors.unique_scores[name]
        norm = float(np.sqrt(factors.energy[name])) or 1.0
        labels = [f"shared{k}" for k in range(shared.shape[1])]
        labels += [f"unique{k}" for k in range(unique.shape[1])]
        index = _feature_names(model, name, int(shared.shape[0]))
        weights = np.hstack([to_numpy(shared), to_numpy(unique)]) / norm
        found[str(name)] = pd.DataFrame(weights, index, labels)
    return found


def foremost(table: pd.DataFrame, top: int) -> pd.DataFrame:
    """Return the features with the largest loadings, about as many for each component.

    Parameters
    ----------
    table : DataFrame
        Features in rows, components in columns.
    top : int
        How many features to keep: those that come first in any component. Those of the first
        component are listed first, the positive ones before the negative.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.loadings import foremost
    >>> foremost(pd.DataFrame({"shared0": [0.1, -0.9, 0.3, 0.2]}, index=list("abcd")), 2)
       shared0
    c      0.3
    b     -0.9
    """
    if top < 1:
        raise ValueError(f"top is {top!r}: expected at least one feature.")
    sizes = table.abs().to_numpy()
    ranks = np.argsort(np.argsort(-sizes, axis=0, kind="stable"), axis=0)
    own = ranks.argmin(axis=1)
    kept = np.lexsort([-sizes.max(axis=1), ranks.min(axis=1)])[:top]
    signed = table.to_numpy()[kept, own[kept]]
    return table.iloc[kept[np.lexsort([-signed, own[kept]])]]


def _feature_names(model: HMF, name: Hashable, count: int) -> list[str]:
    """Return the names of a source's features; feature 0, ... where they have none."""
    columns = model._labels[name][1]
    if columns is None:
        return [f"feature {k}" for k in range(count)]
    return [str(column) for column in columns]
