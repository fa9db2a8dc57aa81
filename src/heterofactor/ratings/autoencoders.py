"""What auto-encoders of ratings have in common: a long table in, one prediction for each pair out.

Items are the samples, users the features. What a trained network predicts is a product: the scores
of the items times the decoder's last matrix, so that predictions need no network any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils import check_random_state

from heterofactor.batches import EntryBatch, Pattern
from heterofactor.networks import AutoEncoder, seeded
from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.offsets import Offsets
from heterofactor.ratings.reading import Array, Codes, Ratings
from heterofactor.solvers.autoencoder import Objective, Schedule, joint


class RatingAutoEncoder(RatingFace):
    """An auto-encoder of ratings, once it has a network; the subclasses bring it.

    Examples
    --------
    >>> from heterofactor.ratings.autoencoders import RatingAutoEncoder
    >>> from heterofactor.ratings.sparsefc import SparseFC
    >>> issubclass(SparseFC, RatingAutoEncoder)
    True
    """

    learning_rate: float
    max_rounds: int
    random_state: Any
    _network: Callable[[tuple[int, int], int, torch.Generator], AutoEncoder]
    _objective: Callable[[], Objective]

    def _fit(self, known: Ratings, group: Codes) -> Self:
        order = np.argsort(group, kind="stable")  # samples lie sorted by source
        place = np.argsort(order)
        by_rows = np.lexsort((known.user, place[known.item]))
        users, rows = known.user[by_rows], place[known.item[by_rows]]
        values = known.values[by_rows].astype(np.float32)

        counts = np.bincount(group).tolist()
        pattern = Pattern(rows, users, (len(self.items_), len(self.users_)))
        apart = self._apart(known)
        offsets = torch.from_numpy(apart.at(users, known.item[by_rows]).astype(np.float32))
        batch = self._batch(counts, pattern, torch.from_numpy(values), offsets)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        generator = torch.Generator().manual_seed(seed)
        network = self._network(pattern.shape, len(counts), generator)
        last = network.decoder.layers[-1]
        with torch.no_grad():
            last.bias += float(values.mean()) - float(offsets.mean())
        schedule = Schedule(self.learning_rate, self.max_rounds)
        with seeded(seed):
            run = joint(network, self._objective(), batch, schedule)
        network.eval()
        self.history_ = pd.DataFrame(
            {"value": [value for value, _ in run.history]},
            index=pd.RangeIndex(1, len(run.history) + 1, name="round"),
        )
        with torch.no_grad():
            shared, unique = network.scores(batch, counts)
            self.item_scores_ = (shared if unique is None else shared + unique).numpy()[place]
            self.user_basis_ = self._basis(network, batch).T.contiguous().numpy()
            self.user_offsets_ = last.bias.numpy() + apart.mean + apart.user
            self.item_offsets_ = apart.item
        return self

    def _apart(self, known: Ratings) -> Offsets:
        """Return what is expected of ratings before the networks: nothing."""
        return Offsets(0.0, np.zeros(len(known.users)), np.zeros(len(known.items)))

    def _batch(self, counts: list[int], pattern: Pattern, ratings: Any, offsets: Any) -> EntryBatch:
        """Return what goes into the networks and is asked of them: the ratings, as they are."""
        return EntryBatch(counts, pattern, ratings, pattern, ratings, offsets)

    def _basis(self, network: AutoEncoder, batch: EntryBatch) -> Any:
        """Return the vectors of all users, in columns."""
        return network.decoder.layers[-1].weights()

    def _expected(self, user: Codes, item: Codes) -> Array:
        found = np.einsum("ij,ij->i", self.item_scores_[item], self.user_basis_[user])
        offsets = self.user_offsets_[user] + self.item_offsets_[item]
        return self._stand_in(found + offsets, user, item)

    def _expected_table(self, user: Codes) -> Array:
        found = self.user_basis_[user] @ self.item_scores_.T
        offsets = self.user_offsets_[user, None] + self.item_offsets_
        return self._stand_in(found + offsets, user[:, None], np.arange(len(self.items_)))


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
