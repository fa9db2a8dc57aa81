"""A loss is elementwise: ``value`` of an entry m predicted as z, and its ``slope`` in z.

Losses are half-losses, so that slopes carry no stray factor of two. The squared loss of complete
data is special: it needs only products of the data with thin matrices, never a residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from heterofactor.linalg import Array


class Loss(Protocol):
    """What a loss must answer; any frozen dataclass with these methods is one."""

    def value(self, m: Array, z: Array) -> Array:
        """Return the loss of predicting `z` where `m` was observed, entry by entry."""

    def slope(self, m: Array, z: Array) -> Array:
        """Return the derivative of the value in `z`."""

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        """Return weights w and targets t: ``1/2 w (t - z')**2`` lies above and touches at `z`.

        Up to a constant in z', and with the same slope at z.
        """


@dataclass(frozen=True)
class Squared:
    r"""Half the squared error, :math:`\tfrac12 (m - z)^2`.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Squared
    >>> observed, predicted = np.array([1.0, 2.0]), np.array([1.5, 0.0])
    >>> Squared().value(observed, predicted), Squared().slope(observed, predicted)
    (array([0.125, 2.   ]), array([ 0.5, -2. ]))
    """

    def value(self, m: Array, z: Array) -> Array:
        """Return half the squared error, entry by entry."""
        return (m - z) ** 2 / 2

    def slope(self, m: Array, z: Array) -> Array:
        """Return the derivative of the value in `z`."""
        return z - m

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        """Return weights of one and the observed entries: the loss is its own majoriser."""
        return m * 0 + 1, m


LOSSES: dict[str, type[Loss]] = {"squared": Squared}
