"""What the experiments on MovieLens 100K have in common: splits, folds, errors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from heterofactor.datasets import MovieLens

N_TEST = 10_000
# Of what is not a test part, for choosing settings.
N_HELD = 9_000


def split(movies: MovieLens, number: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the training and the test part of a split."""
    order = np.random.RandomState(number).permutation(len(movies.ratings))
    return movies.ratings.iloc[order[N_TEST:]], movies.ratings.iloc[order[:N_TEST]]


def inner_folds(movies: MovieLens, count: int) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield folds of the training part of split 0 alone; its test part is never seen."""
    train, _ = split(movies, 0)
    order = np.random.RandomState(1000).permutation(len(train))
    for k in range(count):
        held = np.zeros(len(train), dtype=bool)
        held[order[k * N_HELD : (k + 1) * N_HELD]] = True
        yield train[~held], train[held]


def side_information(movies: MovieLens) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return features of users, and of movies: genres and the decade."""
    users = movies.users[["age", "gender", "occupation"]].assign(
        age_squared=movies.users["age"] ** 2
    )
    decade = (movies.items["year"] // 10 * 10).clip(lower=1930).astype("Int64").astype(str)
    items = pd.concat([movies.item_flags.astype(float), decade.rename("decade")], axis=1)
    return users, items


def rmse(predicted: np.ndarray, ratings: pd.DataFrame) -> float:
    error = predicted - ratings["rating"].to_numpy()
    return float(np.sqrt(np.mean(error**2)))
