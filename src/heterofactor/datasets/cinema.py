"""Ratings of films that do not exist, by people who do not: small, ours, and of known truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from heterofactor.datasets.bundled import arrays
from heterofactor.datasets.ratings import MadeRatings


@dataclass(frozen=True, eq=False)
class Cinema(MadeRatings):
    """Made ratings with names, and what else they were made of.

    Attributes
    ----------
    ratings : DataFrame
        6,000 rows: `user`, `item` (a title), `rating` from 1 to 5, `time`.
    item_groups : Series
        The main genre of each film, which has a taste of its own.
    item_flags : DataFrame of bool
        All genres of each film.
    user_features : DataFrame
        `age` and `job`.
    item_features : DataFrame
        `year`, `minutes` and `language`.
    mean, user_offsets, item_offsets, shared_parts, unique_parts
        The truth, as of :class:`MadeRatings`.

    Examples
    --------
    >>> from heterofactor.datasets import load_cinema
    >>> sorted(set(load_cinema().item_groups))
    ['Comedy', 'Drama', 'Thriller', 'Western']
    """

    item_flags: pd.DataFrame


def load_cinema() -> Cinema:
    """Load 6,000 ratings of 150 invented films by 200 invented users, and the truth behind them.

    They were drawn by :func:`make_ratings`: users share two dimensions of taste, and every genre
    has one of its own. Age, job, year, length and language follow offsets and shared tastes, with
    as much noise. The script is `experiments/bundle_data.py`; everybody may use the ratings for
    anything (CC0).

    Returns
    -------
    Cinema
        The ratings, what is known of users and films, and the truth.

    Examples
    --------
    >>> from heterofactor.datasets import load_cinema
    >>> cinema = load_cinema()
    >>> cinema.ratings.shape, cinema.shared_parts.shape
    ((6000, 4), (200, 150))
    >>> cinema.item_features.columns.tolist(), cinema.user_features.columns.tolist()
    (['year', 'minutes', 'language'], ['age', 'job'])
    """
    data = arrays("cinema.npz")
    users = pd.RangeIndex(1, len(data["age"]) + 1, name="user")
    items = pd.Index(data["titles"].tolist(), name="item")
    genres = data["genres"].tolist()
    unique = data["unique_users"][data["genre"]].T * data["unique_items"]
    return Cinema(
        ratings=pd.DataFrame(
            {
                "user": users[data["user"]],
                "item": items[data["item"]],
                "rating": data["rating"].astype(np.float64),
                "time": data["time"].astype(np.int64),
            }
        ),
        item_groups=pd.Series([genres[g] for g in data["genre"]], index=items, name="group"),
        mean=float(data["mean"]),
        user_offsets=pd.Series(data["user_offsets"], index=users),
        item_offsets=pd.Series(data["item_offsets"], index=items),
        shared_parts=pd.DataFrame(
            data["shared_users"] @ data["shared_items"].T, index=users, columns=items
        ),
        unique_parts=pd.DataFrame(unique, index=users, columns=items),
        user_features=pd.DataFrame(
            {"age": data["age"].astype(np.int64), "job": data["job"].tolist()}, index=users
        ),
        item_features=pd.DataFrame(
            {
                "year": data["year"].astype(np.int64),
                "minutes": data["minutes"].astype(np.int64),
                "language": data["language"].tolist(),
            },
            index=items,
        ),
        item_flags=pd.DataFrame(data["flags"], index=items, columns=genres),
    )
