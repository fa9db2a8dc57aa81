"""What networks are given: features as columns from 0 to 1, and ratings in one unit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from heterofactor.ratings.features import columns_of, feature_table
from heterofactor.ratings.groups import aligned
from heterofactor.ratings.reading import Array, Ratings

# From one star to five.
SPAN = 4


def with_unrated(known: Ratings, user_features: Any = None, item_features: Any = None) -> Ratings:
    """Return the same ratings, with the users and items of which only features are known.

    They come after those that have ratings.

    Parameters
    ----------
    known : Ratings
    user_features, item_features : DataFrame, optional
        Indexed by id.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> from heterofactor.ratings.side import with_unrated
    >>> table = pd.DataFrame({"user": ["ann"], "item": ["tea"], "rating": [5]})
    >>> drinks = pd.DataFrame({"hot": [0, 1]}, index=["ale", "tea"])
    >>> with_unrated(read_ratings(table, Columns()), item_features=drinks).items.tolist()
    ['tea', 'ale']
    """
    users = _and_those_of(user_features, known.users, "user")
    return replace(known, users=users, items=_and_those_of(item_features, known.items, "item"))


def _and_those_of(given: Any, ids: pd.Index[Any], what: str) -> pd.Index[Any]:
    if given is None:
        return ids
    return ids.append(feature_table(given, what).index.difference(ids, sort=False))


def unit_columns(given: pd.DataFrame | None, ids: pd.Index[Any], what: str) -> Array:
    """Return features as columns from 0 to 1: flags, a flag for each category, numbers moved there.

    Parameters
    ----------
    given : DataFrame or None
        Indexed by id, with a row for each that is wanted. What is not known counts as the mean.
    ids : Index
        The rows that are wanted.
    what : {"item", "user"}
        For messages.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.side import unit_columns
    >>> users = pd.DataFrame({"age": [20, 30, 40], "job": list("xyx")}, index=["a", "b", "c"])
    >>> unit_columns(users, pd.Index(["b", "c"]), "user").tolist()
    [[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    if given is None:
        return np.zeros((len(ids), 0))
    table = aligned(feature_table(given, what), ids, what, f"{what}_features")
    _, _, values = columns_of(table, what)
    least = np.nanmin(values, axis=0, initial=np.inf)
    most = np.nanmax(values, axis=0, initial=-np.inf)
    varies = most > least
    unit: Array = ((values - least)[:, varies]) / (most - least)[varies]
    return np.where(np.isnan(unit), np.nanmean(unit, axis=0), unit)


def unit_of(known: Ratings) -> float:
    """Return the unit in which ratings span as much as one to five stars do.

    Rates and penalties then mean the same for any scale.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> from heterofactor.ratings.side import unit_of
    >>> table = pd.DataFrame({"user": [1, 2], "item": [1, 1], "rating": [20, 100]})
    >>> unit_of(read_ratings(table, Columns()))
    20.0
    """
    return float(np.ptp(known.values)) / SPAN or 1.0
