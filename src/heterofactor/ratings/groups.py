"""Which group each item (or user) is in: by labels, or by clusters of flags as in the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

from heterofactor.ratings.reading import Array, Codes, coded, ids_of

# k-means begins so often, and keeps the best.
STARTS = 4
# Ids that an error names.
NAMED = 5


def read_groups(
    given: Any, ids: pd.Index[Any], what: str, n_groups: int, seed: int
) -> tuple[pd.Index[Any], Codes]:
    """Return the names of the groups, and the place of each id's group among them.

    Parameters
    ----------
    given : Series, dict, array, DataFrame or None
        Labels by id (an array: in the order of `ids`), or a table of flags indexed by id, which is
        clustered; None for one group.
    ids : Index
        Of items, or of users.
    what : {"item", "user"}
        For messages.
    n_groups : int
        Clusters of flags.
    seed : int
        Of k-means.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.groups import read_groups
    >>> ids = pd.Index(["Heat", "Alien", "Babe"])
    >>> names, codes = read_groups({"Heat": "crime", "Babe": "pigs", "Alien": "space"}, ids, "item",
    ...                            10, 0)
    >>> names.tolist(), codes.tolist()
    (['crime', 'pigs', 'space'], [0, 2, 1])
    """
    if given is None:
        return pd.Index(["all"]), np.zeros(len(ids), dtype=np.intp)
    if isinstance(given, pd.DataFrame):
        flags = aligned(given, ids, what, f"{what}_groups")
        if flags.isna().any(axis=None):
            gaps = flags.index[flags.isna().any(axis=1)]
            raise ValueError(
                f"{what}_groups has flags that are missing, for {_some(gaps)}: fill them in, or "
                "give labels."
            )
        return _clusters(flags, n_groups, seed)
    if isinstance(given, (pd.Series, Mapping)):
        given = pd.Series(given)
        labels = aligned(given.to_frame("group"), ids, what, f"{what}_groups")["group"]
    else:
        if np.shape(given) != (len(ids),):
            raise ValueError(
                f"{what}_groups has shape {np.shape(given)}, but {len(ids)} {what}s are rated: "
                f"give one label for each in sorted order, or a Series or dict of labels by {what}."
            )
        labels = pd.Series(np.asarray(given), index=ids)
    if labels.isna().any():
        raise ValueError(
            f"{what}_groups has no label for {_some(labels.index[labels.isna()])}: give one."
        )
    codes, names = coded(labels)
    return names, codes


def centres_of(flags: pd.DataFrame, codes: Codes) -> pd.DataFrame:
    """Return where clusters are: the mean of their flags, each row of these of one length.

    Parameters
    ----------
    flags : DataFrame
        Of those in the clusters.
    codes : array of int
        The cluster of each row.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from heterofactor.ratings.groups import centres_of
    >>> flags = pd.DataFrame({"war": [0, 0, 2], "love": [1, 3, 0]})
    >>> centres_of(flags, np.array([0, 0, 1])).to_numpy().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    unit = pd.DataFrame(_of_one_length(flags), columns=flags.columns)
    return unit.groupby(codes).mean()


def place_groups(
    given: Any,
    ids: pd.Index[Any],
    names: pd.Index[Any],
    centres: pd.DataFrame | None,
    what: str,
) -> Codes:
    """Return the groups of ids that were not there when these were made, -1 where there is none.

    Parameters
    ----------
    given : Series, dict, array, DataFrame or None
        As for `read_groups`.
    ids : Index
        Of items, or of users.
    names : Index
        Of the groups.
    centres : DataFrame, optional
        Of clusters, where groups were made of flags.
    what : {"item", "user"}
        For messages.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.groups import place_groups
    >>> names = pd.Index(["crime", "space"])
    >>> place_groups({"Alien": "space"}, pd.Index(["Babe", "Alien"]), names, None, "item").tolist()
    [-1, 1]
    """
    found = np.full(len(ids), -1, dtype=np.intp)
    if given is None:
        return found
    if isinstance(given, pd.DataFrame):
        if centres is None or set(centres.columns) - set(given.columns):
            raise ValueError(
                f"{what}_groups is a table: expected "
                + ("labels" if centres is None else f"the flags {list(centres.columns)}")
                + ", as in the fit."
            )
        table = given.set_axis(ids_of(given.index))[list(centres.columns)]
        place = table.index.get_indexer(ids)
        unit = _of_one_length(table.iloc[place[place >= 0]])
        gaps = ((unit[:, None] - centres.to_numpy()) ** 2).sum(axis=2)
        found[place >= 0] = np.where(np.isnan(unit).any(axis=1), -1, gaps.argmin(axis=1))
        return found
    if isinstance(given, (pd.Series, Mapping)):
        labels = pd.Series(given)
        place = ids_of(labels.index).get_indexer(ids)
        found[place >= 0] = names.get_indexer(ids_of(labels.iloc[place[place >= 0]]))
        return found
    if np.shape(given) != (len(ids),):
        raise ValueError(
            f"{what}_groups has shape {np.shape(given)}, but there are {len(ids)} new {what}s: "
            f"give one label for each, or a Series or dict of labels by {what}."
        )
    return names.get_indexer(ids_of(np.asarray(given)))


def places_in_groups(group: Codes) -> Codes:
    """Return the place of each id within its group.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.groups import places_in_groups
    >>> places_in_groups(np.array([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    place = np.zeros(len(group), dtype=np.intp)
    for g in range(int(group.max()) + 1):
        place[group == g] = np.arange(int((group == g).sum()))
    return place


def aligned(table: pd.DataFrame, ids: pd.Index[Any], what: str, name: str) -> pd.DataFrame:
    """Return the rows of a table that is indexed by id, one for each of some ids.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.groups import aligned
    >>> table = pd.DataFrame({"year": [1979, 1995]}, index=["Alien", "Heat"])
    >>> aligned(table, pd.Index(["Heat"]), "item", "item_features")["year"].tolist()
    [1995]
    """
    table = table.set_axis(ids_of(table.index))
    if not table.index.is_unique:
        twice = table.index[table.index.duplicated()]
        raise ValueError(f"{name} has several rows for {_some(twice)}: give one for each {what}.")
    missing = ids[~ids.isin(table.index)]
    if len(missing):
        raise ValueError(
            f"{name} has no row for {len(missing)} of {len(ids)} {what}s ({_some(missing)}): it "
            f"is expected to be indexed by {what}, with a row for each that was rated."
        )
    return table.iloc[table.index.get_indexer(ids)]


def _clusters(flags: pd.DataFrame, n_groups: int, seed: int) -> tuple[pd.Index[Any], Codes]:
    """Cluster the flags as the paper does, and name each cluster by the flags that most have."""
    values, unit = flags.to_numpy(dtype=float), _of_one_length(flags)
    n_groups = min(n_groups, len(np.unique(unit, axis=0)))
    found = KMeans(n_groups, n_init=STARTS, random_state=seed).fit(unit).labels_
    # the largest first, whatever k-means calls them
    order = np.argsort(-np.bincount(found, minlength=n_groups), kind="stable")
    codes = np.argsort(order)[found]
    names: list[str] = []
    for g in range(n_groups):
        name = _described(flags, values[codes == g])
        names.append(f"{name} ({g})" if name in names else name)
    return pd.Index(names), codes


def _of_one_length(flags: pd.DataFrame) -> Array:
    values = flags.to_numpy(dtype=float)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    unit: Array = values / np.where(length > 0, length, 1)
    return unit


def _described(flags: pd.DataFrame, values: Array) -> str:
    common = flags.columns[values.mean(axis=0) >= 0.5]
    return " + ".join(map(str, common)) or "mixed"


def _some(ids: pd.Index[Any]) -> str:
    shown = ", ".join(map(repr, ids[:NAMED].tolist()))
    return shown + (", ..." if len(ids) > NAMED else "")
