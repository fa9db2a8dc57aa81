"""Ranking quality: against a computation by hand, and against scikit-learn's."""

from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import ndcg_score

from heterofactor import RatingModel
from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.ranking import ranking_quality


class Told(RatingFace):
    """Expects what it is told: a table of users and items, in the order of their sorted ids."""

    def __init__(self, table: Any, user: str = "user", item: str = "item") -> None:
        self.table = table
        self.user = user
        self.item = item
        self.rating = "rating"

    def fit(self, ratings: pd.DataFrame) -> Self:
        self._read(ratings)
        return self

    def _expected(self, user: Any, item: Any) -> np.ndarray:
        return np.where(user < 0, np.asarray(self.table).mean(axis=0)[item], self.table[user, item])


def rows(*ratings: tuple[Any, Any, float]) -> pd.DataFrame:
    return pd.DataFrame(list(ratings), columns=["user", "item", "rating"])


# Items a, b, c, d, e; ann's ranking of what she has not rated is b, d, e, c.
TRAIN = rows(("ann", "a", 5), ("bob", "b", 2), ("bob", "c", 1), ("bob", "d", 3), ("bob", "e", 4))
TABLE = np.array([[9.0, 5.0, 1.0, 4.0, 3.0], [1.0, 9.0, 9.0, 9.0, 9.0]])


def test_by_hand() -> None:
    model = Told(TABLE).fit(TRAIN)
    held = rows(("ann", "d", 4), ("ann", "c", 5), ("ann", "b", 3))
    found = ranking_quality(model, held, n=3)
    # of b, d, e the second is relevant; c, which is relevant, too, comes fourth
    ideal = 1 + 1 / np.log2(3)
    assert found["ndcg"] == pytest.approx((1 / np.log2(3)) / ideal)
    assert found["recall"] == 0.5 and found["users"] == 1
    assert ranking_quality(model, held, n=4)["recall"] == 1
    # with a lower threshold, b counts as well, in the first place
    assert ranking_quality(model, held, n=1, threshold=3)["ndcg"] == 1


def test_what_is_not_known_or_was_rated_counts_as_missed() -> None:
    model = Told(TABLE).fit(TRAIN)
    held = rows(("ann", "b", 5), ("ann", "unknown", 5), ("ann", "a", 5))
    found = ranking_quality(model, held, n=10)
    assert found["recall"] == pytest.approx(1 / 3)
    assert found["ndcg"] == pytest.approx(1 / (1 + 1 / np.log2(3) + 1 / 2))


def test_users_who_are_not_known_are_ranked_as_the_model_does() -> None:
    model = Told(TABLE).fit(TRAIN)
    # the means of the columns are 5, 7, 5, 6.5, 6: nothing is left out for eve and zoe
    held = rows(("eve", "b", 5), ("zoe", "a", 5), ("ann", "b", 5))
    found = ranking_quality(model, held, n=1)
    assert found["users"] == 3 and found["recall"] == pytest.approx(2 / 3)


def test_agrees_with_scikit_learn(seed: int) -> None:
    """Many users, more than are ranked at once, nobody of whom likes nothing."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(300, 40))
    relevant = rng.random((300, 40)) < 0.15
    relevant[:, 0] = True
    seen = (rng.random((300, 40)) < 0.2) & ~relevant
    seen[:, 1], relevant[:, 1] = True, False
    train, held = (
        pd.DataFrame(np.argwhere(which), columns=["user", "item"]).assign(rating=5.0)
        for which in (seen | (np.arange(300) == 299)[:, None], relevant)
    )
    held = held[held["user"] < 299]
    found = ranking_quality(Told(table).fit(train), held, n=10)
    ranked = np.where(seen, -1e9, table)[:299]
    expected = ndcg_score(relevant[:299].astype(float), ranked, k=10)
    assert found["ndcg"] == pytest.approx(expected, abs=1e-12)
    best = np.argsort(-ranked, axis=1)[:, :10]
    hits = np.take_along_axis(relevant[:299], best, axis=1).sum(axis=1)
    assert found["recall"] == pytest.approx(np.mean(hits / relevant[:299].sum(axis=1)), abs=1e-12)


def test_recommendations_are_what_is_ranked() -> None:
    """The first n of `recommend` are the items whose places count."""
    rng = np.random.default_rng(0)
    every = pd.MultiIndex.from_product([range(30), range(20)], names=["user", "item"])
    table = every.to_frame(index=False).assign(rating=rng.integers(1, 6, 600).astype(float))
    table = table.sample(frac=1, random_state=0)
    train, held = table[:400], table[400:]
    model = RatingModel(2, 0, n_fits=1, random_state=0).fit(train)
    liked = held[held["rating"] >= 4].groupby("user")["item"].agg(set)
    shares = [len(found & set(model.recommend(user, 5).index)) / len(found)
              for user, found in liked.items()]  # fmt: skip
    assert ranking_quality(model, held, n=5)["recall"] == pytest.approx(np.mean(shares))


def test_nothing_to_rank_is_refused() -> None:
    model = Told(TABLE).fit(TRAIN)
    with pytest.raises(ValueError, match=r"No held-out rating is 4 or more \(the greatest is 3\)"):
        ranking_quality(model, rows(("ann", "b", 3)))
    with pytest.raises(ValueError, match="n is 0: expected how many"):
        ranking_quality(model, rows(("ann", "b", 5)), n=0)
