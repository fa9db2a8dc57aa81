r"""How an auto-encoder learns of a rating from everything but that rating.

Asked for a rating, a network is given all others; trained to give its inputs back, it always has
that rating among them. So every step leaves some ratings out of what goes in, and those count for
more in the loss than the ones that stayed. What goes in is, for an item, its ratings and who has
rated it; and for a user, which items the user has rated:

.. math:: v_u \leftarrow v_u + c \, n_u^{-1/2} \sum_{i \in R(u)} y_i ,

with :math:`v_u` the user's row of the decoder's basis, as in Koren's SVD++ (KDD 2008).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch

from heterofactor.batches import Batch, EntryBatch, Pattern, Tensor, times
from heterofactor.networks import AutoEncoder, Layer, Layers
from heterofactor.solvers.autoencoder import Objective

# The constant c: AdamW moves the vectors of all items that a user has rated at once, and their sum
# should not run ahead of the user's own vector.
SLOW = 0.1
# An item's inputs are divided by its number of ratings to this power, or those of items that many
# have rated would drive the hidden units to their ends.
DAMPED = 0.5


class RatingBatch(EntryBatch):
    """Ratings, of which some can be left out of what goes in.

    An item's inputs are its ratings, and beside them ones where there is a rating; both are divided
    by the square root of how many there are, relative to the mean item.

    Parameters
    ----------
    counts : list of int
        How many items each group has.
    pattern : Pattern
        Of the ratings, items in rows.
    ratings : tensor
        What was given.
    offsets : tensor
        What is added to the networks' prediction.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from heterofactor.batches import Pattern
    >>> from heterofactor.ratings.unseen import RatingBatch
    >>> pattern = Pattern(np.array([0, 1]), np.array([1, 0]), (2, 2))
    >>> batch = RatingBatch([2], pattern, torch.tensor([4.0, 2.0]), torch.zeros(2))
    >>> batch.dense()
    tensor([[0., 4., 0., 1.],
            [2., 0., 1., 0.]])
    """

    def __init__(
        self, counts: list[int], pattern: Pattern, ratings: Tensor, offsets: Tensor
    ) -> None:
        length, width = pattern.shape
        rows = np.tile(pattern.rows.numpy(), 2)
        columns = np.concatenate([pattern.columns.numpy(), pattern.columns.numpy() + width])
        order = np.lexsort((columns, rows))
        number = torch.bincount(pattern.rows, minlength=length)
        size = ((len(ratings) / length / number) ** DAMPED)[pattern.rows]
        inputs = torch.cat([ratings * size, size])[order]
        places = Pattern(rows[order], columns[order], (length, 2 * width))
        super().__init__(counts, places, inputs, pattern, ratings, offsets)
        self._rating = torch.as_tensor(order % len(ratings))
        self._seen = SLOW * torch.bincount(pattern.columns).rsqrt()[pattern.columns]
        self._beside()  # here, so that the batches made of this one have it too

    def without(self, share: float) -> tuple[RatingBatch, Tensor]:
        """Return the same with some ratings left out, the others larger, and which have stayed."""
        stayed = (torch.rand(len(self._seen)) >= share).float()
        larger = stayed / (1 - share)
        made = copy.copy(self)
        made._inputs = self._inputs * larger[self._rating]
        made._seen = self._seen * larger
        made._matrices = {}
        return made, stayed

    def summed(self, vectors: Tensor) -> Tensor:
        """Return for each user the sum of the vectors of the items rated, by the root of how many.

        Parameters
        ----------
        vectors : tensor of shape (n_items, r)
        """
        return times(self.asked, self._seen, vectors, turned=True)


class RatingDecoder(Layers):
    """A linear layer, to which every user's items add; see the module.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.networks import Layer
    >>> from heterofactor.ratings.unseen import RatingDecoder
    >>> decoder = RatingDecoder(Layer(4, 2, torch.Generator()), n_items=3)
    >>> decoder.items.shape
    torch.Size([3, 4])
    """

    def __init__(self, layer: Layer, n_items: int) -> None:
        super().__init__([layer])
        self.items = torch.nn.Parameter(torch.zeros(n_items, layer.weight.shape[0]))

    def basis(self, batch: RatingBatch) -> Tensor:
        """Return the vectors of all users, in columns."""
        return self.layers[0].weights() + batch.summed(self.items).mT

    def entries(self, scores: Tensor, batch: Batch) -> Tensor:
        """Return what is decoded at the entries to be predicted."""
        (layer,) = self.layers
        assert isinstance(batch, RatingBatch)
        return batch.predicted(layer.thinned(scores), self.basis(batch), layer.bias)


@dataclass(frozen=True)
class Unseen(Objective):
    """Squared errors, most of all of ratings that the networks do not see; see the module.

    Parameters
    ----------
    loss, ridge, kernel, unit
        As for `Objective`; the loss is the squared one.
    ridge_seen : float
        On the vectors of items that are added to users.
    left_out : float
        Share of the ratings that each step leaves out of what goes in.
    known_weight : float
        What a rating counts that is not left out, where one that is counts 1; the weights are
        brought to a mean of 1.

    Examples
    --------
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.ratings.unseen import Unseen
    >>> Unseen(Squared(), (25.0, 300.0), left_out=0.2).ridge
    (25.0, 300.0)
    """

    ridge_seen: float = 0.0
    left_out: float = 0.3
    known_weight: float = 0.3

    def __call__(
        self, network: AutoEncoder, batch: Batch, share: float = 1.0, part: float = 1.0
    ) -> Tensor:
        """Return the weighted loss of a batch, with a part of the penalty, as `Objective` does."""
        assert isinstance(batch, RatingBatch)
        seen, stayed = batch.without(self.left_out)
        weights = 1 - (1 - self.known_weight) * stayed
        missed = batch.targets - self._predicted(network, seen)
        shared, unique = network.penalty(self.ridge, self.kernel)
        shared = shared + self.ridge_seen / 2 * (network.decoder.items**2).sum()
        return weights @ missed**2 / weights.mean() / 2 + part * (share * shared + unique)
