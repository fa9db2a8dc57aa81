r"""What a fit has learned of users and items, and what follows from it for their pairs.

Rows are what all groups share (users, where the items are in groups), columns are what is in
groups. A pair is expected at :math:`\mu + a_r + b_c + p_r^\top q_c + p_{r g(c)}^\top w_c`: offsets,
shared taste, and the taste that is unique to the group of the column. Several fits (or draws of
one) are held side by side, first axis, and averaged where a number is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from heterofactor.ratings.reading import Array, Codes
from heterofactor.ratings.told import HALF, Told, tell, with_one

Flags = npt.NDArray[np.bool]

# Pairs that are worked on at once, so that no product outgrows the cache by far.
CHUNK = 20_000
# Squares of tastes that are smaller than this share of the noise are rounding.
ALONE = 1e-9
# What all fits have in common, or what is not needed to predict.
SHARED = ("group", "noise", "column_noise", "told")


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
        The group of each column; -1 where it is not known, and nothing is unique.
    noise : array of shape (S, rows), optional
        The standard deviation of each row's ratings around what is expected, where it is known.
    column_noise : array of shape (S, columns), optional
        What it is multiplied by for each column.
    told : (Told, Told), optional
        What features tell of rows, and of columns.

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
    told: tuple[Told, Told] | None = None

    def parts(self, row: Codes, column: Codes) -> dict[str, Array]:
        """Return the terms of each pair; a row or column of -1 is one of which nothing is known."""
        known = (row >= 0) & (column >= 0)
        shared, own = np.zeros((2, len(row)))
        # piece by piece, each for all fits, so that the pairs stay in the cache
        for first in range(0, len(row), CHUNK):
            at = slice(first, first + CHUNK)
            r, c, g = row[at], column[at], self.group[column[at]]
            for s in range(len(self.mean)):
                shared[at] += np.einsum("nk,nk->n", self.rows[s][r], self.columns[s][c])
                own[at] += np.einsum("nk,nk->n", self.own_rows[s][g, r], self.own_columns[s][c])
        return {
            "mean": np.full(len(row), self.mean.mean()),
            "row": np.where(row >= 0, self.row_offsets.mean(axis=0)[row], 0),
            "column": np.where(column >= 0, self.column_offsets.mean(axis=0)[column], 0),
            "shared": np.where(known, shared, 0) / len(self.mean),
            "unique": np.where(known, own, 0) / len(self.mean),
        }

    def at(self, row: Codes, column: Codes) -> Array:
        """Return what is expected of each pair."""
        total: Array = np.sum(list(self.parts(row, column).values()), axis=0)
        return total

    def table(self, row: Codes) -> Array:
        """Return what is expected of some rows, -1 among them, and every column."""
        known = (row >= 0)[:, None]
        # columns of one group side by side, so that each group is one product
        order = np.argsort(self.group, kind="stable")
        own_columns = self.own_columns[:, order]
        ends = np.searchsorted(self.group[order], np.arange(self.own_rows.shape[1] + 1))
        total, own = np.zeros((2, len(row), len(order)))
        for s in range(len(self.mean)):
            total += known * (self.rows[s][row] @ self.columns[s].T)
            total += known * self.row_offsets[s][row, None] + self.column_offsets[s]
            for g, at in enumerate(map(slice, ends[:-1], ends[1:])):
                own[:, at] += self.own_rows[s, g][row] @ own_columns[s, at].T
        total[:, order] += known * own
        found: Array = self.mean.mean() + total / len(self.mean)
        return found

    def columns_table(self, column: Codes) -> Array:
        """Return what is expected of every row and some columns, -1 among them."""
        known, group = column >= 0, self.group[column]
        total = np.zeros((self.rows.shape[1], len(column)))
        for s in range(len(self.mean)):
            total += known * (self.rows[s] @ self.columns[s][column].T)
            total += self.row_offsets[s][:, None] + known * self.column_offsets[s][column]
            own = self.own_columns[s][column]
            for g in np.unique(group):
                at = group == g
                total[:, at] += known[at] * (self.own_rows[s, g] @ own[at].T)
        found: Array = self.mean.mean() + total / len(self.mean)
        return found

    def spread(self, row: Codes, column: Codes, unsure: tuple[Flags, Flags]) -> Array:
        """Return the standard deviation of a rating of each pair, over draws and noise.

        Parameters
        ----------
        row, column : array of int
            The pairs.
        unsure : (array of bool, array of bool)
            Whether nobody has rated with the row, and the column, of each. They could be anyone
            of whom features say the same.
        """
        total, squares, other = np.zeros((3, len(row)))
        doubted = np.flatnonzero(unsure[0] | unsure[1])
        # piece by piece, for each pair takes a matrix
        pieces = [doubted[k : k + CHUNK] for k in range(0, len(doubted), CHUNK)]
        for s in range(len(self.mean)):
            one = self.draw(s).at(row, column)
            total, squares = total + one, squares + one**2
            if self.noise is not None and self.column_noise is not None:
                by_row, by_column = self.noise[s] ** 2, self.column_noise[s] ** 2
                other += np.where(row < 0, by_row.mean(), by_row[row]) * np.where(
                    column < 0, by_column.mean(), by_column[column]
                )
            for at in pieces:
                other[at] += self._doubt(s, row[at], column[at], (unsure[0][at], unsure[1][at]))
        number = len(self.mean)
        variance: Array = np.maximum(squares / number - (total / number) ** 2, 0) + other / number
        return np.sqrt(variance)

    def _doubt(self, s: int, row: Codes, column: Codes, unsure: tuple[Flags, Flags]) -> Array:
        """Return the variance of what features do not tell of those that nobody has rated."""
        if self.told is None:
            return np.zeros(len(row))
        of_rows, of_columns = self.told
        group = np.where(column < 0, -1, self.group[column])
        seen = (row >= 0)[:, None], (column >= 0)[:, None], (group >= 0)[:, None]
        row_vector = with_one(self.rows[s][row] * seen[0])
        column_vector = with_one(self.columns[s][column] * seen[1])
        own_row = self.own_rows[s][group, row] * (seen[0] & seen[2])
        own_column = self.own_columns[s][column] * (seen[1] & seen[2])
        # features tell nothing of an id of -1
        unheard = (row < 0).astype(int), (column < 0).astype(int)
        C, D = of_rows.doubt[s][unheard[0]], of_columns.doubt[s][unheard[1]]
        # of no group: as in any of them
        own_C = _with_mean(of_rows.own_doubt[s])[group, unheard[0]]
        own_D = _with_mean(of_columns.own_doubt[s])[group, unheard[1]]
        by_row = _form(column_vector, C) + _form(own_column, own_C)
        by_column = _form(row_vector, D) + _form(own_row, own_D)
        lost = np.flatnonzero((group < 0) & (row >= 0))
        tastes = self.own_rows[s][:, row[lost]]
        every = of_columns.own_doubt[s][:, 1]
        by_column[lost] += np.einsum("gnk,gkl,gnl->n", tastes, every, tastes) / len(every)
        both = _form_of_both(C[:, 1:, 1:], D[:, 1:, 1:]) + _form_of_both(own_C, own_D)
        found: Array = unsure[0] * by_row + unsure[1] * by_column + unsure[0] * unsure[1] * both
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
        parts = (self.row_offsets, self.column_offsets, shared, own)
        squares = [float(np.mean(part**2)) if part.size else 0.0 for part in parts]
        # of one alone, which is its own average, nobody knows how far others are
        return Ridge(*(noise / size if size > ALONE * noise else 1.0 for size in squares))

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

    def learned(
        self,
        features: tuple[Array | None, Array | None],
        number: tuple[Codes, Codes],
        half: float = HALF,
    ) -> tuple[Told, Told]:
        """Return what features of rows and of columns tell, by their numbers of ratings."""
        n_groups, n_rows = self.own_rows.shape[1:3]
        rows = np.concatenate([self.row_offsets[..., None], self.rows], axis=2)
        columns = np.concatenate([self.column_offsets[..., None], self.columns], axis=2)
        every = np.ones((n_groups, n_rows), dtype=bool)
        member = self.group == np.arange(n_groups)[:, None]
        own = self.own_columns[:, None]
        return (
            tell(rows, self.own_rows, features[0], number[0], every, half),
            tell(columns, own, features[1], number[1], member, half),
        )

    def with_told_rows(self, told: Told, features: Array) -> Tastes:
        """Return these and more rows, of which only features are known."""
        vectors = told.expected(features)
        return replace(
            self,
            row_offsets=np.hstack([self.row_offsets, vectors[..., 0]]),
            rows=np.concatenate([self.rows, vectors[..., 1:]], axis=1),
            own_rows=np.concatenate([self.own_rows, told.own_expected(features)], axis=2),
            noise=padded(self.noise, len(features)),
        )

    def with_told_columns(self, told: Told, features: Array, group: Codes) -> Tastes:
        """Return these and more columns, of which only features and perhaps groups are known."""
        vectors = told.expected(features)
        own = told.own_expected(features)[:, group, np.arange(len(group))]
        return replace(
            self,
            column_offsets=np.hstack([self.column_offsets, vectors[..., 0]]),
            columns=np.concatenate([self.columns, vectors[..., 1:]], axis=1),
            own_columns=np.concatenate([self.own_columns, own * (group >= 0)[:, None]], axis=1),
            group=np.append(self.group, group),
            column_noise=padded(self.column_noise, len(features)),
        )


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


def _cosines(dots: Array, sizes: Array, place: int) -> Array:
    # rounding takes squares of next to nothing below zero, and their cosines beyond one
    length = np.sqrt(np.maximum(sizes, 0) * max(sizes[place], 0.0))
    found = np.where(length > 0, dots / np.where(length > 0, length, 1), 0.0)
    return np.clip(found, -1.0, 1.0)


def padded(noise: Array | None, more: int) -> Array | None:
    """Expect of new ones the noise of those that are known.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.tastes import padded
    >>> padded(np.array([[1.0, 2.0]]), 1).tolist()
    [[1.0, 2.0, 1.5]]
    """
    return None if noise is None else np.pad(noise, ((0, 0), (0, more)), "mean")


def _form(vectors: Array, matrices: Array) -> Array:
    found: Array = np.einsum("nk,nkl,nl->n", vectors, matrices, vectors)
    return found


def _form_of_both(one: Array, other: Array) -> Array:
    found: Array = np.einsum("nkl,nkl->n", one, other)
    return found


def _with_mean(stack: Array) -> Array:
    """Return matrices, and last their mean, which is what -1 points at."""
    return np.concatenate([stack, stack.mean(axis=0, keepdims=True)])
