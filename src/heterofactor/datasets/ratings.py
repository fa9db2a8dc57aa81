r"""Ratings with a known truth: offsets, a taste for all items, a taste for each group of items.

.. math:: m_{ui} = \mu + a_u + b_i + p_u^\top q_i + p_{u g(i)}^\top w_i + \text{noise}

Users' shared tastes are orthogonal to their unique ones, and no taste moves an offset, so that a
fit can be held against each part on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils import check_random_state

Array = npt.NDArray[np.floating[Any]]
Codes = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class MadeRatings:
    """Ratings made by :func:`make_ratings`, and the truth they were made from.

    Attributes
    ----------
    ratings : DataFrame
        One row a rating: `user`, `item`, `rating` and `time`, at random.
    item_groups : Series
        The group of each item.
    mean : float
        What the average item is rated by the average user.
    user_offsets, item_offsets : Series
        How far users and items are from it.
    shared_parts, unique_parts : DataFrame
        Users in rows, items in columns: what the shared taste, and the taste for the item's group,
        add to every rating.
    user_features, item_features : DataFrame
        What can be seen of users and of items: numbers in which offsets and shared tastes are
        mixed, with as much noise as signal.

    Examples
    --------
    >>> from heterofactor.datasets import make_ratings
    >>> made = make_ratings(30, 40, n_ratings=500, n_groups=3, random_state=0)
    >>> made.ratings.shape, made.shared_parts.shape
    ((500, 4), (30, 40))
    """

    ratings: pd.DataFrame
    item_groups: pd.Series[Any]
    mean: float
    user_offsets: pd.Series[Any]
    item_offsets: pd.Series[Any]
    shared_parts: pd.DataFrame
    unique_parts: pd.DataFrame
    user_features: pd.DataFrame
    item_features: pd.DataFrame


def make_ratings(
    n_users: int = 943,
    n_items: int = 1682,
    *,
    n_ratings: int = 100_000,
    n_groups: int = 5,
    n_shared: int = 3,
    n_unique: int = 2,
    shared_strength: float = 0.6,
    unique_strength: float = 0.6,
    noise: float = 0.5,
    step: float | None = 1.0,
    random_state: Any = None,
) -> MadeRatings:
    """Make ratings whose offsets, shared tastes and unique tastes are known.

    Few users and few items have most of the ratings, as on a website; the groups of items are of
    unequal size. The default counts are those of MovieLens 100K.

    Parameters
    ----------
    n_users, n_items : int
        How many there are.
    n_ratings : int
        How many of their pairs are rated.
    n_groups : int
        Groups of items.
    n_shared, n_unique : int
        Dimensions of the shared taste, and of the taste for each group.
    shared_strength, unique_strength : float
        Standard deviations of what they add to a rating.
    noise : float
        Standard deviation of what nothing explains.
    step : float, optional
        Ratings are rounded to multiples of it, and cut off at 1 and 5; None for neither.
    random_state : int, RandomState or None
        Same seed, same ratings.

    Returns
    -------
    MadeRatings
        The ratings and the truth.

    Examples
    --------
    >>> from heterofactor.datasets import make_ratings
    >>> make_ratings(30, 40, n_ratings=500, n_groups=3, random_state=0).ratings["rating"].nunique()
    5
    """
    least = n_shared + n_unique + 2  # room for an average and the tastes beside it
    for name, value in (("n_users", n_users), ("n_items", n_items)):
        if value < least:
            raise ValueError(
                f"{name} is {value}: expected at least {least}, for n_shared={n_shared} and "
                f"n_unique={n_unique} tastes that are at right angles to each other."
            )
    if not 0 < n_ratings <= n_users * n_items:
        raise ValueError(
            f"n_ratings is {n_ratings}: expected 1 to {n_users * n_items}, the number of pairs of "
            f"{n_users} users and {n_items} items."
        )
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    sizes = 0.8 ** np.arange(n_groups)
    group = rng.choice(n_groups, n_items, p=sizes / sizes.sum())
    shared_users = _at_right_angles(rng.standard_normal((n_users, n_shared)), np.ones((n_users, 1)))
    shared_items = rng.standard_normal((n_items, n_shared))
    shared_items -= shared_items.mean(axis=0)
    unique = np.zeros((n_users, n_items))
    fixed = np.column_stack([np.ones(n_users), shared_users])
    for g in range(n_groups):
        at = np.flatnonzero(group == g)
        own_users = _at_right_angles(rng.standard_normal((n_users, n_unique)), fixed)
        own_items = rng.standard_normal((len(at), n_unique))
        unique[:, at] = own_users @ (own_items - own_items.sum(axis=0) / max(len(at), 1)).T
    shared_part = _scaled(shared_users @ shared_items.T, shared_strength)
    unique_part = _scaled(unique, unique_strength)
    by_user, by_item = 0.45 * rng.standard_normal(n_users), 0.5 * rng.standard_normal(n_items)
    mean = 3.3
    users, items = _pairs(n_ratings, n_users, n_items, rng)
    values = mean + by_user[users] + by_item[items] + shared_part[users, items]
    values = values + unique_part[users, items] + noise * rng.standard_normal(n_ratings)
    if step is not None:
        values = np.clip(np.round(values / step) * step, 1.0, 5.0)
    user_names = pd.Index([f"user{k}" for k in range(n_users)], name="user")
    item_names = pd.Index([f"item{k}" for k in range(n_items)], name="item")
    groups = pd.Series([f"group{g}" for g in group], index=item_names, name="group")
    return MadeRatings(
        ratings=pd.DataFrame(
            {
                "user": user_names[users],
                "item": item_names[items],
                "rating": values,
                "time": rng.integers(0, 10**8, n_ratings),
            }
        ),
        item_groups=groups,
        mean=mean,
        user_offsets=pd.Series(by_user, index=user_names),
        item_offsets=pd.Series(by_item, index=item_names),
        shared_parts=pd.DataFrame(shared_part, index=user_names, columns=item_names),
        unique_parts=pd.DataFrame(unique_part, index=user_names, columns=item_names),
        user_features=_seen(user_names, np.column_stack([by_user, shared_users]), rng),
        item_features=_seen(item_names, np.column_stack([by_item, shared_items]), rng),
    )


def _seen(ids: pd.Index[Any], truth: Array, rng: np.random.Generator) -> pd.DataFrame:
    """Turn offsets and tastes, and add noise."""
    unit = (truth - truth.mean(axis=0)) / truth.std(axis=0)
    turn, _ = np.linalg.qr(rng.standard_normal((truth.shape[1], truth.shape[1])))
    values = unit @ turn + rng.standard_normal(truth.shape)
    return pd.DataFrame(values, index=ids, columns=[f"feature{k}" for k in range(len(turn))])


def _at_right_angles(columns: Array, to: Array) -> Array:
    """Remove from columns what lies in the span of others."""
    frame, _ = np.linalg.qr(to)
    left: Array = columns - frame @ (frame.T @ columns)
    return left


def _scaled(part: Array, strength: float) -> Array:
    size = float(np.sqrt(np.mean(part**2)))
    return part * (strength / size) if size > 0 else part


def _pairs(
    n_ratings: int, n_users: int, n_items: int, rng: np.random.Generator
) -> tuple[Codes, Codes]:
    """Draw who rates what: log-normally busy users, log-normally popular items, no pair twice."""
    # by the largest of log-weight + Gumbel noise: as one by one, without those drawn before
    busy, popular = rng.normal(0, 0.6, n_users), rng.normal(0, 0.8, n_items)
    keys = busy[:, None] + popular + rng.gumbel(size=(n_users, n_items))
    chosen = np.argpartition(keys.ravel(), -n_ratings)[-n_ratings:]
    users, items = np.divmod(rng.permutation(chosen), n_items)
    return users, items
