"""What auto-encoders of ratings have in common: a long table in, one prediction for each pair out.

Items are the samples, users the features. What a trained network predicts is a product: the scores
of the items times the decoder's last matrix, so that predictions need no network any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from heterofactor.batches import EntryBatch, Pattern
from heterofactor.losses import Squared
from heterofactor.networks import AutoEncoder, seeded
from heterofactor.solvers.autoencoder import Objective, Schedule, joint

# So many ratings of an unknown size are added to the means of users and items that are known in
# part, when the other one of a pair was never seen.
PRIOR = 5.0


class RatingAutoEncoder(BaseEstimator):
    """An auto-encoder of ratings, once it has a network; the subclasses bring it.

    Examples
    --------
    >>> from heterofactor.ratings.autoencoders import RatingAutoEncoder
    >>> from heterofactor.ratings.sparsefc import SparseFC
    >>> issubclass(SparseFC, RatingAutoEncoder)
    True
    """

    ridge: Any
    ridge_kernel: float
    learning_rate: float
    max_rounds: int
    user: str
    item: str
    rating: str
    random_state: Any
    _network: Callable[[int, int, torch.Generator], AutoEncoder]

    def _fit(self, ratings: pd.DataFrame, groups: pd.Series | None) -> Self:
        self._check(ratings, [self.user, self.item, self.rating])
        users, self.users_ = pd.factorize(ratings[self.user], sort=True)
        items, known = pd.factorize(ratings[self.item], sort=True)
        group = np.zeros(len(known), int) if groups is None else pd.factorize(groups[known])[0]
        order = np.argsort(group, kind="stable")  # samples lie sorted by source
        self.items_, items = known[order], np.argsort(order)[items]
        values = ratings[self.rating].to_numpy(dtype=np.float32)
        by_rows = np.lexsort((users, items))
        users, items, values = users[by_rows], items[by_rows], values[by_rows]
        self._refuse_twice(users, items)
        self.scale_ = (float(values.min()), float(values.max()))
        self._keep_means(users, items, values)

        counts = np.bincount(group).tolist()
        pattern = Pattern(items, users, (len(self.items_), len(self.users_)))
        targets = torch.from_numpy(values)
        inputs, places = self._inputs(pattern, targets)
        batch = EntryBatch(counts, places, inputs, pattern, targets, torch.zeros_like(targets))
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        network = self._network(len(self.users_), len(counts), torch.Generator().manual_seed(seed))
        last = network.decoder.layers[-1]
        with torch.no_grad():
            last.bias += self.mean_
        pair = (self.ridge, 0.0) if np.isscalar(self.ridge) else tuple(self.ridge)
        objective = Objective(Squared(), pair, self.ridge_kernel)
        with seeded(seed):
            run = joint(network, objective, batch, Schedule(self.learning_rate, self.max_rounds))
        network.eval()
        self.history_ = pd.DataFrame(
            {"value": [value for value, _ in run.history]},
            index=pd.RangeIndex(1, len(run.history) + 1, name="round"),
        )
        with torch.no_grad():
            shared, unique = network.scores(batch, counts)
            self.item_scores_ = (shared if unique is None else shared + unique).numpy()
            self.user_basis_ = last.weights().T.contiguous().numpy()
            self.user_offsets_ = last.bias.numpy().copy()
        return self

    def _inputs(self, pattern: Pattern, ratings: Any) -> tuple[Any, Pattern]:
        """Return what goes into the networks, and where it is: the ratings, as they are."""
        return ratings, pattern

    def predict(self, pairs: pd.DataFrame) -> np.ndarray[Any, Any]:
        """Return what users are expected to give to items.

        Parameters
        ----------
        pairs : DataFrame
            With a column of users and one of items.

        Returns
        -------
        array of shape (n_pairs,)
            In the order of the pairs, within the scale of the ratings that were fitted. Where the
            user or the item was never seen: the overall mean, and by how much the other one of the
            two is above or below it.
        """
        check_is_fitted(self)
        self._check(pairs, [self.user, self.item])
        users = pd.Index(self.users_).get_indexer(pairs[self.user])
        items = pd.Index(self.items_).get_indexer(pairs[self.item])
        scores = np.einsum("ij,ij->i", self.item_scores_[items], self.user_basis_[users])
        found = scores + self.user_offsets_[users]
        apart = np.where(users < 0, 0.0, self._user_means[users])
        apart = self.mean_ + apart + np.where(items < 0, 0.0, self._item_means[items])
        found = np.where((users < 0) | (items < 0), apart, found)
        return np.clip(found, *self.scale_)

    def _keep_means(self, users: Any, items: Any, values: Any) -> None:
        self.mean_ = float(values.mean())
        self._user_means = _deviations(users, values - self.mean_)
        self._item_means = _deviations(items, values - self.mean_)

    def _refuse_twice(self, users: Any, items: Any) -> None:
        twice = (np.diff(users) == 0) & (np.diff(items) == 0)
        if twice.any():
            place = int(np.flatnonzero(twice)[0])
            raise ValueError(
                f"User {self.users_[users[place]]!r} rates item {self.items_[items[place]]!r} "
                "more than once: keep one rating of each pair, or their mean."
            )

    def _check(self, table: pd.DataFrame, columns: Sequence[str]) -> None:
        for name in columns:
            if name not in table.columns:
                some = ", ".join(map(repr, table.columns[:10]))
                raise ValueError(
                    f"There is no column {name!r}; found {some}. Rename it, or say what it is "
                    "called with user=, item= and rating=."
                )
            if table[name].isna().any():
                place = int(np.flatnonzero(table[name].isna())[0])
                raise ValueError(f"Column {name!r} is empty in row {place}: leave this row out.")
        if len(table) == 0:
            raise ValueError("There are no rows: give at least one.")


def _deviations(lines: Any, values: Any) -> np.ndarray[Any, Any]:
    """Return by how much each user's or item's ratings are above the mean, if it has a few."""
    found: np.ndarray[Any, Any] = np.bincount(lines, values) / (np.bincount(lines) + PRIOR)
    return found


def half_is_fast() -> bool:
    """Say whether the processor multiplies numbers of half precision by itself.

    Examples
    --------
    >>> from heterofactor.ratings.autoencoders import half_is_fast
    >>> half_is_fast() in (True, False)
    True
    """
    asked = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(asked is not None and asked())
