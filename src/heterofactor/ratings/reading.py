"""A long table of ratings, read into codes of users and items and the numbers beside them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Array = npt.NDArray[np.floating[Any]]
Codes = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Columns:
    """What the columns of a table of ratings are called.

    Examples
    --------
    >>> from heterofactor.ratings.reading import Columns
    >>> Columns(user="reader", item="book").rating
    'rating'
    """

    user: Hashable = "user"
    item: Hashable = "item"
    rating: Hashable = "rating"
    weight: Hashable = "weight"
    time: Hashable = "time"


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings as numbers: no pair of user and item is there twice.

    Attributes
    ----------
    users, items : Index
        The ids, sorted where they can be.
    user, item : array of int
        For each rating the places of its user and its item, in their order.
    values, weights : array
        What was given, and how much it counts.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> table = pd.DataFrame({"user": ["b", "a"], "item": [7, 7], "rating": [4, 2]})
    >>> ratings = read_ratings(table, Columns())
    >>> ratings.users.tolist(), ratings.user.tolist(), ratings.values.tolist()
    (['a', 'b'], [0, 1], [2.0, 4.0])
    """

    users: pd.Index[Any]
    items: pd.Index[Any]
    user: Codes
    item: Codes
    values: Array
    weights: Array

    def turned(self) -> Ratings:
        """Return the same with users and items exchanged."""
        return Ratings(self.items, self.users, self.item, self.user, self.values, self.weights)

    def with_ids(self, what: str, ids: pd.Index[Any]) -> Ratings:
        """Return the same with users, or items, of whom there are no ratings."""
        users = self.users.append(ids) if what == "user" else self.users
        items = self.items.append(ids) if what == "item" else self.items
        return Ratings(users, items, self.user, self.item, self.values, self.weights)

    def number(self, what: str) -> Codes:
        """Return how many ratings each user, or each item, has."""
        places, ids = (self.user, self.users) if what == "user" else (self.item, self.items)
        return np.bincount(places, minlength=len(ids))

    def part(self, which: Any) -> Ratings:
        """Return some of the ratings; users and items keep their places."""
        arrays = (self.user, self.item, self.values, self.weights)
        return Ratings(self.users, self.items, *(array[which] for array in arrays))

    def joined(self, more: Ratings) -> tuple[Ratings, npt.NDArray[np.bool]]:
        """Return these and more ratings, and which of them are new.

        New ids come after those that are known; what is rated twice counts as it was last.
        """
        users = self.users.append(more.users.difference(self.users, sort=False))
        items = self.items.append(more.items.difference(self.items, sort=False))
        user = users.get_indexer(more.users)[more.user]
        item = items.get_indexer(more.items)[more.item]
        stays = ~np.isin(self.user * len(items) + self.item, user * len(items) + item)
        both = zip(
            (self.user, self.item, self.values, self.weights),
            (user, item, more.values, more.weights),
            strict=True,
        )
        arrays = [np.concatenate([old[stays], new]) for old, new in both]
        return Ratings(users, items, *arrays), np.arange(len(arrays[0])) >= int(stays.sum())

    @property
    def weighted(self) -> bool:
        """Whether some ratings count more than others."""
        return bool((self.weights != 1).any())


def read_ratings(table: Any, columns: Columns) -> Ratings:
    """Read ratings; of several of one pair, the last one counts: by time, where there is a time.

    Parameters
    ----------
    table : DataFrame
        One row a rating.
    columns : Columns
        What its columns are called. Weight and time may be missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> twice = pd.DataFrame({"user": [1, 1], "item": [7, 7], "rating": [4, 2], "time": [9, 8]})
    >>> read_ratings(twice, Columns()).values.tolist()
    [4.0]
    """
    pairs = read_pairs(table, columns, "ratings")
    _refuse_several(table, (columns.rating, columns.weight, columns.time), "ratings")
    if columns.rating not in table.columns:
        raise ValueError(_lacks("ratings", [columns.rating], table))
    values = _numbers(table, columns.rating)
    weights: Array = np.ones(len(values))
    if columns.weight in table.columns:
        weights = _numbers(table, columns.weight)
        if (weights < 0).any():
            raise ValueError(
                f"The weights of ratings (column {columns.weight!r}) hold {weights.min():g}: "
                "expected numbers from zero on."
            )
    if not (weights > 0).any():
        raise ValueError("There are no ratings (or all have weight zero): give one row for each.")
    order: Codes = np.arange(len(values))
    if columns.time in table.columns:
        order = _in_time(table, columns.time)
    by_user, user_ids = coded(pairs["user"])
    by_item, item_ids = coded(pairs["item"])
    # by user and item, so that the order of the rows does not matter
    keys = _narrow(by_item, len(item_ids)), _narrow(by_user, len(user_ids))
    order = order[np.lexsort([key[order] for key in keys])]
    last = np.ones(len(order), dtype=bool)
    last[:-1] = (np.diff(by_user[order]) != 0) | (np.diff(by_item[order]) != 0)
    order = order[last & (weights[order] > 0)]
    user, users = _still_there(by_user[order], user_ids)
    item, items = _still_there(by_item[order], item_ids)
    return Ratings(users, items, user, item, values[order], weights[order])


def _narrow(codes: Codes, count: int) -> Codes:
    """Return codes in as few bytes as they need: NumPy sorts those of two bytes by radix."""
    return codes.astype(np.min_scalar_type(count))


def _still_there(codes: Codes, ids: pd.Index[Any]) -> tuple[Codes, pd.Index[Any]]:
    """Drop ids that no code stands for."""
    present = np.bincount(codes, minlength=len(ids)) > 0
    return (np.cumsum(present) - 1)[codes], ids[present]


def ids_of(given: Any) -> pd.Index[Any]:
    """Return ids as an index of one level, whatever they are: a tuple is one id.

    Examples
    --------
    >>> from heterofactor.ratings.reading import ids_of
    >>> ids_of([("north", 1), ("south", 2)]).nlevels
    1
    """
    index = pd.Index(given, tupleize_cols=False)
    return index.to_flat_index() if isinstance(index, pd.MultiIndex) else index


def coded(ids: pd.Series[Any]) -> tuple[Codes, pd.Index[Any]]:
    """Return the place of each id among the different ones, and these, in an order of their own.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.reading import coded
    >>> codes, found = coded(pd.Series(["b", 7, "a", "b"]))
    >>> codes.tolist(), found.tolist()
    ([2, 0, 1, 2], [7, 'a', 'b'])
    """
    codes, found = pd.factorize(ids_of(ids))
    found = ids_of(found)
    try:
        order = np.array(sorted(range(len(found)), key=found.tolist().__getitem__), dtype=np.intp)
    except TypeError:  # of several kinds
        kinds = [(type(one).__name__, repr(one)) for one in found.tolist()]
        order = np.array(sorted(range(len(found)), key=kinds.__getitem__), dtype=np.intp)
    return np.argsort(order)[codes], found[order]


def read_pairs(table: Any, columns: Columns, what: str) -> pd.DataFrame:
    """Return the users and items of a table, under these names.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.reading import Columns, read_pairs
    >>> books = pd.DataFrame({"book": [1], "reader": ["a"]})
    >>> read_pairs(books, Columns("reader", "book"), "pairs").columns.tolist()
    ['user', 'item']
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(
            f"{what} is {type(table).__name__}: expected a DataFrame with a row for each pair and "
            f"the columns {columns.user!r} and {columns.item!r}."
        )
    _refuse_several(table, (columns.user, columns.item), what)
    if missing := [name for name in (columns.user, columns.item) if name not in table.columns]:
        raise ValueError(_lacks(what, missing, table))
    pairs = pd.DataFrame({"user": table[columns.user], "item": table[columns.item]})
    unknown = pairs.isna().any(axis=1)
    if unknown.any():
        raise ValueError(
            f"{what} has {int(unknown.sum())} rows without a user or an item (the first is "
            f"{pairs.index[unknown][0]!r}): drop them."
        )
    return pairs


def _in_time(table: pd.DataFrame, column: Hashable) -> Codes:
    """Return the order of rows by time; those without one come first."""
    times = read_times(table, column).reset_index(drop=True)
    found: Codes = times.sort_values(kind="stable", na_position="first").index.to_numpy()
    return found


def read_times(table: pd.DataFrame, column: Hashable) -> pd.Series[Any]:
    """Return a column of times as numbers or as moments, also where they are written as text.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.reading import read_times
    >>> read_times(pd.DataFrame({"time": ["12", "7"]}), "time").tolist()
    [12, 7]
    """
    times = table[column]
    if times.dtype == object or pd.api.types.is_string_dtype(times):
        try:
            times = _numbers_or_times(times)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Column {column!r} of ratings (the first is {times.iloc[0]!r}) holds neither "
                "numbers nor times as in '2020-12-31': convert it with pandas.to_datetime, or "
                "leave it out."
            ) from error
    return times


def _numbers_or_times(texts: pd.Series[Any]) -> pd.Series[Any]:
    try:
        return pd.to_numeric(texts)
    except (TypeError, ValueError):
        return pd.to_datetime(texts, format="ISO8601", utc=True)


def _refuse_several(table: pd.DataFrame, names: tuple[Hashable, ...], what: str) -> None:
    twice = table.columns[table.columns.duplicated()]
    if several := [name for name in names if name in twice]:
        raise ValueError(
            f"{what} has several columns {', '.join(map(repr, several))}: leave one of each."
        )


def _lacks(what: str, missing: list[Hashable], table: pd.DataFrame) -> str:
    names = ", ".join(map(repr, missing))
    found = ", ".join(map(repr, table.columns[:8]))
    return (
        f"{what} has no column {names}, but {found}: rename them, or say what yours are called "
        "with user=, item= and rating= when the model is made."
    )


def _numbers(table: pd.DataFrame, column: Hashable) -> Array:
    try:
        values = table[column].to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Column {column!r} of ratings holds other things than numbers."
        ) from error
    if not np.isfinite(values).all():
        at = table.index[~np.isfinite(values)][0]
        raise ValueError(
            f"Column {column!r} of ratings holds {values[~np.isfinite(values)][0]} (row {at!r}): "
            "expected finite numbers. Drop the rows without one."
        )
    return values
