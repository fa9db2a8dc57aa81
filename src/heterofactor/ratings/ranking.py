r"""How well a model of ratings ranks items that a user has not rated yet.

.. math:: \mathrm{NDCG@}n = \frac{\sum_{k \le n} \mathrm{rel}_k / \log_2(k + 1)}
    {\sum_{k \le \min(n, R)} 1 / \log_2(k + 1)}, \qquad
    \mathrm{recall@}n = \frac{1}{R} \sum_{k \le n} \mathrm{rel}_k

with :math:`\mathrm{rel}_k` one where the item in place k is one of the user's R relevant ones.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.reading import Array, Codes, Ratings, read_ratings

# Users that are ranked at once, so that the tables of all users are never there together.
CHUNK = 256


def ranking_quality(
    model: RatingFace, held: pd.DataFrame, n: int = 10, threshold: float = 4.0
) -> pd.Series[float]:
    """Return how many of the items that users liked are among the first that would be recommended.

    Every known item that a user has not rated in training is ranked by what is expected of it.
    Those are relevant that the held-out ratings give at least `threshold`; all others count as if
    they were not, also those that the user would have liked but never rated, so that even a good
    model scores low.

    Parameters
    ----------
    model : RatingFace
        A fitted model of ratings.
    held : DataFrame
        Ratings that it was not fitted to, with the columns of its fit. A relevant item that is
        not known to the model, or was rated in training, counts as missed.
    n : int
        How many items would be recommended.
    threshold : float
        The least rating of a relevant item.

    Returns
    -------
    Series
        `ndcg` and `recall`, means over users with a relevant item, and the number of these `users`.

    References
    ----------
    Kalervo Järvelin, Jaana Kekäläinen. Cumulated gain-based evaluation of IR techniques. ACM
    Transactions on Information Systems 20(4), 2002.

    Examples
    --------
    >>> from heterofactor import RatingModel
    >>> from heterofactor.datasets import make_ratings
    >>> from heterofactor.ratings.ranking import ranking_quality
    >>> ratings = make_ratings(100, 80, n_ratings=3000, n_groups=3, random_state=0).ratings
    >>> model = RatingModel(random_state=0).fit(ratings[:2700])
    >>> ranking_quality(model, ratings[2700:]).index.tolist()
    ['ndcg', 'recall', 'users']
    """
    check_is_fitted(model)
    if n < 1:
        raise ValueError(f"n is {n!r}: expected how many items are recommended, at least one.")
    found = read_ratings(held, model._columns())
    liked = found.part(found.values >= threshold)
    if not len(liked.values):
        raise ValueError(
            f"No held-out rating is {threshold:g} or more (the greatest is "
            f"{found.values.max():g}): nothing is relevant. Lower the threshold."
        )
    user = model.users_.get_indexer(liked.users)
    item = model.items_.get_indexer(liked.items)
    who = np.unique(liked.user)
    gains = [
        _gains(model, user[some], _relevant(liked, some, item, len(model.items_)), n)
        for some in np.split(who, range(CHUNK, len(who), CHUNK))
    ]
    gain = np.concatenate(gains)
    relevant = np.bincount(liked.user)[who]
    discount = 1 / np.log2(np.arange(2, n + 2))
    ideal = np.cumsum(discount)[np.minimum(relevant, n) - 1]
    return pd.Series(
        {
            "ndcg": np.mean(gain @ discount[: gain.shape[1]] / ideal),
            "recall": np.mean(gain.sum(axis=1) / relevant),
            "users": float(len(who)),
        }
    )


def _relevant(liked: Ratings, users: Codes, item: Codes, n_items: int) -> Array:
    """Return ones for the known items that users liked, users in rows."""
    row = pd.Index(users).get_indexer(pd.Index(liked.user))
    known = (row >= 0) & (item[liked.item] >= 0)
    table = np.zeros((len(users), n_items))
    table[row[known], item[liked.item[known]]] = 1
    return table


def _gains(model: RatingFace, user: Codes, relevant: Array, n: int) -> Array:
    """Return ones where the first items of each user's ranking are relevant."""
    # not the predictions: many of these are equal, at the end of the scale
    expected = np.array(model._expected_table(user), dtype=float)
    places = pd.Index(user)
    seen = model._known.part(np.isin(model._known.user, user[user >= 0]))
    # users who are not known are all at -1, and have seen nothing
    expected[places.get_indexer_for(pd.Index(seen.user)), seen.item] = -np.inf
    best = np.argsort(-expected, axis=1, kind="stable")[:, :n]
    rated = np.isneginf(np.take_along_axis(expected, best, axis=1))
    return np.where(rated, 0.0, np.take_along_axis(relevant, best, axis=1))
