r"""GraphRec: users and items embedded by what they are and by their places in the graph of ratings.

.. math:: m_{ui} \approx \psi_u^\top \varphi_i, \qquad
    \psi_u = \mathrm{crelu}(W^\top x_u + w), \quad \varphi_i = \mathrm{crelu}(V^\top y_i + v)

where x and y are an id's flag, its row of the table of ratings, its number of ratings and its
features, and :math:`\mathrm{crelu}(z) = (\max(0, z), \max(0, -z))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.utils import check_random_state

from heterofactor.batches import EntryBatch, Pattern, Tensor
from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.reading import Array, Codes, Ratings
from heterofactor.ratings.side import unit_columns, unit_of, with_unrated

# Spread of the weights at the start, as in the authors' program.
START = 0.01


class GraphRec(RatingFace):
    """Products of non-linear embeddings of users and items, which are trained together.

    Users and items that have features but no ratings are known as well: beside their features
    counts what the others' flags, rows and numbers come to on average. For a pair of which one was
    never seen, the mean of the other one stands in.

    Parameters
    ----------
    n_components : int
        Units of each side, of which `crelu` makes twice as many.
    ridge : float or (float, float)
        Penalty on the squares of the embeddings of users and of items, counted once for each
        rating.
    learning_rate : float
        Of Adam.
    max_rounds : int
        Steps on all ratings. The penalties do not prevent overfitting alone: more is not better.
    user, item, rating : str
        Names of the columns.
    random_state : int, RandomState or None
        Same seed, same answer.

    Attributes
    ----------
    users_, items_ : Index
        Who and what is known; those without ratings come last.
    user_scores_, item_scores_ : array
        The embeddings; a prediction is their product.
    scale_ : (float, float)
        The lowest and the highest rating seen.
    history_ : DataFrame
        The objective, round by round.

    Notes
    -----
    As in the authors' program: what goes in (ratings are divided by the greatest one, numbers of
    ratings by the greatest number; a user's own ratings stay in its row while they are fitted), the
    embeddings, the product without offsets, half the sum of squared errors with penalties on the
    embeddings, Adam. Other than there, a step is made on all ratings instead of on 1,000 drawn
    ones, with a larger rate, since each embedding is then computed once a step; ages are numbers
    and not categories, unless they are given so; and ratings are brought to the span of one to five
    stars, for which rates and penalties are meant. Numbers among features are moved to between 0
    and 1, categories are flags.

    References
    ----------
    Ahmed Rashed, Josif Grabocka, Lars Schmidt-Thieme. Attribute-Aware Non-Linear Co-Embeddings of
    Graph Features. RecSys 2019.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.graphrec import GraphRec
    >>> ratings = pd.DataFrame({
    ...     "user": ["ann", "ann", "bob", "bob"],
    ...     "item": ["tea", "ale", "tea", "ale"],
    ...     "rating": [5, 1, 1, 5],
    ... })
    >>> drinks = pd.DataFrame({"hot": [1, 0, 1]}, index=["tea", "ale", "mate"])
    >>> model = GraphRec(5, ridge=0, learning_rate=0.02, random_state=0)
    >>> model.fit(ratings, drinks).predict(ratings).round()
    array([5., 1., 1., 5.], dtype=float32)
    """

    def __init__(
        self,
        n_components: int = 50,
        *,
        ridge: float | tuple[float, float] = (0.05, 0.02),
        learning_rate: float = 0.001,
        max_rounds: int = 350,
        user: str = "user",
        item: str = "item",
        rating: str = "rating",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.ridge = ridge
        self.learning_rate = learning_rate
        self.max_rounds = max_rounds
        self.user = user
        self.item = item
        self.rating = rating
        self.random_state = random_state

    def fit(
        self,
        ratings: pd.DataFrame,
        item_features: pd.DataFrame | None = None,
        user_features: pd.DataFrame | None = None,
    ) -> Self:
        """Train on ratings.

        Parameters
        ----------
        ratings : DataFrame
            One rating in each row: user, item, rating.
        item_features, user_features : DataFrame, optional
            Indexed by id: numbers, flags or categories.

        Returns
        -------
        self
        """
        known = self._known = with_unrated(self._read(ratings), user_features, item_features)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        generator = torch.Generator().manual_seed(seed)
        of_users = unit_columns(user_features, known.users, "user")
        of_items = unit_columns(item_features, known.items, "item")
        pair = np.broadcast_to(self.ridge, 2)
        users = _side(known, of_users, self.n_components, float(pair[0]), generator)
        items = _side(known.turned(), of_items, self.n_components, float(pair[1]), generator)

        optimiser = torch.optim.Adam(
            [users.weights, users.bias, items.weights, items.bias], self.learning_rate, fused=True
        )
        values = []
        for _ in range(self.max_rounds):
            optimiser.zero_grad(set_to_none=True)
            value = objective(users, items)
            value.backward()
            optimiser.step()
            values.append(value.item())
        self.history_ = pd.DataFrame(
            {"value": values}, index=pd.RangeIndex(1, len(values) + 1, name="round")
        )
        with torch.no_grad():
            self.user_scores_ = unit_of(known) * users.completed(of_users).numpy()
            self.item_scores_ = items.completed(of_items).numpy()
        return self

    def _expected(self, user: Codes, item: Codes) -> Array:
        found = np.einsum("ij,ij->i", self.user_scores_[user], self.item_scores_[item])
        return self._stand_in(found, user, item)

    def _expected_table(self, user: Codes) -> Array:
        found = self.user_scores_[user] @ self.item_scores_.T
        return self._stand_in(found, user[:, None], np.arange(len(self.items_)))


@dataclass(frozen=True, eq=False)
class Side:
    """The users, or the items: what is known of them, and the weights to be found.

    Attributes
    ----------
    batch : EntryBatch
        What goes in, and the ratings.
    counts : tensor
        How many ratings each one has.
    ridge : float
    weights, bias : tensor

    Examples
    --------
    >>> import torch
    >>> from heterofactor.batches import DenseBatch
    >>> from heterofactor.ratings.graphrec import Side
    >>> batch = DenseBatch([1], torch.ones(1, 1), None, torch.ones(1), torch.zeros(1))
    >>> Side(batch, torch.ones(1), 0.0, torch.tensor([[2.0, -3.0]]), torch.zeros(2)).scores()
    tensor([[2., 0., 0., 3.]])
    """

    batch: Any
    counts: Tensor
    ridge: float
    weights: Tensor
    bias: Tensor

    def scores(self) -> Tensor:
        """Return the embeddings."""
        return crelu(self.batch.product(self.weights) + self.bias)

    def completed(self, features: Array) -> Tensor:
        """Return the same; those without ratings get the others' mean beside their features."""
        given = torch.from_numpy(features.astype(np.float32))
        by_features = given @ self.weights[len(self.weights) - features.shape[1] :]
        by_graph = self.batch.product(self.weights) - by_features
        rated = self.counts > 0
        by_graph[~rated] = by_graph[rated].mean(dim=0)
        return crelu(by_features + by_graph + self.bias)


def crelu(z: Tensor) -> Tensor:
    """Return what is positive, and beside it what is negative with its sign turned.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.ratings.graphrec import crelu
    >>> crelu(torch.tensor([[2.0, -3.0]]))
    tensor([[2., 0., 0., 3.]])
    """
    return torch.cat([z.relu(), (-z).relu()], dim=1)


def objective(users: Side, items: Side) -> Tensor:
    """Return half the sum of squared errors, with the penalties on embeddings.

    Parameters
    ----------
    users, items : Side

    Examples
    --------
    >>> import numpy as np, torch
    >>> from heterofactor.batches import EntryBatch, Pattern
    >>> from heterofactor.ratings.graphrec import Side, objective
    >>> one, cell = torch.ones(1), Pattern(np.array([0]), np.array([0]), (1, 1))
    >>> batch = EntryBatch([1], cell, one, cell, torch.tensor([5.0]), torch.zeros(1))
    >>> objective(*(Side(batch, one, 0.5, torch.tensor([[2.0]]), torch.zeros(1)),) * 2)
    tensor(2.5000)
    """
    user_scores, item_scores = users.scores(), items.scores()
    nothing = item_scores.new_zeros(len(item_scores))
    missed = users.batch.predicted(user_scores, item_scores.mT, nothing) - users.batch.targets
    penalties = (
        side.ridge * (side.counts[:, None] * scores**2).sum()
        for side, scores in ((users, user_scores), (items, item_scores))
    )
    return ((missed**2).sum() + sum(penalties)) / 2


def _side(known: Ratings, features: Array, n_components: int, ridge: float, generator: Any) -> Side:
    """Return the side of users, with weights to begin with; given ratings turned, that of items."""
    shape = len(known.users), len(known.items)
    counts = np.bincount(known.user, minlength=shape[0])
    given = known.values / np.abs(known.values).max(initial=np.finfo(float).tiny)
    rated = scipy.sparse.coo_array((given, (known.user, known.item)), shape)
    number = scipy.sparse.coo_array(counts[:, None] / counts.max())
    parts = [scipy.sparse.eye_array(shape[0]), rated, number, scipy.sparse.coo_array(features)]
    whole = scipy.sparse.csr_array(scipy.sparse.hstack(parts))
    whole.sort_indices()
    rows = np.repeat(np.arange(shape[0]), np.diff(whole.indptr))
    order = np.lexsort((known.item, known.user))
    targets = torch.from_numpy((known.values[order] / unit_of(known)).astype(np.float32))
    batch = EntryBatch(
        [shape[0]],
        Pattern(rows, whole.indices, whole.shape),
        torch.from_numpy(whole.data.astype(np.float32)),
        Pattern(known.user[order], known.item[order], shape),
        targets,
        torch.zeros_like(targets),
    )
    weights = START * torch.randn(whole.shape[1], n_components, generator=generator)
    bias = torch.zeros(n_components)
    number_of_ratings = torch.from_numpy(counts.astype(np.float32))
    return Side(batch, number_of_ratings, ridge, weights.requires_grad_(), bias.requires_grad_())
