"""The heterogeneous auto-encoder on ratings: what all items share, and each group's own."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from heterofactor.batches import EntryBatch, Pattern
from heterofactor.losses import Squared
from heterofactor.networks import AutoEncoder, Layer, Layers
from heterofactor.ratings.autoencoders import RatingAutoEncoder, half_is_fast
from heterofactor.ratings.groups import read_groups
from heterofactor.ratings.offsets import Offsets, fit_offsets
from heterofactor.ratings.reading import Ratings
from heterofactor.ratings.unseen import RatingBatch, RatingDecoder, Unseen

# Ridges of the offsets of users and items, those of RatingModel.
OFFSET_RIDGES = (4.0, 2.0)


class RatingHAE(RatingAutoEncoder):
    """The paper's auto-encoder of ratings: a shared encoder, and one for each group of items.

    An item is the vector of its ratings, 0 where there is none, and beside it the vector that says
    by 1 who has rated it. Its scores are those of the shared encoder, plus those of its group's
    encoder without what lies in the span of the shared one's, as `heterofactor.networks.deflated`
    has it. A linear layer leads from scores to what ratings are above or below the offsets of
    their user and item.

    Not in the paper: every step leaves ratings out of what goes in, and those count for more than
    the ones the networks see; users are known by which items they have rated, too; inputs are
    divided by the root of how many there are; offsets are fitted first; and layers have no kernels.
    See `heterofactor.ratings.unseen`, and ``experiments/results/hae_movielens_search.md`` for what
    the first four are worth.

    On twenty splits of MovieLens 100K single fits are better than those of `SparseFC` by 0.0129;
    0.0015 of it is what clusters of genres add to one group, and random groups add nothing. See
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
    ridge : (float, float)
        Penalty on the squares of weights, of what is shared and of the groups' encoders.
    ridge_seen : float
        The same, of the vectors of items that tell of users who have rated them.
    left_out : float
        Share of the ratings that each step leaves out of what goes in.
    known_weight : float
        What a rating counts that is not left out, where one that is counts 1.
    dropout : (float, float)
        Share of the shared encoder's hidden units, and of the scores, that each step leaves out.
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
    item_scores_, user_basis_, user_offsets_, item_offsets_ : array
        A prediction is the product of the scores of item and user, and their offsets.
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
    array([5., 1., 4., 2.])
    """

    def __init__(
        self,
        *,
        n_hidden: int = 500,
        n_hidden_unique: int = 50,
        n_folds: int = 1,
        n_groups: int = 10,
        ridge: tuple[float, float] = (25.0, 300.0),
        ridge_seen: float = 5.0,
        left_out: float = 0.3,
        known_weight: float = 0.3,
        dropout: tuple[float, float] = (0.2, 0.3),
        learning_rate: float = 0.004,
        max_rounds: int = 100,
        user: str = "user",
        item: str = "item",
        rating: str = "rating",
        random_state: Any = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.n_hidden_unique = n_hidden_unique
        self.n_folds = n_folds
        self.n_groups = n_groups
        self.ridge = ridge
        self.ridge_seen = ridge_seen
        self.left_out = left_out
        self.known_weight = known_weight
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

    def _apart(self, known: Ratings) -> Offsets:
        return fit_offsets(known, OFFSET_RIDGES)

    def _batch(self, counts: list[int], pattern: Pattern, ratings: Any, offsets: Any) -> EntryBatch:
        return RatingBatch(counts, pattern, ratings, offsets)

    def _objective(self) -> Unseen:
        return Unseen(
            Squared(),
            self.ridge,
            ridge_seen=self.ridge_seen,
            left_out=self.left_out,
            known_weight=self.known_weight,
        )

    def _basis(self, network: AutoEncoder, batch: EntryBatch) -> Any:
        return network.decoder.basis(batch)

    def _network(self, shape: tuple[int, int], n_groups: int, generator: Any) -> AutoEncoder:
        if self.n_hidden % self.n_folds or self.n_folds**2 >= self.n_hidden:
            raise ValueError(
                f"n_folds is {self.n_folds}: expected a divisor of n_hidden={self.n_hidden} whose "
                "square is less, or the projection would leave nothing."
            )
        n_items, n_users = shape
        size, width = self.n_hidden, self.n_hidden_unique
        units: dict[str, Any] = {"activation": "sigmoid"}
        on_hidden, on_scores = self.dropout
        shared = [
            Layer(2 * n_users, size, generator, **units),
            Layer(size, size, generator, half=half_is_fast(), dropout=on_hidden, **units),
        ]
        unique = [
            Layer(2 * n_users, width, generator, n_sources=n_groups, **units),
            Layer(width, size, generator, n_sources=n_groups, **units),
        ]
        decoder = RatingDecoder(Layer(size, n_users, generator, dropout=on_scores), n_items)
        return AutoEncoder(Layers(shared), Layers(unique), decoder, self.n_folds)
