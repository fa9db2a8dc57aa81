r"""Bayesian HMF: draws from the posterior of offsets and tastes, shared and unique.

.. math:: m_{rc} \sim N(\mu + a_r + b_c + p_r^\top q_c + p_{r g(c)}^\top w_c, \ \sigma_{rc}^2)

A row's :math:`(a_r, p_r)`, a column's :math:`(b_c, q_c)`, and a group's :math:`p_{rg}` and
:math:`w_c` have Normal-Wishart priors; the means of the first two follow features, and who has
rated what. Each block is drawn by perturbing and solving: ratings get fresh noise, the vector is
drawn from its prior, and the least-squares fit of the one, from the other, is a draw from the
posterior (Papandreou and Yuille, 2010). So the loops are those of alternating least squares.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from heterofactor.kernels import Lines, predict, solve
from heterofactor.ratings.als import centred
from heterofactor.ratings.groups import places_in_groups
from heterofactor.ratings.normals import Likeness, draw_around, draw_population, likeness
from heterofactor.ratings.reading import Array, Codes, Ratings
from heterofactor.ratings.tastes import Tastes

State = dict[str, Any]
Alike = tuple[Likeness | None, Likeness | None]
# The size of the random factors to begin with, in units of ratings.
SPREAD = 0.1
# One sweep of so many is forgotten, and so many are kept at most.
FORGOTTEN = 10
# Rows, and columns, are alike in noise as if each had so many ratings more of the noise of all.
ALIKE = 30.0
DRAWS = 100
# Ridges of the weights of standardised features, and of who rated what.
ON_FEATURES = 20.0
ON_SEEN = 2.0
# Who is like whom is one dense matrix: of so many rows it is 800 MB.
MOST_ALIKE = 10_000


def draw_tastes(
    ratings: Ratings,
    group: Codes,
    *,
    n_shared: int,
    n_unique: int,
    features: tuple[Array | None, Array | None] = (None, None),
    implicit: bool,
    n_rounds: int,
    seed: int,
    watch: Callable[[int], object] | None = None,
) -> Tastes:
    """Draw tastes from their posterior.

    An interrupt (Ctrl-C) ends it with the draws so far, and a warning.

    Parameters
    ----------
    ratings : Ratings
        Whose users are the rows, and items the columns.
    group : array of int
        Of each column.
    n_shared, n_unique : int
        Ranks.
    features : (array, array)
        Standardised, of rows and of columns.
    implicit : bool
        Let tastes follow who has rated what as well.
    n_rounds : int
        Sweeps. A tenth is forgotten; of the others up to a hundred are kept, evenly spaced.
    seed : int
        Of the draws.
    watch : callable, optional
        Called with the number of each sweep that is done.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.datasets import make_ratings
    >>> from heterofactor.ratings.gibbs import draw_tastes
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> made = make_ratings(40, 30, n_ratings=600, n_groups=2, random_state=0)
    >>> tastes = draw_tastes(read_ratings(made.ratings, Columns()), np.arange(30) % 2, n_shared=2,
    ...                      n_unique=1, implicit=True, n_rounds=20, seed=0)
    >>> tastes.rows.shape, tastes.noise.shape
    ((18, 40, 2), (18, 40))
    """
    rng = np.random.default_rng(seed)
    seen = _seen(ratings) if implicit else (None, None)
    like = _like(features[0], seen[0]), _like(features[1], seen[1])
    layout = _Layout.of(ratings, group)
    state = _begin(layout, n_shared, n_unique, rng)
    forgotten = n_rounds // FORGOTTEN
    n_draws = min(DRAWS, n_rounds - forgotten)
    kept = np.linspace(forgotten, n_rounds - 1, n_draws).round().astype(int)
    draws: list[State] = []
    try:
        for number in range(n_rounds):
            state = _sweep(state, layout, like, rng)
            if number in kept:
                draws.append(state)
            if watch is not None:
                watch(number + 1)
    except KeyboardInterrupt:
        if not draws:
            raise
        warnings.warn(
            f"Interrupted after {number} of {n_rounds} rounds: the {len(draws)} draws so far "
            "stand. Predictions and intervals of few draws are less exact.",
            ConvergenceWarning,
            stacklevel=4,
        )
    parts = {name: np.stack([draw[name] for draw in draws]) for name in state}
    row, column = parts["row"], parts["column"]
    return centred(
        Tastes(
            mean=np.full(len(draws), layout.mean),
            row_offsets=row[..., 0],
            column_offsets=column[..., 0],
            rows=row[..., 1:],
            columns=column[..., 1:],
            group=group,
            noise=parts["noise"][:, None] / np.sqrt(parts["row_weights"]),
            column_noise=parts["column_weights"] ** -0.5,
            own_rows=parts["own_rows"],
            own_columns=parts["own_columns"],
        )
    )


@dataclass(frozen=True, eq=False)
class _Layout:
    """The ratings less their mean, in the orders in which lines are drawn.

    Lines are rows; columns, with groups filled up to the largest; and cells of group and row.
    """

    mean: float
    values: Array
    weights: Array
    spread: Array  # of each rating's noise, of that of one of weight one
    by_row: Lines
    by_column: Lines
    by_cell: Lines
    group: Codes
    row: Codes  # of each rating
    place: Codes  # of each column, among the lines of columns
    shape: tuple[int, int, int]  # groups, rows, columns

    def weighted(self, by_row: Array, by_column: Array) -> _Layout:
        """Return the same with ratings that count by their row and their column as well."""
        weights = self.weights * by_row[self.row] * by_column[self.by_row.other]
        return replace(
            self,
            spread=1 / np.sqrt(weights),
            by_row=replace(self.by_row, weights=weights),
            by_column=replace(self.by_column, weights=weights),
            by_cell=replace(self.by_cell, weights=weights),
        )

    @classmethod
    def of(cls, ratings: Ratings, group: Codes) -> _Layout:
        n_rows, n_groups = len(ratings.users), int(group.max()) + 1
        within = places_in_groups(group)
        widest = int(within.max()) + 1
        place = group * widest + within
        cell = group[ratings.item] * n_rows + ratings.user
        mean = float(np.average(ratings.values, weights=ratings.weights))
        weights = ratings.weights if ratings.weighted else ratings.weights[:0]
        return cls(
            mean,
            ratings.values - mean,
            ratings.weights,
            1 / np.sqrt(ratings.weights),
            lines_of(ratings.user, ratings.item, weights, n_rows),
            lines_of(place[ratings.item], cell, weights, n_groups * widest),
            lines_of(cell, ratings.item, weights, n_groups * n_rows),
            group,
            ratings.user,
            place,
            (n_groups, n_rows, len(ratings.items)),
        )


def lines_of(line: Codes, other: Codes, weights: Array, count: int) -> Lines:
    """Return entries line by line; their targets come with each draw.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.gibbs import lines_of
    >>> lines = lines_of(np.array([1, 0, 1]), np.array([5, 6, 7]), np.zeros(0), 2)
    >>> lines.indptr.tolist(), lines.other.tolist(), lines.place.tolist()
    ([0, 1, 3], [6, 5, 7], [1, 0, 2])
    """
    order = np.argsort(line, kind="stable")
    indptr = np.searchsorted(line[order], np.arange(count + 1))
    none = np.zeros(0)
    return Lines(indptr, other[order], order, weights, none, none, none)


def _begin(layout: _Layout, r1: int, r2: int, rng: np.random.Generator) -> State:
    """Begin at small random tastes and no offsets."""
    n_groups, n_rows, n_columns = layout.shape
    sizes = {
        "row": (n_rows, 1 + r1),
        "column": (n_columns, 1 + r1),
        "own_rows": (n_groups, n_rows, r2),
        "own_columns": (n_columns, r2),
    }
    begin = {name: SPREAD * rng.standard_normal(size) for name, size in sizes.items()}
    weights = {"row_weights": np.ones(n_rows), "column_weights": np.ones(n_columns)}
    return begin | weights | {"noise": np.std(layout.values)}


def _sweep(state: State, layout: _Layout, like: Alike, rng: np.random.Generator) -> State:
    """Draw everything once, each block given the rest."""
    layout = layout.weighted(state["row_weights"], state["column_weights"])
    state = state | _draw_columns(state, layout, like[1], rng)
    own = _own_part(state, layout)
    state = state | {"row": _draw_rows(state, layout, like[0], own, rng)}
    rest = _shared_part(state, layout)
    if state["own_columns"].shape[1]:
        state = state | {"own_rows": _draw_own_rows(state, layout, rest, rng)}
    left = layout.values - rest - _own_part(state, layout)
    return state | _draw_noise(left, state, layout, rng)


def _draw_noise(left: Array, state: State, layout: _Layout, rng: np.random.Generator) -> State:
    """Draw the noise of all ratings, and how much those of each row and of each column count."""
    # errors in units of the noise that they should have: squares of one, on average
    squares = (left / layout.spread) ** 2
    noise = np.sqrt((1 + np.sum(squares)) / rng.chisquare(1 + len(left)))
    drawn = {"noise": noise}
    squares = squares / noise**2
    for name, at in (("row_weights", layout.row), ("column_weights", layout.by_row.other)):
        before = state[name]
        sums = np.bincount(at, squares, len(before)) / before
        number = np.bincount(at, minlength=len(before))
        drawn[name] = rng.chisquare(ALIKE + number) / (ALIKE + sums)
        squares = squares * (drawn[name] / before)[at]
    return drawn


def _draw_columns(
    state: State, layout: _Layout, like: Likeness | None, rng: np.random.Generator
) -> State:
    """Draw offsets, shared and unique factors of the columns, together."""
    n_groups, n_rows, _ = layout.shape
    r1, r2 = state["row"].shape[1], state["own_columns"].shape[1]
    means, precision = draw_population(state["column"], like, rng)
    prior = np.zeros((len(layout.by_column.indptr) - 1, r1 + r2))
    prior[layout.place, :r1] = draw_around(means, precision, rng)
    precisions = np.zeros((n_groups, r1 + r2, r1 + r2))
    precisions[:, :r1, :r1] = precision
    if r2:
        for g in range(n_groups):
            at = layout.group == g
            means, precision = draw_population(state["own_columns"][at], None, rng)
            prior[layout.place[at], r1:] = draw_around(means, precision, rng)
            precisions[g, r1:, r1:] = precision
    row = np.broadcast_to(state["row"], (n_groups, n_rows, r1))
    frame = np.concatenate([np.ones((n_groups, n_rows, 1)), row[..., 1:], state["own_rows"]], -1)
    lines = replace(layout.by_column, shift_other=np.tile(state["row"][:, 0], n_groups))
    frame = frame.reshape(n_groups * n_rows, r1 + r2)
    noise = layout.spread, float(state["noise"])
    drawn = perturb_and_solve(lines, frame, prior, precisions, layout.values, *noise, rng)
    drawn = drawn[layout.place]
    return {"column": drawn[:, :r1], "own_columns": drawn[:, r1:]}


def _draw_rows(
    state: State, layout: _Layout, like: Likeness | None, own: Array, rng: np.random.Generator
) -> Array:
    """Draw offsets and shared factors of the rows."""
    means, precision = draw_population(state["row"], like, rng)
    prior = draw_around(means, precision, rng)
    frame = state["column"].copy()
    frame[:, 0] = 1
    lines = replace(layout.by_row, shift_other=np.ascontiguousarray(state["column"][:, 0]))
    left, noise = layout.values - own, (layout.spread, float(state["noise"]))
    return perturb_and_solve(lines, frame, prior, precision[None], left, *noise, rng)


def _draw_own_rows(state: State, layout: _Layout, rest: Array, rng: np.random.Generator) -> Array:
    """Draw what is unique to each group of every row."""
    drawn = [draw_population(own, None, rng) for own in state["own_rows"]]
    prior = np.concatenate([draw_around(*population, rng) for population in drawn])
    precisions = np.stack([precision for _, precision in drawn])
    frame = np.ascontiguousarray(state["own_columns"])
    left, noise = layout.values - rest, (layout.spread, float(state["noise"]))
    found = perturb_and_solve(layout.by_cell, frame, prior, precisions, left, *noise, rng)
    return found.reshape(state["own_rows"].shape)


def perturb_and_solve(
    lines: Lines,
    frame: Array,
    prior: Array,
    precisions: Array,
    targets: Array,
    spread: Array,
    noise: float,
    rng: np.random.Generator,
) -> Array:
    """Draw the weights on a frame of every line from their posterior.

    Parameters
    ----------
    lines : Lines
        Without targets.
    frame : array of shape (places across, r)
        What is weighted.
    prior : array of shape (lines, r)
        A draw from the prior of each line.
    precisions : array of shape (count, r, r)
        Of the prior, for each stretch of lines.
    targets, spread : arrays
        What is fitted, and the standard deviation of each, relative to that of weight one.
    noise : float
        The standard deviation of a target of weight one.
    rng : numpy Generator
        Of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.gibbs import lines_of, perturb_and_solve
    >>> at, rng = np.zeros(10_000, dtype=int), np.random.default_rng(0)
    >>> lines = lines_of(at, at, np.zeros(0), 1)
    >>> perturb_and_solve(lines, np.eye(1), np.zeros((1, 1)), np.eye(1)[None], np.full(10_000, 3.0),
    ...                   np.ones(10_000), 1.0, rng).round(1).tolist()
    [[3.0]]
    """
    perturbed = targets + noise * spread * rng.standard_normal(len(targets))
    lines = replace(lines, targets=perturbed)
    drawn: Array = prior + solve(lines, frame, noise**2 * precisions, fixed=(prior, frame))
    return drawn


def _shared_part(state: State, layout: _Layout) -> Array:
    """Return offsets and shared taste at every rating."""
    offsets = {
        "shift_line": np.ascontiguousarray(state["row"][:, 0]),
        "shift_other": np.ascontiguousarray(state["column"][:, 0]),
    }
    rows, columns = (np.ascontiguousarray(state[name][:, 1:]) for name in ("row", "column"))
    return _in_order(layout.by_row, predict(replace(layout.by_row, **offsets), rows, columns))


def _own_part(state: State, layout: _Layout) -> Array:
    """Return the unique taste at every rating."""
    n_groups, n_rows, r2 = state["own_rows"].shape
    own = state["own_rows"].reshape(n_groups * n_rows, r2)
    columns = np.ascontiguousarray(state["own_columns"])
    return _in_order(layout.by_cell, predict(layout.by_cell, own, columns))


def _in_order(lines: Lines, entries: Array) -> Array:
    found = np.empty_like(entries)
    found[lines.place] = entries
    return found


def _like(features: Array | None, seen: Any) -> Likeness | None:
    """Return who is like whom by features and by who rated what."""
    parts = []
    if features is not None:
        parts.append(scipy.sparse.csr_array(features / np.sqrt(ON_FEATURES)))
    if seen is not None:
        parts.append(seen)
    return likeness(scipy.sparse.hstack(parts, format="csr")) if parts else None


def _seen(ratings: Ratings) -> tuple[Any, Any]:
    """Return for rows and for columns who rated what, as flags of one length, and how much."""
    shape = (len(ratings.users), len(ratings.items))
    if max(shape) > MOST_ALIKE:
        raise ValueError(
            f"implicit=True compares all {max(shape):,} users or items with each other, which is "
            f"for up to {MOST_ALIKE:,}: set implicit=False."
        )
    flags = scipy.sparse.csr_array(
        (np.ones(len(ratings.user)), (ratings.user, ratings.item)), shape
    )

    def scaled(table: Any) -> Any:
        number = np.maximum(np.asarray(table.sum(axis=1)), 1)
        of_one_length = scipy.sparse.diags_array(1 / np.sqrt(ON_SEEN * number)) @ table
        busy = np.log(number)
        busy = (busy - busy.mean()) / max(busy.std(), 1e-9)
        powers = np.stack([busy, busy**2 - 1], axis=1) / np.sqrt(ON_FEATURES)
        return scipy.sparse.hstack([of_one_length, scipy.sparse.csr_array(powers)], format="csr")

    return scaled(flags), scaled(flags.T.tocsr())
