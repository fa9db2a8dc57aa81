"""Parts of MovieLens 100K that experiments fit and test, by name.

``split3`` is a random split, ``u2`` a published fold, ``inner1`` a fold of the training ratings of
split 0; ``split3+held`` holds out a tenth of the training ratings of a part again, for weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from movielens import inner_folds, split

from heterofactor.datasets import MovieLens

Part = tuple[pd.DataFrame, pd.DataFrame]
HELD = "+held"
# Of the training ratings, for weights, and where their random order begins.
SHARE, SEED = 0.1, 5000


def part(movies: MovieLens, name: str, folder: str | Path | None = None) -> Part:
    """Return the training and the test ratings of a part."""
    if name.endswith(HELD):
        train, _ = part(movies, name.removesuffix(HELD), folder)
        order = np.random.RandomState(SEED + number_of(name)).permutation(len(train))
        cut = round(SHARE * len(train))
        return train.iloc[np.sort(order[cut:])], train.iloc[np.sort(order[:cut])]
    if name.startswith("split"):
        return split(movies, number_of(name))
    if name.startswith("inner"):
        return list(inner_folds(movies, number_of(name) + 1))[-1]
    return published(movies, number_of(name), folder)


def number_of(name: str) -> int:
    """Return the number in the name of a part, which is also the seed of its fits."""
    return int("".join(filter(str.isdigit, name)))


def published(movies: MovieLens, number: int, folder: str | Path | None) -> Part:
    """Return a published fold, from its test file: the rest of all ratings is for training."""
    if folder is None:
        raise ValueError("The published folds are files of MovieLens: give their --folder.")
    path = Path(folder) / f"u{number}.test"
    test = pd.read_csv(path, sep="\t", names=["user", "item", "rating", "time"])
    pairs = pd.MultiIndex.from_frame(movies.ratings[["user", "item"]])
    tested = pairs.isin(pd.MultiIndex.from_frame(test[["user", "item"]]))
    return movies.ratings[~tested], movies.ratings[tested]


def parts(kind: str, count: int) -> Iterator[str]:
    """Name the first parts of a kind."""
    first = 1 if kind == "u" else 0
    return (f"{kind}{number}" for number in range(first, first + count))
