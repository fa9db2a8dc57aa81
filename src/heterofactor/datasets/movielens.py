"""MovieLens 100K, which may not travel with the library: from a folder, or from GroupLens."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from heterofactor.datasets.download import download

URL = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
SHA256 = "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229"
FILES = ("u.data", "u.item", "u.user", "README")
TERMS = (
    "MovieLens 100K (5 MB) is for research: it may not be redistributed, nor used commercially, "
    "without permission from GroupLens; its README has the terms."
)
# In the order of the columns of u.item.
GENRES = (
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
)


@dataclass(frozen=True, eq=False)
class MovieLens:
    """Ratings of movies, and what is known of the movies and of who rated them.

    Attributes
    ----------
    ratings : DataFrame
        One row a rating: `user`, `item`, `rating` (1 to 5) and `time` (seconds since 1970), in the
        published order.
    item_flags : DataFrame of bool
        Indexed by item, one column a genre; a movie may have several.
    items : DataFrame
        Indexed by item: `title` and `year`, which is NaN where it is not known.
    users : DataFrame
        Indexed by user: `age`, `gender`, `occupation` and `zip`.
    licence : str
        The terms of the data (not of this library).
    citation : str
        What to cite.
    url : str
        Where the archive is published.

    Examples
    --------
    >>> from heterofactor.datasets import MovieLens
    >>> sorted(MovieLens.__annotations__)[:3]
    ['citation', 'item_flags', 'items']
    """

    ratings: pd.DataFrame
    item_flags: pd.DataFrame
    items: pd.DataFrame
    users: pd.DataFrame
    licence: str
    citation: str
    url: str


def load_movielens_100k(folder: str | Path | None = None) -> MovieLens:
    """Load 100,000 ratings of 1,682 movies by 943 users.

    Parameters
    ----------
    folder : path, optional
        Where ``u.data``, ``u.item`` and ``u.user`` are. Unless given, ``ml-100k`` in the folder
        that the environment variable ``HETEROFACTOR_DATA`` names, or else in the user's cache. If
        it is not there, the archive is downloaded from GroupLens (5 MB), which is said first, and
        checked.

    Returns
    -------
    MovieLens
        Ratings, genres, titles and users.

    Notes
    -----
    The data may not be redistributed, and are no part of the library.

    References
    ----------
    F. Maxwell Harper and Joseph A. Konstan. The MovieLens Datasets: History and Context. ACM
    Transactions on Interactive Intelligent Systems 5(4), 2015.

    Examples
    --------
    >>> from heterofactor.datasets import load_movielens_100k
    >>> movies = load_movielens_100k("ml-100k")  # doctest: +SKIP
    >>> movies.ratings.head(2)  # doctest: +SKIP
    >>> movies.items.loc[movies.item_flags["Western"], "title"]  # doctest: +SKIP
    """
    place = _folder() if folder is None else Path(folder)
    missing = [name for name in FILES[:3] if not (place / name).is_file()]
    if missing and folder is None:
        members = [f"ml-100k/{name}" for name in FILES]
        download(URL, SHA256, members, place, TERMS)
    elif missing:
        raise FileNotFoundError(
            f"The folder {place} has no {', '.join(missing)}: give the folder of the unpacked "
            f"archive ({URL}), or none to have it downloaded."
        )
    return MovieLens(
        ratings=_ratings(place / "u.data"),
        item_flags=_flags(place / "u.item"),
        items=_items(place / "u.item"),
        users=_users(place / "u.user"),
        licence=TERMS,
        citation=(
            "F. Maxwell Harper and Joseph A. Konstan (2015). The MovieLens Datasets: History and "
            "Context. ACM Transactions on Interactive Intelligent Systems 5(4), 19. "
            "https://doi.org/10.1145/2827872"
        ),
        url=URL,
    )


def _folder() -> Path:
    """Return where the files are looked for, and kept, unless a folder is given."""
    if given := os.environ.get("HETEROFACTOR_DATA"):
        return Path(given, "ml-100k")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "heterofactor", "ml-100k")


def _ratings(path: Path) -> pd.DataFrame:
    return pd.read_csv(
        path,
        sep="\t",
        names=["user", "item", "rating", "time"],
        dtype={"user": np.int64, "item": np.int64, "rating": np.float64, "time": np.int64},
    )


def _item_table(path: Path) -> pd.DataFrame:
    names = ["item", "title", "released", "video", "link", *GENRES]
    return pd.read_csv(path, sep="|", names=names, index_col="item", encoding="latin-1", quoting=3)


def _flags(path: Path) -> pd.DataFrame:
    return _item_table(path)[list(GENRES)].astype(bool).rename_axis(columns="genre")


def _items(path: Path) -> pd.DataFrame:
    table = _item_table(path)
    year = table["released"].str[-4:].astype(float)
    return pd.DataFrame({"title": table["title"], "year": year})


def _users(path: Path) -> pd.DataFrame:
    names = ["user", "age", "gender", "occupation", "zip"]
    return pd.read_csv(path, sep="|", names=names, index_col="user", dtype={"zip": str})
