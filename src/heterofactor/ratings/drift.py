r"""Drift of users in time: who has just rated above what was expected goes on to do so.

What a user's ratings are off by is taken for a sum of processes that forget, plus noise:

.. math:: m_{ui} - f(u, i) = \sum_k s_{uk}(t) + \epsilon, \qquad
    \operatorname{cov}(s_{uk}(t), s_{uk}(t')) = v_k \sigma^2 e^{-|t - t'| / \tau_k}

Each process is Markov (Ornstein and Uhlenbeck's), so that the precision of its values, in order
of time, is tridiagonal: what all users are expected to be off by is one banded system.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.linalg import solveh_banded
from sklearn.utils.validation import check_is_fitted

from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.inner import Inner, told, with_ids_of
from heterofactor.ratings.reading import Array, Codes, read_times


class TimeDrift(RatingFace):
    """Correct a model of ratings by what the same user's other ratings of that time are off by.

    People rate in sessions, within which they are stricter or milder than they mostly are. The
    model is fitted as it is; what it leaves of the ratings is smoothed in time, user by user, and
    added to predictions of pairs for which a time is given. Ratings of later in the session
    count as those of before: that fills gaps, and does not forecast.

    Parameters
    ----------
    model : RatingFace
        A model of ratings, not fitted.
    scales : sequence of float
        In seconds, how long each process takes to forget most of what it was.
    strengths : sequence of float
        The variance of each process, as a share of the noise of single ratings.
    clip : bool
        Keep predictions within the scale of the ratings.
    user, item, rating, time : str
        What the columns are called; the model is told. Times are seconds, or dates.

    Attributes
    ----------
    model_ : RatingFace
        The fitted model.
    users_, items_ : Index
        Who and what is known.
    scale_ : (float, float)
        The least and the greatest rating.

    Notes
    -----
    Predictions of pairs without a time, tables and recommendations are those of the model.

    On MovieLens 100K the error of held-out ratings falls by 0.015, but most of that is told by
    ratings of the same second, as if whole pages were sent at once; earlier ratings alone take off
    0.002 (``experiments/results/search_blend.md``).

    References
    ----------
    George Uhlenbeck, Leonard Ornstein. On the Theory of the Brownian Motion. Physical Review 36,
    1930.

    Yehuda Koren. Collaborative Filtering with Temporal Dynamics. KDD 2009.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor import RatingModel
    >>> from heterofactor.ratings.drift import TimeDrift
    >>> ratings = pd.DataFrame({
    ...     "user": "ann", "item": list("abcdef"), "rating": [5, 4, 5, 1, 2, 1],
    ...     "time": [10, 20, 30, 9010, 9020, 9030],
    ... })
    >>> offsets = RatingModel(0, 0, n_fits=1)
    >>> model = TimeDrift(offsets, scales=[60], strengths=[1]).fit(ratings)
    >>> early, late = model.predict(pd.DataFrame({"user": "ann", "item": "x", "time": [40, 9040]}))
    >>> bool(early > 3.5 > 2.5 > late)
    True
    """

    def __init__(
        self,
        model: Any,
        *,
        scales: Sequence[float] = (10.0, 800.0),
        strengths: Sequence[float] = (0.1, 0.15),
        clip: bool = True,
        user: Hashable = "user",
        item: Hashable = "item",
        rating: Hashable = "rating",
        time: Hashable = "time",
    ) -> None:
        self.model = model
        self.scales = scales
        self.strengths = strengths
        self.clip = clip
        self.user = user
        self.item = item
        self.rating = rating
        self.time = time

    def fit(
        self,
        ratings: pd.DataFrame,
        item_groups: Any = None,
        user_groups: Any = None,
        item_features: pd.DataFrame | None = None,
        user_features: pd.DataFrame | None = None,
    ) -> Self:
        """Fit the model, and smooth what it leaves.

        Parameters
        ----------
        ratings : DataFrame
            One row a rating, with the time at which it was given.
        item_groups, user_groups, item_features, user_features : optional
            As the model takes them.

        Returns
        -------
        self
        """
        given = {
            "item_groups": item_groups,
            "user_groups": user_groups,
            "item_features": item_features,
            "user_features": user_features,
        }
        self._check_settings(given)
        known = self._read(ratings)
        self.model_ = told(self.model, self).fit(
            ratings, **{name: table for name, table in given.items() if table is not None}
        )
        self._known = with_ids_of(known, [self.model_])
        self._inner = Inner.of(self.model_, self)
        # of several ratings of one pair the last one counts, which has the latest time
        times = pd.DataFrame(
            dict(zip(("user", "item"), self._places(ratings), strict=True))
            | {"time": seconds(ratings, self.time)}
        )
        time = times.groupby(["user", "item"], sort=True)["time"].max().to_numpy()
        left = known.values - self._expected(known.user, known.item)
        self._drift = fit_drift(known.user, time, left, self.scales, self.strengths)
        return self

    def predict(self, pairs: pd.DataFrame) -> Array:
        """Return what is expected of each pair, at its time if it has one.

        Parameters
        ----------
        pairs : DataFrame
            With a user and an item in each row, and perhaps a time; other columns are not used.

        Returns
        -------
        array of float
            One number for each row, in the order of the rows.
        """
        check_is_fitted(self)
        user, item = self._places(pairs)
        expected = self._expected(user, item)
        if self.time in pairs.columns:
            expected = expected + self._drift.at(user, seconds(pairs, self.time))
        return self._clipped(expected)

    def _expected(self, user: Codes, item: Codes) -> Array:
        return self._inner.at(user, item)

    def _expected_table(self, user: Codes) -> Array:
        return self._inner.table(user)

    def _check_settings(self, given: dict[str, Any]) -> None:
        positive = [*self.scales, *self.strengths]
        if not len(self.scales) == len(self.strengths) > 0 or not all(x > 0 for x in positive):
            raise ValueError(
                f"scales is {self.scales!r} and strengths is {self.strengths!r}: expected as many "
                "positive numbers in both, at least one."
            )
        takes = inspect.signature(self.model.fit).parameters
        for name, table in given.items():
            if table is not None and name not in takes:
                raise ValueError(f"{name} is given, but the model does not take it: leave it out.")


@dataclass(frozen=True, eq=False)
class Drift:
    """What users are expected to be off by, at the times when they rated.

    Attributes
    ----------
    user : array of int
        Whose each value is; in order of user and time.
    time : array
        Of each value.
    values : array of shape (times, processes)
        Of each process.
    scales : array
        Of the processes.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.drift import Drift
    >>> drift = Drift(np.array([3]), np.array([100.0]), np.array([[0.5]]), np.array([60.0]))
    >>> drift.at(np.array([3, 3, 4]), np.array([100.0, 160.0, 100.0])).round(3).tolist()
    [0.5, 0.184, 0.0]
    """

    user: Codes
    time: Array
    values: Array
    scales: Array

    def at(self, user: Codes, time: Array) -> Array:
        """Return the sum of the processes of users at some times; zero for others.

        Between two times, what is expected of a process depends on its values there alone.
        """
        moments = np.unique(self.time)
        place = self.user * len(moments) + np.searchsorted(moments, self.time)
        asked = user * len(moments) + np.searchsorted(moments, time, "right") - 1
        after = np.searchsorted(place, asked, "right")
        nearest = []
        for near in (after - 1, after):
            at = near.clip(0, len(place) - 1)
            mine = (near == at) & (self.user[at] == user)
            gap = np.where(mine, np.abs(time - self.time[at]), np.inf)
            nearest.append((np.exp(-gap[:, None] / self.scales), self.values[at]))
        (a, before), (b, behind) = nearest
        found = a * (1 - b**2) * before + b * (1 - a**2) * behind
        total: Array = np.sum(found / (1 - (a * b) ** 2), axis=1)
        return total


def fit_drift(
    user: Codes, time: Array, left: Array, scales: Sequence[float], strengths: Sequence[float]
) -> Drift:
    """Return what is expected of the processes of all users, given what their ratings are off by.

    Parameters
    ----------
    user : array of int
        Of each rating.
    time : array
        In seconds.
    left : array
        What each rating is off by.
    scales, strengths : sequences of float
        As for `TimeDrift`.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.drift import fit_drift
    >>> user, time = np.array([0, 0, 1]), np.array([5.0, 5.0, 5.0])
    >>> fit_drift(user, time, np.array([1.0, 1.0, -1.0]), [60.0], [1.0]).values.round(3).tolist()
    [[0.667], [-0.5]]
    """
    order = np.lexsort((time, user))
    user, time, left = user[order], time[order], left[order]
    first = np.flatnonzero(np.append(True, (np.diff(user) != 0) | (np.diff(time) != 0)))
    number = np.diff(np.append(first, len(user)))
    sums = np.add.reduceat(left, first)
    user, time = user[first], time[first]
    count, n = len(scales), len(user)
    bands = np.zeros((count + 1, n, count))  # the diagonal is the last one
    gap = np.where(np.diff(user) == 0, np.diff(time), np.inf)
    for k, (scale, strength) in enumerate(zip(scales, strengths, strict=True)):
        kept = np.exp(-gap / scale)
        known = kept / (1 - kept**2)
        precision = np.ones(n)
        precision[1:] += kept * known
        precision[:-1] += kept * known
        bands[count, :, k] = precision / strength
        bands[0, 1:, k] = -known / strength
        # a rating tells of the sum of all processes
        bands[count - k :, :, k] += number
    right = np.repeat(sums, count)
    values = solveh_banded(bands.reshape(count + 1, n * count), right).reshape(n, count)
    return Drift(user, time, values, np.asarray(scales, dtype=float))


def seconds(table: pd.DataFrame, column: Hashable) -> Array:
    """Return times as seconds.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.drift import seconds
    >>> table = pd.DataFrame({"time": pd.to_datetime(["2020-01-01 00:00:07"])})
    >>> seconds(table, "time") % 60
    array([7.])
    """
    if column not in table.columns:
        raise ValueError(
            f"There is no column {column!r} of times: name it with time= when the model is made."
        )
    times = read_times(table, column)
    if not pd.api.types.is_numeric_dtype(times):
        moments = pd.to_datetime(times, utc=True)
        times = (moments - pd.Timestamp(0, tz="UTC")) / pd.Timedelta("1s")
    found: Array = times.to_numpy(dtype=float, na_value=np.nan)
    if not np.isfinite(found).all():
        at = table.index[~np.isfinite(found)][0]
        raise ValueError(f"Column {column!r} holds no time in row {at!r}: drop it, or give one.")
    return found
