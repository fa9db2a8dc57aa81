r"""Gradient steps, rating by rating, with what a user has rated beside what the user thinks of it.

.. math:: m_{ui} \approx \mu + a_u + b_i
    + (q_i + f_i)^\top \Big(p_u + |N_u|^{-1/2} \sum_{j \in N_u} y_j\Big)

with :math:`f_i` fixed. The loop is compiled where numba is installed (the extra ``fast``); without
it Python runs it, with the same answer, much slower.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from numba import njit
except ImportError:

    def njit(**options: Any) -> Any:
        """Leave a function as it is.

        Examples
        --------
        >>> from heterofactor.ratings.descent import njit
        >>> callable(njit(cache=True))
        True
        """
        return lambda loop: loop


@njit(nogil=True, cache=True)
def sweep(
    users: Any,
    indptr: Any,
    items: Any,
    values: Any,
    mean: float,
    user_offsets: Any,
    item_offsets: Any,
    user_tastes: Any,
    item_tastes: Any,
    fixed: Any,
    seen: Any,
    rate: float,
    ridge_offsets: float,
    ridge: float,
) -> float:
    """Take a step for every rating, in place, and return the sum of squared errors on the way.

    All ratings of a user are taken together: the steps of the y are added up in their mean, which
    is the same for all of them, and are handed out when the user is done. With a penalty they
    decay evenly instead of each by its own size; this is the published shortcut, without which
    every rating would cost as much as the user has ratings.

    Parameters
    ----------
    users : array of int
        The order in which users are taken.
    indptr, items, values : array
        Ratings ``indptr[u]`` to ``indptr[u + 1]`` are those of user u, in the order to be taken.
    mean : float
    user_offsets, item_offsets, user_tastes, item_tastes, seen : array
        a, b, p, q and y; changed. With no rows, `seen` is left out.
    fixed : array
        The f.
    rate, ridge_offsets, ridge : float
        The size of steps, and the penalties on squares, which count once for each rating.

    References
    ----------
    Shuai Zhang, Lina Yao, Xiwei Xu. AutoSVD++: An Efficient Hybrid Collaborative Filtering Model
    via Contractive Auto-encoders. SIGIR 2017; Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.descent import sweep
    >>> a, b, none = np.zeros(1), np.zeros(1), np.zeros((1, 0))
    >>> one = np.array([0]), np.array([0, 1]), np.array([0]), np.array([3.0])
    >>> sweep(*one, 2.0, a, b, none, none, none, none, 0.1, 0.0, 0.0), a, b
    (1.0, array([0.1]), array([0.1]))
    """
    rank, implicit = user_tastes.shape[1], len(seen) > 0
    around, before = np.zeros(rank), np.zeros(rank)
    total = 0.0
    for u in users:
        start, stop = indptr[u], indptr[u + 1]
        if start == stop:
            continue
        share = 1 / np.sqrt(stop - start)
        if implicit:
            for a in range(rank):
                summed = 0.0
                for e in range(start, stop):
                    summed += seen[items[e], a]
                before[a] = around[a] = share * summed
        for e in range(start, stop):
            i = items[e]
            error = values[e] - mean - user_offsets[u] - item_offsets[i]
            for a in range(rank):
                error -= (user_tastes[u, a] + around[a]) * (item_tastes[i, a] + fixed[i, a])
            total += error**2
            user_offsets[u] += rate * (error - ridge_offsets * user_offsets[u])
            item_offsets[i] += rate * (error - ridge_offsets * item_offsets[i])
            for a in range(rank):
                p, q, z = user_tastes[u, a], item_tastes[i, a], around[a]
                user_tastes[u, a] += rate * (error * (q + fixed[i, a]) - ridge * p)
                item_tastes[i, a] += rate * (error * (p + z) - ridge * q)
                if implicit:
                    around[a] += rate * (error * (q + fixed[i, a]) - ridge * z)
        if implicit:
            for e in range(start, stop):
                for a in range(rank):
                    seen[items[e], a] += share * (around[a] - before[a])
    return total
