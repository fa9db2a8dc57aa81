r"""A loss is elementwise: ``value`` of an entry m predicted as z, and its ``slope`` in z.

Losses are half-losses, so that slopes carry no stray factor of two. ``majorise`` is what every
loss has in common with the squared one: at any prediction z it has weights w and targets t such
that :math:`\tfrac12 w (t - z')^2` lies above the loss and touches it at z, so that one weighted
least-squares solver lowers them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from heterofactor.linalg import Array, namespace

# Huber's constant: 95 % as efficient as the squared loss on normal noise.
HUBER = 1.345
# Beyond so many noise scales an entry is an outlier; one normal entry in 370 is taken for one.
OUTLYING = 3.0
# The corner of the absolute loss is rounded over this many noise scales.
ROUNDED = 0.1
# The ridge under losses with a link unless another is given: where all answers of a line are alike,
# the likelihood alone is greatest at infinity.
LINKED_RIDGE = 2.0


class Loss(Protocol):
    """What a loss must answer; any frozen dataclass with these methods is one.

    It may also be `Linked` (predictions on another scale than observations) or `Robust` (with a
    threshold that a fit finds from the data).
    """

    def value(self, m: Array, z: Array) -> Array:
        """Return the loss of predicting `z` where `m` was observed, entry by entry."""

    def slope(self, m: Array, z: Array) -> Array:
        """Return the derivative of the value in `z`."""

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        """Return weights w and targets t: ``1/2 w (t - z')**2`` lies above and touches at `z`.

        Up to a constant in z', and with the same slope at z.
        """


@runtime_checkable
class Linked(Protocol):
    """A loss whose predictions are of another scale than its observations."""

    @property
    def reach(self) -> float:
        """By how much z may grow in one step under the majoriser."""

    @property
    def observable(self) -> str:
        """What can be observed, in words."""

    def link(self, z: Array) -> Array:
        """Return the expected observation where z is predicted."""

    def unlink(self, mean: Array) -> Array:
        """Return the prediction under which the expected observation is `mean`."""

    def unobservable(self, m: Array) -> Array:
        """Say for every entry whether it cannot be observed under this loss."""

    def least(self, m: Array) -> Array:
        """Return the least value that any prediction has where `m` was observed."""

    def noise(self, z: Array) -> Array:
        """Return the variance of an observation, brought to the scale of z."""


@runtime_checkable
class Robust(Protocol):
    """A loss with a threshold in units of the noise, which may be left to the data."""

    threshold: float | None

    def at_noise(self, scale: float) -> Any:
        """Return the loss for noise of this standard deviation."""


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


@dataclass(frozen=True)
class Huber:
    r"""Squared for small errors, absolute for large ones.

    .. math:: \tfrac12 e^2 \text{ where } |e| \le \delta, \quad
        \delta |e| - \tfrac12 \delta^2 \text{ elsewhere}, \qquad e = m - z.

    Parameters
    ----------
    threshold : float, optional
        :math:`\delta`, in units of the data. A fit chooses 1.345 times the standard deviation of
        the noise, which it estimates robustly, unless given.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Huber
    >>> Huber(threshold=1.0).value(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])
    """

    threshold: float | None = None

    def value(self, m: Array, z: Array) -> Array:
        """Return the loss, entry by entry."""
        xp, delta = namespace(z), _given(self)
        size = xp.abs(m - z)
        inside = xp.minimum(size, size * 0 + delta)
        return inside * (size - inside / 2)

    def slope(self, m: Array, z: Array) -> Array:
        """Return the derivative of the value in `z`."""
        delta = _given(self)
        return namespace(z).clip(z - m, -delta, delta)

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        """Return weights that fall with the error's size, and the observed entries."""
        xp, delta = namespace(z), _given(self)
        size = xp.abs(m - z)
        return delta / xp.maximum(size, size * 0 + delta), m

    def at_noise(self, scale: float) -> Huber:
        """Return the loss for noise of this standard deviation."""
        return replace(self, threshold=HUBER * scale)


@dataclass(frozen=True)
class Absolute:
    r"""The absolute error, with its corner rounded: :math:`\sqrt{e^2 + \epsilon^2} - \epsilon`.

    Parameters
    ----------
    threshold : float, optional
        :math:`\epsilon`, over which the corner is rounded, in units of the data. A fit chooses a
        tenth of the standard deviation of the noise unless given.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Absolute
    >>> Absolute(threshold=1e-6).value(np.array([0.5, -3.0]), np.zeros(2)).round(5)
    array([0.5, 3. ])
    """

    threshold: float | None = None

    def value(self, m: Array, z: Array) -> Array:
        """Return the loss, entry by entry."""
        # written as a quotient, which keeps its digits where the error is small
        return (m - z) ** 2 / (self._root(m, z) + _given(self))

    def slope(self, m: Array, z: Array) -> Array:
        """Return the derivative of the value in `z`."""
        return (z - m) / self._root(m, z)

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        """Return the inverse of the error's size, and the observed entries."""
        return 1 / self._root(m, z), m

    def _root(self, m: Array, z: Array) -> Array:
        return namespace(z).sqrt((m - z) ** 2 + _given(self) ** 2)

    def at_noise(self, scale: float) -> Absolute:
        """Return the loss for noise of this standard deviation."""
        return replace(self, threshold=ROUNDED * scale)


@dataclass(frozen=True)
class Trimmed:
    r"""Squared, but no entry costs more than one at the threshold: gross outliers are left out.

    .. math:: \tfrac12 \min(e^2, \tau^2), \qquad e = m - z.

    The same as a squared loss with a third, sparse part that takes up whole what it takes up at
    all, at a price of :math:`\tfrac12\tau^2` an entry.

    Parameters
    ----------
    threshold : float, optional
        :math:`\tau`, in units of the data. A fit chooses three times the standard deviation of
        the noise, which it estimates robustly, unless given.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Trimmed
    >>> Trimmed(threshold=1.0).value(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 0.5  ])
    """

    threshold: float | None = None

    def value(self, m: Array, z: Array) -> Array:
        """Return the loss, entry by entry."""
        squares = (m - z) ** 2
        return namespace(z).minimum(squares, squares * 0 + _given(self) ** 2) / 2

    def slope(self, m: Array, z: Array) -> Array:
        """Return the derivative of the value in `z`; zero for outliers."""
        return (z - m) * self._kept(m, z)

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        """Return weights of zero for outliers and one for all others, and the observed entries."""
        return self._kept(m, z), m

    def _kept(self, m: Array, z: Array) -> Array:
        xp = namespace(z)
        return xp.astype(xp.abs(m - z) <= _given(self), z.dtype)

    def at_noise(self, scale: float) -> Trimmed:
        """Return the loss for noise of this standard deviation."""
        return replace(self, threshold=OUTLYING * scale)


@dataclass(frozen=True)
class Logistic:
    r"""For answers of no (0) and yes (1): :math:`\log(1 + e^z) - m z`.

    The prediction z is the logarithm of the odds of a yes.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Logistic
    >>> Logistic().link(np.array([0.0, 2.0])).round(2)
    array([0.5 , 0.88])
    """

    reach: ClassVar[float] = float("inf")
    observable: ClassVar[str] = "0 and 1"

    def value(self, m: Array, z: Array) -> Array:
        """Return minus the logarithm of the probability of the answer."""
        xp = namespace(z)
        size = xp.abs(z)
        return xp.log1p(xp.exp(-size)) + (size + z) / 2 - m * z

    def slope(self, m: Array, z: Array) -> Array:
        """Return the derivative of the value in `z`."""
        return self.link(z) - m

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        """Return the weights of Jaakkola and Jordan's bound, the tightest that is symmetric."""
        xp = namespace(z)
        half = xp.abs(z) / 2
        small = half < 1e-4  # where tanh(x) / x is one to all digits, and 0 / 0 at zero
        weights = xp.where(small, half * 0 + 0.25, xp.tanh(half) / (4 * xp.where(small, 1.0, half)))
        weights = xp.astype(weights, z.dtype)
        return weights, (m - 0.5) / weights

    def link(self, z: Array) -> Array:
        """Return the probability of a yes."""
        return (namespace(z).tanh(z / 2) + 1) / 2

    def unlink(self, mean: Array) -> Array:
        """Return the logarithm of the odds."""
        return namespace(mean).log(mean / (1 - mean))

    def unobservable(self, m: Array) -> Array:
        """Say where an entry is neither 0 nor 1."""
        return (m != 0) & (m != 1)

    def least(self, m: Array) -> Array:
        """Return zero, where the answer was certain."""
        return m * 0

    def noise(self, z: Array) -> Array:
        r"""Return the variance of the logistic distribution, :math:`\pi^2 / 3`.

        An answer is yes where z and a noise of this distribution add up to more than zero.
        """
        return z * 0 + np.pi**2 / 3


@dataclass(frozen=True)
class Poisson:
    r"""For counts: :math:`e^z - m z`, with z the logarithm of the expected count.

    Its curvature grows without bound, so that no parabola lies above it everywhere: the majoriser
    holds wherever z grows by no more than `reach`, and solvers go no farther in one step.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Poisson
    >>> Poisson().link(np.array([0.0, 1.0])).round(2)
    array([1.  , 2.72])
    """

    reach: float = 1.0
    observable: ClassVar[str] = "whole numbers from 0 on"

    def value(self, m: Array, z: Array) -> Array:
        """Return minus the logarithm of the count's probability, up to a constant."""
        return self.link(z) - m * z

    def slope(self, m: Array, z: Array) -> Array:
        """Return the derivative of the value in `z`."""
        return self.link(z) - m

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        """Return the expected counts, larger by what they can grow within reach."""
        xp = namespace(z)
        step = xp.asarray(self.reach, dtype=z.dtype)
        growth = 2 * (xp.expm1(step) - step) / step**2
        weights = growth * self.link(z)
        return weights, z - self.slope(m, z) / weights

    def link(self, z: Array) -> Array:
        """Return the expected count."""
        return namespace(z).exp(namespace(z).clip(z, -FARTHEST, FARTHEST))

    def unlink(self, mean: Array) -> Array:
        """Return the logarithm of the mean."""
        return namespace(mean).log(mean)

    def unobservable(self, m: Array) -> Array:
        """Say where an entry is negative or no whole number."""
        return (m < 0) | (m != namespace(m).round(m))

    def least(self, m: Array) -> Array:
        """Return the value where the expected count is the observed one."""
        xp = namespace(m)
        return m - m * xp.log(xp.where(m > 0, m, 1.0))

    def noise(self, z: Array) -> Array:
        r"""Return the variance of a log-normal of the same mean and variance, in logarithms."""
        return namespace(z).log1p(1 / self.link(z))


# Where a Poisson mean is beyond exp(30), or below its inverse, the prediction is held back.
FARTHEST = 30.0


@dataclass(frozen=True)
class Excess:
    """What a loss is above the least that any prediction could have: half a deviance.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Excess, Poisson
    >>> float(Excess(Poisson()).value(np.asarray(1.0), np.asarray(0.0)))
    0.0
    """

    loss: Loss

    def value(self, m: Array, z: Array) -> Array:
        """Return the loss above its least, entry by entry."""
        value = self.loss.value(m, z)
        return value - self.loss.least(m) if isinstance(self.loss, Linked) else value

    def slope(self, m: Array, z: Array) -> Array:
        """Return the slope of the loss."""
        return self.loss.slope(m, z)

    def majorise(self, m: Array, z: Array) -> tuple[Array, Array]:
        """Return the majoriser of the loss."""
        return self.loss.majorise(m, z)


def link(loss: Loss, z: Array) -> Array:
    """Return the expected observation where z is predicted.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Logistic, Squared, link
    >>> float(link(Squared(), np.asarray(0.0))), float(link(Logistic(), np.asarray(0.0)))
    (0.0, 0.5)
    """
    return loss.link(z) if isinstance(loss, Linked) else z


def left_over(loss: Loss, m: Array, z: Array) -> Array:
    """Return the squared error of every entry, on the scale of z.

    Under a loss with a link, the variance that an observation has there.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.losses import Squared, left_over
    >>> left_over(Squared(), np.array([1.0]), np.array([3.0]))
    array([4.])
    """
    return loss.noise(z) if isinstance(loss, Linked) else (m - z) ** 2


def at_noise(loss: Any, scale: float) -> Any:
    """Return the loss for noise of this standard deviation, where its threshold is open.

    Examples
    --------
    >>> from heterofactor.losses import Huber, at_noise
    >>> at_noise(Huber(), 1.0), at_noise(Huber(threshold=3.0), 1.0)
    (Huber(threshold=1.345), Huber(threshold=3.0))
    """
    return loss.at_noise(scale) if is_open(loss) else loss


def is_open(loss: Loss) -> bool:
    """Say whether the loss has a threshold that is left to the data."""
    return isinstance(loss, Robust) and loss.threshold is None


def ridges(given: float | Sequence[float] | None, loss: Loss) -> tuple[float, float]:
    """Return the ridges of shared and unique factors, those that suit the loss unless given.

    Examples
    --------
    >>> from heterofactor.losses import Logistic, Squared, ridges
    >>> ridges(None, Squared()), ridges(None, Logistic()), ridges((2, 3), Squared())
    ((0.0, 0.0), (2.0, 2.0), (2.0, 3.0))
    """
    if given is None:
        given = LINKED_RIDGE if isinstance(loss, Linked) else 0.0
    pair: Any = (given, given) if isinstance(given, Real) else given
    return float(pair[0]), float(pair[1])


def reach(loss: Loss) -> float:
    """Return by how much a prediction may grow in one step under the loss's majoriser."""
    return loss.reach if isinstance(loss, Linked) else float("inf")


def _given(loss: Huber | Absolute | Trimmed) -> float:
    if loss.threshold is None:
        name = type(loss).__name__
        raise ValueError(
            f"{name} has no threshold yet: a fit of HMF finds it from the data; elsewhere give it, "
            f"as in {name}(threshold=1.0)."
        )
    return loss.threshold


LOSSES: dict[str, type[Loss]] = {
    "squared": Squared,
    "huber": Huber,
    "absolute": Absolute,
    "trimmed": Trimmed,
    "logistic": Logistic,
    "poisson": Poisson,
}
