"""The heterogeneous auto-encoder on ratings: what all items share, and each group's own."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_random_state

from heterofactor.batches import Pattern
from heterofactor.networks import AutoEncoder, Layer, Layers
from heterofactor.ratings.autoencoders import RatingAutoEncoder, half_is_fast
from heterofactor.ratings.groups import read_groups


class RatingHAE(RatingAutoEncoder):
    """The paper's auto-encoder of ratings: a shared encoder, and one for each group of items.

    An item is the vector of its ratings, 0 where there is none, and beside it the vector that says
    by 1 who has rated it. Its scores are those of the shared encoder, plus those of its group's
    encoder without what lies in the span of the shared one's, as `heterofactor.networks.deflated`
    has it. A linear layer leads from scores to ratings. Layers are those of `SparseFC`.

    On MovieLens-100K single fits predict a little better than those of `SparseFC`, by 0.001 over
    twenty splits, and no better with all films in one group: see
    ``experiments/results/hae_movielens_test.md``.

    Parameters
    ----------
    n_hidden : int
        Units of the hidden layer of the shared encoder, and of all scores.
    n_hidden_unique : int
        Units of the hidden layer of the groups' encoders.
    n_folds : int
        Into how many vectors scores are folded.
    n_groups : int
        How many groups are made of items that come with flags.
    n_kernel : int
        Length of the kernels' vectors.
    ridge : (float, float)
        Penalty on the squares of weights, of what is shared and of the groups' encoders.
    ridge_kernel : float
        Penalty on the squares of the kernels' values.
    dropout : (float, float, float)
        Share of the inputs, of the shared encoder's hidden units, and of the scores that each step
        leaves out.
    learning_rate : float
        The largest one of AdamW; it rises, and falls as a cosine.
    max_rounds : int
        Steps on all ratings. The penalties do not prevent overfitting alone: more is not better.
    user, item, rating : str
        Names of the columns.
    random_state : int, RandomState or None
        Same seed, same answer.

    Attributes
    ----------
    users_, items_ : Index
        Who and what was seen.
    item_groups_ : Series
        The group of every item.
    item_scores_, user_basis_, user_offsets_ : array
        A prediction is the product of the scores of item and user, and the user's offset.
    scale_ : (float, float)
        The lowest and the highest rating seen.
    history_ : DataFrame
        The objective, round by round.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.hae_ratings import RatingHAE
    >>> ratings = pd.DataFrame({
    ...     "user": ["ann", "ann", "bob", "bob"],
    ...     "item": ["tea", "ale", "tea", "ale"],
    ...     "rating": [5, 1, 4, 2],
    ... })
    >>> model = RatingHAE(n_hidden=20, n_folds=2, ridge=(0.01, 0.1), learning_rate=0.05)
    >>> _ = model.set_params(random_state=0).fit(ratings, {"tea": "hot", "ale": "cold"})
    >>> model.predict(ratings).round()
    array([5., 1., 4., 2.], dtype=float32)
    """

    def __init__(
        self,
        *,
        n_hidden: int = 500,
        n_hidden_unique: int = 50,
        n_folds: int = 1,
        n_groups: int = 10,
        n_kernel: int = 5,
        ridge: tuple[float, float] = (25.0, 300.0),
        ridge_kernel: float = 0.006,
        dropout: tuple[float, float, float] = (0.2, 0.2, 0.3),
        learning_rate: float = 0.004,
        max_rounds: int = 80,
        user: str = "user",
        item: str = "item",
        rating: str = "rating",
        random_state: Any = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.n_hidden_unique = n_hidden_unique
        self.n_folds = n_folds
        self.n_groups = n_groups
        self.n_kernel = n_kernel
        self.ridge = ridge
        self.ridge_kernel = ridge_kernel
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.max_rounds = max_rounds
        self.user = user
        self.item = item
        self.rating = rating
        self.random_state = random_state

    def fit(self, ratings: pd.DataFrame, item_groups: Any = None) -> Self:
        """Train on ratings.

        Parameters
        ----------
        ratings : DataFrame
            One rating in each row: user, item, rating.
        item_groups : Series, dict, array or DataFrame, optional
            Labels by item, or a table of flags indexed by item, such as genres, whose rows are
            brought to one length and clustered. Without any, all items are in one group.

        Returns
        -------
        self
        """
        known = self._read(ratings)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        names, group = read_groups(item_groups, known.items, "item", self.n_groups, seed)
        self.item_groups_ = pd.Series(names[group], index=known.items, name="group")
        return self._fit(known, group)

    def _inputs(self, pattern: Pattern, ratings: Any) -> tuple[Any, Pattern]:
        """Return the ratings, and beside them ones where there is a rating."""
        length, width = pattern.shape
        rows = np.tile(pattern.rows.numpy(), 2)
        columns = np.concatenate([pattern.columns.numpy(), pattern.columns.numpy() + width])
        order = np.lexsort((columns, rows))
        values = torch.cat([ratings, torch.ones_like(ratings)])[order]
        return values, Pattern(rows[order], columns[order], (length, 2 * width))

    def _network(self, n_users: int, n_groups: int, generator: Any) -> AutoEncoder:
        if self.n_hidden % self.n_folds or self.n_folds**2 >= self.n_hidden:
            raise ValueError(
                f"n_folds is {self.n_folds}: expected a divisor of n_hidden={self.n_hidden} whose "
                "square is less, or the projection would leave nothing."
            )
        kernel: dict[str, Any] = {"kernel": "compact", "n_kernel": self.n_kernel}
        own: dict[str, Any] = {**kernel, "n_sources": n_groups}
        size, width = self.n_hidden, self.n_hidden_unique
        shared = [
            Layer(2 * n_users, size, generator, activation="sigmoid", **kernel),
            Layer(
                size,
                size,
                generator,
                activation="sigmoid",
                half=half_is_fast(),
                dropout=self.dropout[1],
                **kernel,
            ),
        ]
        unique = [
            Layer(2 * n_users, width, generator, activation="sigmoid", **own),
            Layer(width, size, generator, activation="sigmoid", **own),
        ]
        last = Layer(size, n_users, generator, dropout=self.dropout[2], **kernel)
        return AutoEncoder(
            Layers(shared), Layers(unique), Layers([last]), self.n_folds, self.dropout[0]
        )
