"""The graph of users who rate alike, against its definition and against other programs."""

from itertools import pairwise, permutations

import numpy as np
import pandas as pd
import pytest

from heterofactor.ratings.reading import Columns, read_ratings
from heterofactor.ratings.usergraph import CENTRALITIES, Links, centralities, link_users

# Sums of numbers near one in double precision; the PageRank stops at 1e-12.
EXACT = 1e-10


def random_graph(n: int, density: float, seed: int) -> Links:
    upper = np.triu(np.random.default_rng(seed).random((n, n)) < density, 1)
    return (upper | upper.T).astype(float)


def ring_with_a_tail() -> Links:
    links = np.zeros((7, 7))
    for one, other in [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4), (4, 5)]:  # node 6 has no link
        links[one, other] = links[other, one] = 1
    return links


def shortest(links: Links, start: int, end: int) -> list[tuple[int, ...]]:
    """Return all shortest paths, by trying every order of every set of nodes between."""
    between = [v for v in range(len(links)) if v not in (start, end)]
    for length in range(len(between) + 1):
        paths = [(start, *middle, end) for middle in permutations(between, length)]
        if found := [p for p in paths if all(links[a, b] for a, b in pairwise(p))]:
            return found
    return []


def column(links: Links, name: str) -> np.ndarray:
    return centralities(links)[:, CENTRALITIES.index(name)]


def test_users_are_linked_who_gave_enough_equal_ratings() -> None:
    rng = np.random.default_rng(0)
    given = rng.integers(1, 4, (12, 30)) * (rng.random((12, 30)) < 0.6)
    user, item = np.nonzero(given)
    table = pd.DataFrame({"user": user, "item": item, "rating": given[user, item] / 2})
    links = link_users(read_ratings(table, Columns()), 5)
    for one in range(12):
        for other in range(12):
            alike = int(((given[one] == given[other]) & (given[one] > 0)).sum())
            assert links[one, other] == (one != other and alike >= 5)
    assert 0 < links.mean() < 1  # else the loop has shown nothing


def test_a_threshold_of_nothing_still_needs_one_equal_rating() -> None:
    table = pd.DataFrame({"user": [1, 2], "item": ["x", "x"], "rating": [1, 2]})
    assert not link_users(read_ratings(table, Columns()), 0).any()


def test_betweenness_is_the_share_of_shortest_paths() -> None:
    links = ring_with_a_tail()
    expected = np.zeros(7)
    for start, end in permutations(range(6), 2):
        paths = shortest(links, start, end)
        for path in paths:
            expected[list(path[1:-1])] += 1 / len(paths)
    np.testing.assert_allclose(column(links, "betweenness"), expected / (5 * 4), atol=EXACT)


def test_load_is_divided_equally_at_every_fork() -> None:
    links = ring_with_a_tail()
    expected = np.zeros(7)
    for start, end in permutations(range(6), 2):
        onward = {end: 1.0}
        for step in range(len(shortest(links, start, end)[0]) - 2):
            arriving: dict[int, float] = {}
            for node, share in onward.items():
                forks = {path[-2] for path in shortest(links, start, node)}
                for fork in forks:
                    arriving[fork] = arriving.get(fork, 0) + share / len(forks)
            onward = arriving
            assert sum(onward.values()) == pytest.approx(1), step
            for node, share in onward.items():
                expected[node] += share
    np.testing.assert_allclose(column(links, "load"), expected / (5 * 4), atol=EXACT)


def test_closeness_degrees_and_pagerank_by_their_definitions() -> None:
    links = ring_with_a_tail()
    steps = {(s, e): len(shortest(links, s, e)[0]) - 1 for s, e in permutations(range(6), 2)}
    far = [np.mean([steps[s, e] for e in range(6) if e != s]) for s in range(6)]
    np.testing.assert_allclose(column(links, "closeness")[:6], 1 / np.array(far), atol=EXACT)
    np.testing.assert_allclose(column(links, "degree")[:6] * 5, [2, 2, 2, 3, 2, 1], atol=EXACT)
    np.testing.assert_allclose(
        column(links, "neighbour_degree")[:6], [2.5, 2, 2.5, 2, 2, 2], atol=EXACT
    )
    # the stationary vector of the walk, from linear algebra
    walk = links[:6, :6] / links[:6, :6].sum(axis=1, keepdims=True)
    rank = np.linalg.solve(np.eye(6) - 0.85 * walk.T, np.full(6, 0.15 / 6))
    np.testing.assert_allclose(column(links, "pagerank")[:6], rank, atol=EXACT)


def test_who_has_no_link_gets_zeros_and_does_not_count() -> None:
    links = ring_with_a_tail()
    found = centralities(links)
    assert not found[6].any()
    np.testing.assert_allclose(found[:6], centralities(links[:6, :6]), atol=EXACT)
    assert not centralities(np.zeros((3, 3))).any()


@pytest.mark.parametrize("seed", range(3))
def test_another_program_finds_the_same(seed: int) -> None:
    nx = pytest.importorskip("networkx")
    links = random_graph(40, 0.25, seed)
    graph = nx.from_numpy_array(links)
    assert nx.is_connected(graph)  # where it is not, its load has another unit
    theirs = {
        "pagerank": nx.pagerank(graph, tol=1e-14, max_iter=1000),
        "degree": nx.degree_centrality(graph),
        "closeness": nx.closeness_centrality(graph),
        "betweenness": nx.betweenness_centrality(graph),
        "load": nx.load_centrality(graph),
        "neighbour_degree": nx.average_neighbor_degree(graph),
    }
    for name, found in theirs.items():
        expected = [found[v] for v in range(40)]
        np.testing.assert_allclose(column(links, name), expected, atol=EXACT, err_msg=name)


def test_parts_that_cannot_reach_each_other() -> None:
    nx = pytest.importorskip("networkx")
    links = np.zeros((20, 20))
    links[:12, :12], links[12:, 12:] = random_graph(12, 0.4, 0), random_graph(8, 0.5, 1)
    graph = nx.from_numpy_array(links)
    for name, theirs in [
        ("closeness", nx.closeness_centrality(graph)),
        ("betweenness", nx.betweenness_centrality(graph)),
    ]:
        expected = [theirs[v] for v in range(20)]
        np.testing.assert_allclose(column(links, name), expected, atol=EXACT, err_msg=name)
