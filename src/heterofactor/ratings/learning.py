"""Rows and columns that come later are learned from their ratings; what is known stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heterofactor.ratings.reading import Array, Codes, Ratings
from heterofactor.ratings.tastes import Ridge, Tastes, padded


def learn_rows(tastes: Tastes, ratings: Ratings, ridge: Ridge, around: Codes) -> Tastes:
    """Learn the rows of ratings from the columns that they rated; new rows come last.

    Parameters
    ----------
    tastes : Tastes
        What is known.
    ratings : Ratings
        Users are rows, items are columns.
    ridge : Ridge
        How much is believed of few ratings.
    around : array of int
        Rows of which something is expected already, from which their ratings may take them;
        others are expected to be zero.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from heterofactor.ratings.learning import learn_rows
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> from heterofactor.ratings.tastes import Ridge, Tastes
    >>> none = np.zeros((1, 1, 0))
    >>> tastes = Tastes(np.array([3.0]), np.zeros((1, 0)), np.zeros((1, 1)), none[:, :0], none,
    ...                 none[:, None, :0], none, np.array([0]))
    >>> table = pd.DataFrame({"user": ["ann"], "item": ["tea"], "rating": [5.0]})
    >>> ratings = read_ratings(table, Columns())
    >>> learn_rows(tastes, ratings, Ridge(1, 1, 1, 1), np.array([])).row_offsets.tolist()
    [[1.0]]
    """
    more = len(ratings.users) - tastes.rows.shape[1]
    new = replace(
        tastes,
        row_offsets=np.pad(tastes.row_offsets, ((0, 0), (0, more))),
        rows=np.pad(tastes.rows, ((0, 0), (0, more), (0, 0))),
        own_rows=np.pad(tastes.own_rows, ((0, 0), (0, 0), (0, more), (0, 0))),
        noise=padded(tastes.noise, more),
    )
    n_groups, r1, r2 = tastes.own_rows.shape[1], tastes.rows.shape[2], tastes.own_rows.shape[3]
    penalty = np.repeat([ridge.row, ridge.shared, ridge.unique], [1, r1, n_groups * r2])
    for s in range(len(tastes.mean)):
        for r in np.unique(ratings.user):
            seen = ratings.part(ratings.user == r)
            number, group = len(seen.values), tastes.group[seen.item]
            own = np.zeros((number, n_groups, r2))
            own[np.arange(number), group] = tastes.own_columns[s][seen.item]
            shared = tastes.columns[s][seen.item]
            design = np.hstack([np.ones((number, 1)), shared, own.reshape(number, -1)])
            left = seen.values - tastes.mean[s] - tastes.column_offsets[s][seen.item]
            before = [new.row_offsets[s, r, None], new.rows[s, r], new.own_rows[s, :, r].ravel()]
            expected = np.concatenate(before) * np.isin(r, around)
            found, _ = _ridge_fit(design, left, seen.weights, penalty, expected)
            new.row_offsets[s, r] = found[0]
            new.rows[s, r] = found[1 : 1 + r1]
            new.own_rows[s, :, r] = found[1 + r1 :].reshape(n_groups, r2)
    return new


def learn_columns(tastes: Tastes, ratings: Ratings, ridge: Ridge, around: Codes) -> Tastes:
    """Learn the columns of ratings from the rows that rated them; new columns come last.

    The group of a column that is in none is the one in which its ratings fit best.

    Parameters
    ----------
    tastes, ratings, ridge, around
        As for `learn_rows`; `around` are columns.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from heterofactor.ratings.learning import learn_columns
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> from heterofactor.ratings.tastes import Ridge, Tastes
    >>> none = np.zeros((1, 1, 0))
    >>> tastes = Tastes(np.array([3.0]), np.zeros((1, 1)), np.zeros((1, 0)), none, none[:, :0],
    ...                 none[:, None], none[:, :0], np.zeros(0, dtype=int))
    >>> table = pd.DataFrame({"user": ["ann"], "item": ["tea"], "rating": [5.0]})
    >>> ratings = read_ratings(table, Columns())
    >>> learn_columns(tastes, ratings, Ridge(1, 1, 1, 1), np.array([])).column_offsets.tolist()
    [[1.0]]
    """
    more = len(ratings.items) - len(tastes.group)
    new = replace(
        tastes,
        column_offsets=np.pad(tastes.column_offsets, ((0, 0), (0, more))),
        columns=np.pad(tastes.columns, ((0, 0), (0, more), (0, 0))),
        own_columns=np.pad(tastes.own_columns, ((0, 0), (0, more), (0, 0))),
        group=np.pad(tastes.group, (0, more), constant_values=-1),
        column_noise=padded(tastes.column_noise, more),
    )
    n_groups, r1, r2 = tastes.own_rows.shape[1], tastes.rows.shape[2], tastes.own_rows.shape[3]
    penalty = np.repeat([ridge.column, ridge.shared, ridge.unique], [1, r1, r2])
    for c in np.unique(ratings.item):
        seen = ratings.part(ratings.item == c)
        ones = np.ones((len(seen.values), 1))
        candidates = []
        for g in range(n_groups) if new.group[c] < 0 else [new.group[c]]:
            fits = []
            for s in range(len(tastes.mean)):
                own = tastes.own_rows[s][g, seen.user]
                design = np.hstack([ones, tastes.rows[s][seen.user], own])
                left = seen.values - tastes.mean[s] - tastes.row_offsets[s][seen.user]
                before = [new.column_offsets[s, c, None], new.columns[s, c], new.own_columns[s, c]]
                expected = np.concatenate(before) * np.isin(c, around)
                fits.append(_ridge_fit(design, left, seen.weights, penalty, expected))
            candidates.append((sum(cost for _, cost in fits), g, fits))
        _, new.group[c], fits = min(candidates, key=lambda candidate: candidate[:2])
        for s, (found, _) in enumerate(fits):
            new.column_offsets[s, c] = found[0]
            new.columns[s, c] = found[1 : 1 + r1]
            new.own_columns[s, c] = found[1 + r1 :]
    return new


def _ridge_fit(
    design: Array, values: Array, weights: Array, penalty: Array, expected: Array
) -> tuple[Array, float]:
    """Return the solution of a ridge regression around what is expected, and its objective."""
    left = values - design @ expected
    right = design.T @ (weights * left)
    found = np.linalg.solve((design.T * weights) @ design + np.diag(penalty), right)
    return expected + found, float(weights @ left**2 - found @ right)
