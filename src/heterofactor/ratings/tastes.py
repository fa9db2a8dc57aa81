r"""What a fit has learned of users and items, and what follows from it for their pairs.

Rows are what all groups share (users, where the items are in groups), columns are what is in
groups. A pair is expected at :math:`\mu + a_r + b_c + p_r^\top q_c + p_{r g(c)}^\top w_c`: offsets,
shared taste, and the taste that is unique to the group of the column. Several fits (or draws of
one) are held side by side, first axis, and averaged where a number is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from heterofactor.ratings.reading import Array, Codes, Ratings

# Pairs that are worked on at once, so that no product outgrows the cache by far.
CHUNK = 20_000
# What all fits have in common, or what is not needed to predict.
SHARED = ("group", "noise", "column_noise")


@dataclass(frozen=True, eq=False)
class Tastes:
    """Offsets and factors, S of each.

    Attributes
    ----------
    mean : array of shape (S,)
        What is expected of whom nothing is known.
    row_offsets, column_offsets : array of shape (S, rows) and (S, columns)
        What is added for a row, and for a column.
    rows, columns : array of shape (S, rows, r1) and (S, columns, r1)
        Shared factors.
    own_rows : array of shape (S, groups, rows, r2)
        What is unique to each group, of every row.
    own_columns : array of shape (S, columns, r2)
        The same, of each column in its own group.
    group : array of int
        The group of each column.
    noise : array of shape (S, rows), optional
        The standard deviation of each row's ratings around what is expected, where it is known.
    column_noise : array of shape (S, columns), optional
        What it is multiplied by for each column.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.tastes import Tastes
    >>> one = np.ones((1, 1, 1))
    >>> tastes = Tastes(np.array([3.0]), np.array([[0.5]]), np.array([[0.0]]), one, 0.25 * one,
    ...                 one[None], -0.5 * one, np.array([0]))
    >>> {name: part.tolist() for name, part in tastes.parts(np.array([0]), np.array([0])).items()}
    {'mean': [3.0], 'row': [0.5], 'column': [0.0], 'shared': [0.25], 'unique': [-0.5]}
    """

    mean: Array
    row_offsets: Array
    column_offsets: Array
    rows: Array
    columns: Array
    own_rows: Array
    own_columns: Array
    group: Codes
    noise: Array | None = None
    column_noise: Array | None = None

    def parts(self, row: Codes, column: Codes) -> dict[str, Array]:
        """Return the terms of each pair; a row or column of -1 is one of which nothing is known."""
        group = self.group[column]
        known = (row >= 0) & (column >= 0)
        names = ("mean", "row", "column", "shared", "unique")
        found = {name: np.zeros(len(row)) for name in names}
        for s in range(len(self.mean)):
            found["mean"] += self.mean[s]
            found["row"] += np.where(row >= 0, self.row_offsets[s][row], 0)
            found["column"] += np.where(column >= 0, self.column_offsets[s][column], 0)
            for first in range(0, len(row), CHUNK):
                at = slice(first, first + CHUNK)
                r, c, g = row[at], column[at], group[at]
                shared = np.einsum("nk,nk->n", self.rows[s][r], self.columns[s][c])
                own = np.einsum("nk,nk->n", self.own_rows[s][g, r], self.own_columns[s][c])
                found["shared"][at] += np.where(known[at], shared, 0)
                found["unique"][at] += np.where(known[at], own, 0)
        return {name: part / len(self.mean) for name, part in found.items()}

    def at(self, row: Codes, column: Codes) -> Array:
        """Return what is expected of each pair."""
        total: Array = np.sum(list(self.parts(row, column).values()), axis=0)
        return total

    def spread(self, row: Codes, column: Codes) -> Array:
        """Return the standard deviation of a rating of each pair, over draws and noise.

        Whoever is not known could be anyone: the squares of offsets and of tastes are those of all.
        """
        total, squares, noise = np.zeros((3, len(row)))
        for s in range(len(self.mean)):
            one = self.draw(s).at(row, column)
            total, squares = total + one, squares + one**2
            if self.noise is not None and self.column_noise is not None:
                by_row, by_column = self.noise[s] ** 2, self.column_noise[s] ** 2
                noise += np.where(row < 0, by_row.mean(), by_row[row]) * np.where(
                    column < 0, by_column.mean(), by_column[column]
                )
        number = len(self.mean)
        variance: Array = np.maximum(squares / number - (total / number) ** 2, 0) + noise / number
        unknown = {"row": row < 0, "column": column < 0}
        variance += unknown["row"] * np.mean(self.row_offsets**2)
        variance += unknown["column"] * np.mean(self.column_offsets**2)
        taste = self.rows.shape[2] * _mean_square(self.rows) * _mean_square(self.columns)
        own = self.own_rows.shape[3] * _mean_square(self.own_rows) * _mean_square(self.own_columns)
        found: Array = np.sqrt(variance + (unknown["row"] | unknown["column"]) * (taste + own))
        return found

    def draw(self, s: int) -> Tastes:
        """Return one of the fits or draws."""
        names = [name for name in self.__dataclass_fields__ if name not in SHARED]
        return replace(self, **{name: getattr(self, name)[s : s + 1] for name in names})

    def ridge_of_draws(self, *, rows: bool) -> Ridge:
        """Return the ridge that believes of new rows, or columns, what is true of those known."""
        noise = 0.0 if self.noise is None else float(np.mean(self.noise**2))
        shared, own = self.columns, self.own_columns
        if rows:
            shared, own = self.rows, self.own_rows
        return Ridge(
            row=noise / _mean_square(self.row_offsets),
            column=noise / _mean_square(self.column_offsets),
            shared=noise / _mean_square(shared),
            unique=noise / _mean_square(own),
        )

    def likeness_of_columns(self, column: int) -> Array:
        """Return the cosine of what all rows think of a column with what they think of each."""
        dots, sizes = np.zeros(len(self.group)), np.zeros(len(self.group))
        for s in range(len(self.mean)):
            own = self.own_rows[s]
            taste = self.rows[s] @ self.columns[s][column]
            taste = taste + own[self.group[column]] @ self.own_columns[s][column]
            mine, shared = self.own_columns[s], self.columns[s]
            by_group = np.einsum("gnk,n->gk", own, taste)[self.group]
            dots = dots + shared @ (self.rows[s].T @ taste) + np.sum(by_group * mine, axis=1)
            gram = np.einsum("gna,gnb->gab", own, own)[self.group]
            across = np.einsum("na,gnb->gab", self.rows[s], own)[self.group]
            sizes = (
                sizes
                + np.einsum("na,ab,nb->n", shared, self.rows[s].T @ self.rows[s], shared)
                + 2 * np.einsum("na,nab,nb->n", shared, across, mine)
                + np.einsum("na,nab,nb->n", mine, gram, mine)
            )
        return _cosines(dots, sizes, column)

    def likeness_of_rows(self, row: int) -> Array:
        """Return the cosine of what a row thinks of all columns with what each row does."""
        dots, sizes = np.zeros(self.rows.shape[1]), np.zeros(self.rows.shape[1])
        for s in range(len(self.mean)):
            every = self.rows[s] @ self.columns[s].T
            for g in range(self.own_rows.shape[1]):
                at = np.flatnonzero(self.group == g)
                every[:, at] += self.own_rows[s][g] @ self.own_columns[s][at].T
            dots, sizes = dots + every @ every[row], sizes + np.sum(every**2, axis=1)
        return _cosines(dots, sizes, row)

    def with_rows(self, ratings: Ratings, ridge: Ridge) -> Tastes:
        """Learn the rows of ratings from the columns that they rated; new rows come last.

        Users of the ratings are rows, items are columns.
        """
        more = len(ratings.users) - self.rows.shape[1]
        new = replace(
            self,
            row_offsets=np.pad(self.row_offsets, ((0, 0), (0, more))),
            rows=np.pad(self.rows, ((0, 0), (0, more), (0, 0))),
            own_rows=np.pad(self.own_rows, ((0, 0), (0, 0), (0, more), (0, 0))),
            noise=_padded(self.noise, more),
        )
        n_groups, r1, r2 = self.own_rows.shape[1], self.rows.shape[2], self.own_rows.shape[3]
        penalty = np.repeat([ridge.row, ridge.shared, ridge.unique], [1, r1, n_groups * r2])
        for s in range(len(self.mean)):
            for r in np.unique(ratings.user):
                seen = ratings.part(ratings.user == r)
                number, group = len(seen.values), self.group[seen.item]
                own = np.zeros((number, n_groups, r2))
                own[np.arange(number), group] = self.own_columns[s][seen.item]
                shared = self.columns[s][seen.item]
                design = np.hstack([np.ones((number, 1)), shared, own.reshape(number, -1)])
                left = seen.values - self.mean[s] - self.column_offsets[s][seen.item]
                found, _ = _ridge_fit(design, left, seen.weights, penalty)
                new.row_offsets[s, r] = found[0]
                new.rows[s, r] = found[1 : 1 + r1]
                new.own_rows[s, :, r] = found[1 + r1 :].reshape(n_groups, r2)
        return new

    def with_columns(self, ratings: Ratings, ridge: Ridge) -> Tastes:
        """Learn the columns of ratings from the rows that rated them; new columns come last.

        The group of a new column is the one in which its ratings fit best.
        """
        old = len(self.group)
        more = len(ratings.items) - old
        new = replace(
            self,
            column_offsets=np.pad(self.column_offsets, ((0, 0), (0, more))),
            columns=np.pad(self.columns, ((0, 0), (0, more), (0, 0))),
            own_columns=np.pad(self.own_columns, ((0, 0), (0, more), (0, 0))),
            group=np.pad(self.group, (0, more)),
            column_noise=_padded(self.column_noise, more),
        )
        n_groups, r1, r2 = self.own_rows.shape[1], self.rows.shape[2], self.own_rows.shape[3]
        penalty = np.repeat([ridge.column, ridge.shared, ridge.unique], [1, r1, r2])
        for c in np.unique(ratings.item):
            seen = ratings.part(ratings.item == c)
            ones = np.ones((len(seen.values), 1))
            candidates = []
            for g in range(n_groups) if c >= old else [self.group[c]]:
                fits = []
                for s in range(len(self.mean)):
                    own = self.own_rows[s][g, seen.user]
                    design = np.hstack([ones, self.rows[s][seen.user], own])
                    left = seen.values - self.mean[s] - self.row_offsets[s][seen.user]
                    fits.append(_ridge_fit(design, left, seen.weights, penalty))
                candidates.append((sum(cost for _, cost in fits), g, fits))
            _, new.group[c], fits = min(candidates, key=lambda candidate: candidate[:2])
            for s, (found, _) in enumerate(fits):
                new.column_offsets[s, c] = found[0]
                new.columns[s, c] = found[1 : 1 + r1]
                new.own_columns[s, c] = found[1 + r1 :]
        return new


@dataclass(frozen=True)
class Ridge:
    """Penalties on the squares of offsets and factors.

    Examples
    --------
    >>> from heterofactor.ratings.tastes import Ridge
    >>> Ridge(row=5.0, column=3.0, shared=15.0, unique=20.0).unique
    20.0
    """

    row: float
    column: float
    shared: float
    unique: float


def _ridge_fit(design: Array, values: Array, weights: Array, penalty: Array) -> tuple[Array, float]:
    """Return the solution of a ridge regression, and its objective."""
    right = design.T @ (weights * values)
    found = np.linalg.solve((design.T * weights) @ design + np.diag(penalty), right)
    return found, float(weights @ values**2 - found @ right)


def _cosines(dots: Array, sizes: Array, place: int) -> Array:
    length = np.sqrt(sizes * sizes[place])
    return np.where(length > 0, dots / np.where(length > 0, length, 1), 0.0)


def _padded(noise: Array | None, more: int) -> Array | None:
    """Expect of new ones the noise of those that are known."""
    return None if noise is None else np.pad(noise, ((0, 0), (0, more)), "mean")


def _mean_square(factors: Array) -> float:
    """Return the mean of squares; one where there are no factors."""
    return float(np.mean(factors**2)) if factors.size else 1.0
