"""The graph of users who rate alike, and how central each user is in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.sparse.csgraph import shortest_path

from heterofactor.ratings.reading import Array, Ratings

Links = npt.NDArray[np.float64]

CENTRALITIES = ("pagerank", "degree", "closeness", "betweenness", "load", "neighbour_degree")
# Of a random walk's steps, those that follow a link; the others go to any user.
DAMPING = 0.85
# The walk has come to rest when it changes by less than this in a step.
AT_REST = 1e-12


def link_users(ratings: Ratings, least: float) -> Links:
    """Link users who gave the same rating to enough items.

    Parameters
    ----------
    ratings : Ratings
        What was given.
    least : float
        Two users are linked if they gave the same rating to at least so many items.

    Returns
    -------
    array
        Symmetric, of users: 1 where there is a link, 0 elsewhere and on the diagonal.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.ratings.reading import Columns, read_ratings
    >>> from heterofactor.ratings.usergraph import link_users
    >>> table = pd.DataFrame(
    ...     {"user": list("aabbcc"), "item": list("xyxyxy"), "rating": [1, 5, 1, 5, 1, 2]}
    ... )
    >>> link_users(read_ratings(table, Columns()), 2).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    level, levels = ratings.values, np.unique(ratings.values)
    column = ratings.item * len(levels) + np.searchsorted(levels, level)
    shape = (len(ratings.users), len(ratings.items) * len(levels))
    gave: Any = scipy.sparse.csr_array((np.ones(len(level)), (ratings.user, column)), shape)
    links: Links = ((gave @ gave.T).toarray() >= max(least, 1)).astype(float)
    np.fill_diagonal(links, 0)
    return links


def centralities(links: Links) -> Array:
    r"""Return six measures of how central every node of a graph is.

    Of the n nodes that have any link (the others get zeros): PageRank; the degree over n - 1;
    closeness, the inverse of the mean distance to those that can be reached, times the share that
    can; betweenness, the share of shortest paths between two others that lead through the node;
    load, the same where what is sent from each node to each other is divided equally at every fork
    on the way back; the mean degree of the neighbours.

    Parameters
    ----------
    links : array
        Symmetric, 0 or 1.

    Returns
    -------
    array
        One row a node, one column for each name in `CENTRALITIES`.

    References
    ----------
    Ulrik Brandes. On variants of shortest-path betweenness centrality and their generic
    computation. Social Networks 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.usergraph import CENTRALITIES, centralities
    >>> star = np.zeros((4, 4))
    >>> star[0, 1:] = star[1:, 0] = 1
    >>> dict(zip(CENTRALITIES, centralities(star)[0].round(2).tolist()))["betweenness"]
    1.0
    """
    linked = links.any(axis=1)
    found = np.zeros((len(links), len(CENTRALITIES)))
    if linked.any():
        found[linked] = _of_linked(links[np.ix_(linked, linked)])
    return found


def _of_linked(links: Links) -> Array:
    n, degree = len(links), links.sum(axis=1)
    distance: Array = shortest_path(scipy.sparse.csr_array(links), unweighted=True)
    reached = np.isfinite(distance)
    others = reached.sum(axis=1) - 1
    closeness = others / np.where(reached, distance, 0).sum(axis=1) * others / (n - 1)
    pairs = max((n - 1) * (n - 2), 1)
    measures = (
        _pagerank(links / degree[:, None]),
        degree / (n - 1),
        closeness,
        _passing(links, distance, _paths(links, distance)) / pairs,
        _passing(links, distance, np.ones_like(links)) / pairs,
        links @ degree / degree,
    )
    return np.stack(measures, axis=1)


def _pagerank(steps: Array) -> Array:
    n = len(steps)
    now = np.full(n, 1 / n)
    while True:
        last, now = now, (1 - DAMPING) / n + DAMPING * now @ steps
        if np.abs(now - last).sum() < AT_REST:
            return now


def _paths(links: Links, distance: Array) -> Array:
    """Return the number of shortest paths from each node (row) to each other."""
    paths = np.eye(len(links))
    for away in range(1, _longest(distance) + 1):
        paths += ((paths * (distance == away - 1)) @ links) * (distance == away)
    return paths


def _passing(links: Links, distance: Array, weight: Array) -> Array:
    r"""Return what passes through each node, of one unit from each node to each other.

    A unit at t divides among the neighbours of t that are nearer to s, in proportion to weights:
    :math:`\delta_{sv} = \sum_t w_{sv} / \sum_u w_{su} (1 + \delta_{st})`.
    """
    passing = np.zeros_like(links)
    for away in range(_longest(distance), 1, -1):
        here, nearer = distance == away, distance == away - 1
        total = (weight * nearer) @ links
        passed = np.where(here, (1 + passing) / np.where(here, total, 1), 0)
        passing += weight * nearer * (passed @ links)
    through: Array = passing.sum(axis=0)
    return through


def _longest(distance: Array) -> int:
    return int(distance[np.isfinite(distance)].max())
