r"""Alternating least squares with offsets inside: HMF on one sparse source for each group.

.. math:: \min \sum w (m_{rc} - z_{rc})^2 + \lambda_a |a|^2 + \lambda_b |b|^2
    + \lambda_g (|P|^2 + |Q|^2) + \lambda_l (\textstyle\sum_g |P_g|^2 + |W|^2), \quad
    z_{rc} = \mu + a_r + b_c + p_r^\top q_c + p_{r g(c)}^\top w_c

Each half is exact, and offsets are solved for with the factors: a row's offset is a shared factor
whose score is one for every column, and a column's is a score on a basis of ones. Rows of all bases
together are arrows, as in `heterofactor.solvers.alternating`. Few sweeps from small random
factors predict best, and the mean of several such fits predicts better than any one of them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse

from heterofactor.entries import Entries
from heterofactor.ratings.groups import places_in_groups
from heterofactor.ratings.offsets import expected_offsets
from heterofactor.ratings.reading import Array, Codes, Ratings
from heterofactor.ratings.tastes import Ridge, Tastes

# The size of the random factors to begin with, in units of ratings.
SPREAD = 0.1
# Under squared loss weights and targets are those of the data.
AS_GIVEN = (None, None)


def fit_tastes(
    ratings: Ratings,
    group: Codes,
    *,
    n_shared: int,
    n_unique: int,
    ridge: Ridge,
    features: tuple[Array | None, Array | None] = (None, None),
    n_rounds: int,
    n_fits: int,
    seed: int,
) -> Tastes:
    """Fit offsets and factors, several times.

    Parameters
    ----------
    ratings : Ratings
        Whose users are the rows, and items the columns.
    group : array of int
        Of each column.
    n_shared, n_unique : int
        Ranks.
    ridge : Ridge
        Of offsets and factors.
    features : (array, array)
        Of rows and of columns, from which offsets are expected.
    n_rounds : int
        Sweeps of each fit.
    n_fits : int
        How many fits are averaged.
    seed : int
        Where they begin.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.datasets import make_ratings
    >>> from heterofactor.ratings.als import fit_tastes
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> from heterofactor.ratings.tastes import Ridge
    >>> made = make_ratings(40, 30, n_ratings=600, n_groups=2, random_state=0)
    >>> ratings = read_ratings(made.ratings, Columns())
    >>> group = np.arange(30) % 2
    >>> tastes = fit_tastes(ratings, group, n_shared=2, n_unique=1, ridge=Ridge(2, 2, 5, 5),
    ...                     n_rounds=5, n_fits=3, seed=0)
    >>> tastes.rows.shape, tastes.own_rows.shape
    ((3, 40, 2), (3, 2, 40, 1))
    """
    expected = expected_offsets(ratings, (ridge.row, ridge.column), features)
    values = ratings.values - expected.at(ratings.user, ratings.item)
    place = places_in_groups(group)
    source = _sources(ratings, values, group, place)
    fits = []
    for stream in np.random.default_rng(seed).spawn(n_fits):
        columns = SPREAD * stream.standard_normal((len(group), n_shared))
        own_columns = SPREAD * stream.standard_normal((len(group), n_unique))
        nothing = np.zeros(len(group))
        H = _by_group(np.column_stack([nothing, columns, own_columns]), group, place, source)
        basis: Array = np.zeros((source.shape[1], 1 + n_shared))
        for _ in range(n_rounds):
            basis, own = _best_rows(source, H, ridge, basis.shape[1])
            H = _best_columns(source, basis, own, ridge)
        fits.append((basis, own, H[group, place]))
    rows, own_rows, by_column = (np.stack(parts) for parts in zip(*fits, strict=True))
    # copied, for sums over a view of a larger array may be rounded otherwise than those of a copy
    tastes = Tastes(
        mean=np.full(n_fits, expected.mean),
        row_offsets=rows[..., 0] + expected.user,
        column_offsets=by_column[..., 0] + expected.item,
        rows=rows[..., 1:].copy(),
        columns=by_column[..., 1 : 1 + n_shared].copy(),
        own_rows=own_rows,
        own_columns=by_column[..., 1 + n_shared :].copy(),
        group=group,
    )
    return in_gauge(tastes)


def _best_rows(source: Entries, H: Array, ridge: Ridge, r1: int) -> tuple[Array, Array]:
    """Return the offset and the shared factors of every row, and its own ones in every group."""
    offset = H[..., :1].mT
    scores = np.concatenate([np.ones_like(H[..., :1]), H[..., 1:]], axis=-1)
    on_own = ridge.unique * np.eye(H.shape[-1] - r1)
    before = np.zeros((source.shape[1], r1))
    schur, rest, _ = source.arrow(AS_GIVEN, before, scores, offset, on_own)
    on_shared = np.diag([ridge.row] + [ridge.shared] * (r1 - 1))
    basis = np.linalg.solve(schur + on_shared, rest[..., None])[..., 0]
    return basis, source.own(AS_GIVEN, basis, scores, offset, on_own)


def _best_columns(source: Entries, basis: Array, own: Array, ridge: Ridge) -> Array:
    """Return the offset and the factors of every column."""
    count, n1, r2 = own.shape
    shared = np.broadcast_to(basis, (count, *basis.shape))
    frame = np.concatenate([np.ones((count, n1, 1)), shared[..., 1:], own], axis=-1)
    sizes = [1, basis.shape[1] - 1, r2]
    precision = np.diag(np.repeat([ridge.column, ridge.shared, ridge.unique], sizes))
    found: Array = source.scores(AS_GIVEN, frame, shared[..., :1], precision)
    return found


def in_gauge(tastes: Tastes) -> Tastes:
    """Return the same predictions with unique tastes at right angles to the shared ones.

    What the tastes for a group have in common with the shared ones is shared.

    Parameters
    ----------
    tastes : Tastes
        Any.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.als import in_gauge
    >>> from heterofactor.ratings.tastes import Tastes
    >>> rng = np.random.default_rng(0)
    >>> shapes = [(1,), (1, 9), (1, 4), (1, 9, 2), (1, 4, 2), (1, 2, 9, 1), (1, 4, 1)]
    >>> before = Tastes(*(rng.normal(size=shape) for shape in shapes), np.array([0, 0, 1, 1]))
    >>> after, pairs = in_gauge(before), np.indices((9, 4)).reshape(2, -1)
    >>> bool(np.allclose(after.at(*pairs), before.at(*pairs)))
    True
    >>> bool(np.allclose(after.own_rows[0].mT @ after.rows[0], 0))
    True
    """
    shared = np.linalg.pinv(tastes.rows)[:, None] @ tastes.own_rows
    moved = tastes.own_columns[:, :, None] @ shared[:, tastes.group].mT
    return replace(
        tastes,
        columns=tastes.columns + moved[:, :, 0],
        own_rows=tastes.own_rows - tastes.rows[:, None] @ shared,
    )


def centred(tastes: Tastes) -> Tastes:
    """Return the same predictions, in gauge, with offsets and tastes that are zero on average.

    Whoever is not known has neither, and is so expected to be like the average one.

    Parameters
    ----------
    tastes : Tastes
        Any.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.als import centred
    >>> from heterofactor.ratings.tastes import Tastes
    >>> rng = np.random.default_rng(0)
    >>> shapes = [(1,), (1, 9), (1, 4), (1, 9, 2), (1, 4, 2), (1, 2, 9, 1), (1, 4, 1)]
    >>> before = Tastes(*(rng.normal(size=shape) for shape in shapes), np.array([0, 0, 1, 1]))
    >>> after, pairs = centred(before), np.indices((9, 4)).reshape(2, -1)
    >>> bool(np.allclose(after.at(*pairs), before.at(*pairs)))
    True
    >>> bool(np.allclose(after.rows.mean(axis=1), 0))
    True
    """
    middle, own = tastes.rows.mean(axis=1), tastes.own_rows.mean(axis=2)
    by_column = tastes.column_offsets + np.einsum("snk,sk->sn", tastes.columns, middle)
    by_column += np.einsum("snk,snk->sn", tastes.own_columns, own[:, tastes.group])
    tastes = in_gauge(
        replace(
            tastes,
            rows=tastes.rows - middle[:, None],
            own_rows=tastes.own_rows - own[:, :, None],
        )
    )
    middle = tastes.columns.mean(axis=1)
    by_row = tastes.row_offsets + np.einsum("snk,sk->sn", tastes.rows, middle)
    means = by_row.mean(axis=1), by_column.mean(axis=1)
    return replace(
        tastes,
        mean=tastes.mean + means[0] + means[1],
        row_offsets=by_row - means[0][:, None],
        column_offsets=by_column - means[1][:, None],
        columns=tastes.columns - middle[:, None],
    )


def _sources(ratings: Ratings, values: Array, group: Codes, place: Codes) -> Entries:
    """Return one sparse matrix for each group, rows across."""
    n_rows, widths = len(ratings.users), np.bincount(group)
    of_each, n2 = group[ratings.item], int(widths.max())
    at = of_each * n_rows + ratings.user, of_each * n2 + place[ratings.item]
    blocks = scipy.sparse.csr_array(
        (np.arange(len(values)), at), (len(widths) * n_rows, len(widths) * n2)
    )
    blocks.sort_indices()
    order = blocks.data
    weights = ratings.weights[order] if ratings.weighted else None
    return Entries(blocks.indptr, blocks.indices, values[order], tuple(widths.tolist()), weights)


def _by_group(columns: Array, group: Codes, place: Codes, source: Entries) -> Array:
    count, _, n2 = source.shape
    found = np.zeros((count, n2, columns.shape[1]))
    found[group, place] = columns
    return found
