r"""SparseFC: an auto-encoder of ratings whose weights are multiplied by a kernel.

:math:`x_j \leftarrow a(\sum_i W_{ij} K(u_i, v_j) x_i + b_j)`, with the compact kernel
:math:`K(u, v) = \max(0, 1 - |u - v|^2)` of learned vectors.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd

from heterofactor.losses import Squared
from heterofactor.networks import AutoEncoder, Layer, Layers
from heterofactor.ratings.autoencoders import RatingAutoEncoder, half_is_fast
from heterofactor.solvers.autoencoder import Objective


class SparseFC(RatingAutoEncoder):
    """Kernelised sparse layers that reconstruct every item's ratings.

    An item is the vector of its ratings, 0 where there is none. Two hidden layers of logistic units
    and a linear one lead to what every user is expected to give.

    Parameters
    ----------
    n_hidden : int
        Units of each hidden layer.
    n_kernel : int
        Length of the kernel's vectors.
    ridge : float
        Penalty on the squares of weights, beside half the sum of squared errors.
    ridge_kernel : float
        Penalty on the squares of the kernel's values; draws weights to zero.
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
    item_scores_, user_basis_, user_offsets_, item_offsets_ : array
        A prediction is the product of the scores of item and user, and their offsets. Items have
        none here.
    scale_ : (float, float)
        The lowest and the highest rating seen.
    history_ : DataFrame
        The objective, round by round.

    References
    ----------
    Lorenz Müller, Julien Martel, Giacomo Indiveri. Kernelized Synaptic Weight Matrices. ICML 2018.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.sparsefc import SparseFC
    >>> ratings = pd.DataFrame({
    ...     "user": ["ann", "ann", "bob", "bob"],
    ...     "item": ["tea", "ale", "tea", "ale"],
    ...     "rating": [5, 1, 4, 2],
    ... })
    >>> model = SparseFC(n_hidden=10, ridge=0.01, learning_rate=0.05, random_state=0)
    >>> model.fit(ratings).predict(ratings).round()
    array([5., 1., 4., 2.])
    """

    def __init__(
        self,
        *,
        n_hidden: int = 500,
        n_kernel: int = 5,
        ridge: float = 15.0,
        ridge_kernel: float = 0.006,
        learning_rate: float = 0.0014,
        max_rounds: int = 200,
        user: str = "user",
        item: str = "item",
        rating: str = "rating",
        random_state: Any = None,
    ) -> None:
        self.n_hidden = n_hidden
        self.n_kernel = n_kernel
        self.ridge = ridge
        self.ridge_kernel = ridge_kernel
        self.learning_rate = learning_rate
        self.max_rounds = max_rounds
        self.user = user
        self.item = item
        self.rating = rating
        self.random_state = random_state

    def fit(self, ratings: pd.DataFrame) -> Self:
        """Train on ratings.

        Parameters
        ----------
        ratings : DataFrame
            One rating in each row: user, item, rating.

        Returns
        -------
        self
        """
        known = self._read(ratings)
        return self._fit(known, np.zeros(len(known.items), dtype=np.intp))

    def _objective(self) -> Objective:
        return Objective(Squared(), (self.ridge, 0.0), self.ridge_kernel)

    def _network(self, shape: tuple[int, int], n_groups: int, generator: Any) -> AutoEncoder:
        _, n_users = shape
        kernel: dict[str, Any] = {"kernel": "compact", "n_kernel": self.n_kernel}
        size = self.n_hidden
        hidden = [
            Layer(n_users, size, generator, activation="sigmoid", **kernel),
            Layer(size, size, generator, activation="sigmoid", half=half_is_fast(), **kernel),
        ]
        last = Layer(size, n_users, generator, **kernel)
        return AutoEncoder(Layers(hidden), None, Layers([last]))
