r"""GHRS: what a group of users thinks of an item, the groups found by a graph and side information.

Users who rate alike are linked. How central each is in that graph, beside what is known of them,
goes through an auto-encoder; its scores are clustered. For a user of group g and an item i,

.. math:: \hat m_{ui} = \bar m_{gi}, \text{ else } \bar m_{gS(i)}, \text{ else } \bar m_g

the mean of the group's ratings of the item, else of similar items, else of all items.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.utils import check_random_state
from torch import nn

from heterofactor.networks import Layer, Layers
from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.features import feature_table
from heterofactor.ratings.groups import STARTS, aligned
from heterofactor.ratings.reading import Array, Codes, Ratings
from heterofactor.ratings.usergraph import CENTRALITIES, centralities, link_users

# Numbers of groups that are tried, unless one is given.
TRIED = range(2, 13)
# A feature that is a number becomes so many flags.
CLASSES = 6


class GHRS(RatingFace):
    """The mean rating of an item by a group of alike users.

    Two users are linked if they gave the same rating to enough items. PageRank, degree, closeness,
    betweenness, load and the neighbours' mean degree in this graph, each over its maximum, beside a
    flag for each category of what is known of users, are encoded by a small auto-encoder (squared
    loss, elastic net on its weights, Adam). The groups are k-means clusters of the scores.

    There is no offset of a user in this method: all users of a group are expected to like an item
    equally well. It is here for comparison; `RatingModel` predicts far better.

    Parameters
    ----------
    n_clusters : "auto" or int
        Clusters of users; "auto" takes the number of the best average silhouette, 2 to 12.
    share : float
        Two users are linked if they gave the same rating to at least this share of all items.
    n_scores : int
        Scores of a user in the auto-encoder.
    n_similar : int
        How many of the most similar items stand in for one that a group never rated.
    n_hidden : int
        Units of the hidden layer on either side of the scores.
    penalty : float
        Of the elastic net, on absolute values and on squares of weights alike.
    learning_rate : float
        Of Adam.
    max_rounds : int
        Steps, each on all users.
    user, item, rating : str
        Names of the columns.
    random_state : int, RandomState or None
        Same seed, same answer.

    Attributes
    ----------
    users_, items_ : Index
        Who and what was seen.
    scale_ : (float, float)
        The lowest and the highest rating seen.
    graph_features_ : DataFrame
        How central each user is, each measure over its maximum; zeros for users without links.
    user_scores_ : DataFrame
        What the auto-encoder makes of each user.
    user_groups_ : Series
        The group of each user, counted from 0.
    group_ratings_ : DataFrame
        What each group (row) is expected to give to each item.

    Notes
    -----
    The features, the squared loss with an elastic net, Adam, k-means by elbow and silhouette, and
    the rule for unrated items are published. The sizes of the network, the strength of its penalty,
    what makes items similar, and the rule that turns elbow (8 clusters on MovieLens 100K) and
    silhouette (7) into one number are not, as far as we found: here, five layers with linear
    scores, the cosine of the columns of ratings (0 where there is none), and the silhouette alone.
    The authors cut the age by decades; here, numbers are cut into six classes of about as many
    users, so give categories to have others. Their program, of which only the features are public,
    links every user to itself as well; we do not.

    Memory grows with the squares of the numbers of users and of items.

    References
    ----------
    Zahra Zamanzadeh Darban, Mohammad Hadi Valipour. GHRS: Graph-based hybrid recommendation system
    with application to movie recommendation. Expert Systems with Applications 2022.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.ghrs import GHRS
    >>> ratings = pd.DataFrame({
    ...     "user": ["ann", "ann", "bob", "bob", "cat", "cat", "dan"],
    ...     "item": ["tea", "ale", "tea", "ale", "tea", "ale", "tea"],
    ...     "rating": [5, 1, 5, 2, 2, 4, 1],
    ... })
    >>> jobs = ["cook", "cook", "nurse", "nurse"]
    >>> jobs = pd.DataFrame({"job": jobs}, index=["ann", "bob", "cat", "dan"])
    >>> model = GHRS(2, random_state=0).fit(ratings, user_features=jobs)
    >>> model.predict(pd.DataFrame({"user": ["bob", "dan"], "item": ["tea", "ale"]})).tolist()
    [5.0, 4.0]
    """

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        share: float = 0.01,
        n_scores: int = 4,
        n_similar: int = 10,
        n_hidden: int = 32,
        penalty: float = 1e-5,
        learning_rate: float = 0.01,
        max_rounds: int = 300,
        user: str = "user",
        item: str = "item",
        rating: str = "rating",
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.share = share
        self.n_scores = n_scores
        self.n_similar = n_similar
        self.n_hidden = n_hidden
        self.penalty = penalty
        self.learning_rate = learning_rate
        self.max_rounds = max_rounds
        self.user = user
        self.item = item
        self.rating = rating
        self.random_state = random_state

    def fit(self, ratings: pd.DataFrame, user_features: pd.DataFrame | None = None) -> Self:
        """Find groups of users, and what each thinks of each item.

        Parameters
        ----------
        ratings : DataFrame
            One rating in each row: user, item, rating.
        user_features : DataFrame, optional
            What is known of users, indexed by user: categories, flags or numbers.

        Returns
        -------
        self
        """
        self._check()
        known = self._read(ratings)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        central = centralities(link_users(known, self.share * len(known.items)))
        central /= np.maximum(central.max(axis=0), np.finfo(float).tiny)
        self.graph_features_ = pd.DataFrame(central, known.users, CENTRALITIES)
        features = np.hstack([central, _flags(user_features, known.users)])
        scores = self._encoded(features, seed)
        groups = _clusters(scores, self.n_clusters, seed)
        self.user_scores_ = pd.DataFrame(scores, known.users)
        self.user_groups_ = pd.Series(groups, known.users, name="group")
        self.group_ratings_ = pd.DataFrame(
            group_means(known, groups, self.n_similar), columns=known.items
        )
        return self

    def _check(self) -> None:
        least = {"n_scores": 1, "n_similar": 0, "n_hidden": 1, "max_rounds": 1}
        if self.n_clusters != "auto":
            least["n_clusters"] = 1
        for name, bound in least.items():
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < bound:
                other = ' or "auto"' if name == "n_clusters" else ""
                raise ValueError(
                    f"{name} is {value!r}: expected an integer of at least {bound}{other}."
                )
        if not 0 <= self.share <= 1:
            raise ValueError(
                f"share is {self.share!r}: expected a share of all items, from 0 to 1."
            )
        if not 0 <= self.penalty < np.inf:
            raise ValueError(f"penalty is {self.penalty!r}: expected a number from 0 on.")
        if not 0 < self.learning_rate < np.inf:
            raise ValueError(
                f"learning_rate is {self.learning_rate!r}: expected a positive number."
            )

    def _encoded(self, features: Array, seed: int) -> Array:
        """Return the scores of users in an auto-encoder of their features."""
        chance = torch.Generator().manual_seed(seed)
        n_users, n_features = features.shape
        sizes = (n_features, self.n_hidden, self.n_scores, self.n_hidden, n_features)
        activations = ("relu", "linear", "relu", "sigmoid")
        encoder, decoder = (
            Layers([Layer(sizes[k], sizes[k + 1], chance, activation=activations[k]) for k in half])
            for half in ((0, 1), (2, 3))
        )
        network = nn.Sequential(encoder, decoder)
        weights = [p for name, p in network.named_parameters() if name.endswith("weight")]
        seen = torch.from_numpy(features.astype(np.float32))
        optimiser = torch.optim.Adam(network.parameters(), self.learning_rate)
        for _ in range(self.max_rounds):
            optimiser.zero_grad()
            error = decoder(encoder(seen, [n_users]), [n_users]) - seen
            net = sum((w.abs() + w**2).sum() for w in weights)
            ((error**2).mean() + self.penalty * net).backward()
            optimiser.step()
        with torch.no_grad():
            scores: Array = encoder(seen, [n_users]).numpy()
        return scores

    def _expected(self, user: Codes, item: Codes) -> Array:
        group = self.user_groups_.to_numpy()[user]
        return self._stand_in(self.group_ratings_.to_numpy()[group, item], user, item)


def group_means(ratings: Ratings, group: Codes, n_similar: int) -> Array:
    """Return what each group of users is expected to give to each item.

    Parameters
    ----------
    ratings : Ratings
        What was given.
    group : array of int
        The group of each user.
    n_similar : int
        How many of the most similar items stand in for one that the group never rated.

    Returns
    -------
    array
        Groups in rows: the mean of the group's ratings of the item, or of similar items, or of all.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from heterofactor.ratings.ghrs import group_means
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> table = pd.DataFrame({"user": list("aabc"), "item": list("xyxy"), "rating": [1, 5, 3, 4]})
    >>> group_means(read_ratings(table, Columns()), np.array([0, 0, 1]), n_similar=1).tolist()
    [[2.0, 5.0], [4.0, 4.0]]
    """
    shape = (int(group.max()) + 1, len(ratings.items))
    at = group[ratings.user], ratings.item
    number = np.zeros(shape)
    total = np.zeros(shape)
    np.add.at(number, at, 1.0)
    np.add.at(total, at, ratings.values)
    similar = _similar(ratings, n_similar)
    of_all = total.sum(axis=1, keepdims=True) / np.maximum(number.sum(axis=1, keepdims=True), 1)
    of_similar = _ratio(total @ similar.T, number @ similar.T, of_all)
    return _ratio(total, number, of_similar)


def _similar(ratings: Ratings, count: int) -> Any:
    """Return a sparse matrix with a one for each item (row) and each of the most similar ones."""
    shape = (len(ratings.users), len(ratings.items))
    table: Any = scipy.sparse.csc_array((ratings.values, (ratings.user, ratings.item)), shape)
    length = np.sqrt((table**2).sum(axis=0))
    cosine = (table.T @ table).toarray() / np.outer(length, length).clip(np.finfo(float).tiny)
    np.fill_diagonal(cosine, 0)
    best = np.argsort(-cosine, axis=1, kind="stable")[:, :count]
    alike = np.take_along_axis(cosine, best, axis=1) > 0
    rows = np.repeat(np.arange(len(cosine)), alike.sum(axis=1))
    return scipy.sparse.csr_array((np.ones(len(rows)), (rows, best[alike])), cosine.shape)


def _ratio(total: Array, number: Array, otherwise: Array) -> Array:
    return np.where(number > 0, total / np.maximum(number, 1), otherwise)


def _flags(given: Any, users: pd.Index[Any]) -> Array:
    """Return a flag for each category of each feature; a number counts by its class."""
    if given is None:
        return np.zeros((len(users), 0))
    table = aligned(feature_table(given, "user"), users, "user", "user_features")
    classes = {
        name: pd.qcut(column, CLASSES, duplicates="drop")
        if pd.api.types.is_numeric_dtype(column) and column.nunique() > CLASSES
        else column.astype("category")
        for name, column in table.items()
    }
    return pd.get_dummies(pd.DataFrame(classes), dtype=float).to_numpy()


def _clusters(scores: Array, n_clusters: int | str, seed: int) -> Codes:
    most = len(np.unique(scores, axis=0))
    if n_clusters != "auto":
        return _k_means(scores, min(int(n_clusters), most), seed)
    # a silhouette needs two clusters, and one of more than one user
    tried = [_k_means(scores, k, seed) for k in TRIED if k <= min(most, len(scores) - 1)]
    if not tried:
        return np.zeros(len(scores), dtype=np.intp)
    return max(tried, key=lambda found: float(silhouette_score(scores, found)))


def _k_means(scores: Array, count: int, seed: int) -> Codes:
    found: Codes = KMeans(count, n_init=STARTS, random_state=seed).fit(scores).labels_
    return found
