"""Auto-encoders of ratings: SparseFC, and HAE with groups of items."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from heterofactor.ratings.hae_ratings import RatingHAE, grouped_items  # noqa: E402
from heterofactor.ratings.sparsefc import SparseFC  # noqa: E402

SMALL: dict[str, Any] = {
    "n_hidden": 20, "ridge": 0.3, "learning_rate": 0.02, "max_rounds": 100, "random_state": 0,
}  # fmt: skip
SMALL_HAE: dict[str, Any] = {**SMALL, "ridge": (0.3, 1.0), "n_hidden_unique": 5, "n_folds": 2}


def ratings(seed: int = 0, share: float = 0.3) -> pd.DataFrame:
    """Return ratings from 1 to 5 of users and items with one taste, named out of order."""
    rng = np.random.default_rng(seed)
    users, items = rng.normal(size=60), rng.normal(size=80)
    table = np.clip(np.round(3 + 1.2 * np.outer(users, items)), 1, 5)
    user, item = np.nonzero(rng.random(table.shape) < share)
    found = pd.DataFrame({"user": user, "item": item, "rating": table[user, item]})
    return found.sample(frac=1, random_state=0).assign(
        item=lambda t: "film" + t["item"].astype(str)
    )


def groups(table: pd.DataFrame) -> pd.Series:
    names = pd.Index(pd.unique(table["item"]))
    return pd.Series(names.str[-1].isin(list("01234")), index=names).map({True: "a", False: "b"})


def fitted(kind: str, table: pd.DataFrame, **changed: Any) -> Any:
    if kind == "SparseFC":
        return SparseFC(**{**SMALL, **changed}).fit(table)
    return RatingHAE(**{**SMALL_HAE, **changed}).fit(table, groups(table))


def error(model: Any, table: pd.DataFrame) -> float:
    return float(np.sqrt(np.mean((model.predict(table) - table["rating"]) ** 2)))


KINDS = ["SparseFC", "RatingHAE"]


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_ratings_are_predicted_better_than_by_means(kind: str) -> None:
    table = ratings()
    train, test = table[:-200], table[-200:]
    assert error(fitted(kind, train), test) < 0.8 * test["rating"].std()


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_one_answer_in_any_order(kind: str) -> None:
    table = ratings()
    one = fitted(kind, table).predict(table)
    np.testing.assert_array_equal(fitted(kind, table).predict(table), one)
    if kind == "SparseFC":  # clusters and groups may be numbered in another order
        turned = fitted(kind, table[::-1]).predict(table)
        np.testing.assert_array_equal(turned, one)


@pytest.mark.parametrize("kind", KINDS)
def test_one_number_per_pair_in_the_order_of_the_pairs(kind: str) -> None:
    table = ratings()
    model = fitted(kind, table)
    every = model.predict(table)
    np.testing.assert_allclose(model.predict(table[::-1]), every[::-1], rtol=1e-6)
    assert every.shape == (len(table),) and every.min() >= 1 and every.max() <= 5


@pytest.mark.parametrize("kind", KINDS)
def test_who_was_never_seen_gets_means(kind: str) -> None:
    table = ratings()
    model = fitted(kind, table)
    liked = table.groupby("item")["rating"].mean().idxmax()
    disliked = table.groupby("item")["rating"].mean().idxmin()
    pairs = pd.DataFrame({"user": [-1, -1, -1], "item": [liked, disliked, "nothing"]})
    best, worst, nothing = model.predict(pairs)
    assert best > nothing > worst
    assert nothing == pytest.approx(table["rating"].mean())


def test_columns_may_have_other_names() -> None:
    table = ratings()
    renamed = table.rename(columns={"user": "who", "item": "what", "rating": "stars"})
    model = SparseFC(**SMALL, user="who", item="what", rating="stars").fit(renamed)
    np.testing.assert_array_equal(model.predict(renamed), fitted("SparseFC", table).predict(table))


def test_scores_of_items_are_as_the_networks_have_them() -> None:
    """A prediction is a product, of the item's scores and the user's column of the decoder."""
    table = ratings()
    model = fitted("RatingHAE", table)
    assert model.item_scores_.shape == (80, 20) and model.user_basis_.shape == (60, 20)
    full = model.item_scores_ @ model.user_basis_.T + model.user_offsets_
    item = list(model.items_).index("film7")
    pairs = pd.DataFrame({"user": model.users_, "item": "film7"})
    np.testing.assert_allclose(model.predict(pairs), np.clip(full[item], 1, 5), rtol=1e-5)


def test_flags_are_clustered_by_their_direction() -> None:
    flags = pd.DataFrame(
        {"drama": [1, 1, 0, 0, 1], "war": [0, 0, 1, 1, 0]}, index=["a", "b", "c", "d", "e"]
    )
    found = grouped_items(flags, pd.Index(["e", "c", "a"]), 2, 0)
    assert found["e"] == found["a"] != found["c"]
    assert grouped_items(flags, flags.index, 10, 0).nunique() == 2  # no more than there can be


def test_what_cannot_be_is_refused() -> None:
    table = ratings()
    with pytest.raises(ValueError, match="no column 'rating'; found 'user', 'item'"):
        SparseFC(**SMALL).fit(table[["user", "item"]])
    with pytest.raises(ValueError, match=r"rates item .* more than once"):
        SparseFC(**SMALL).fit(pd.concat([table, table[:1]]))
    with pytest.raises(ValueError, match="Column 'user' is empty in row 0"):
        SparseFC(**SMALL).fit(table.assign(user=np.nan))
    with pytest.raises(ValueError, match="says nothing of item 'film"):
        RatingHAE(**SMALL_HAE).fit(table, {"film1": 0})
    with pytest.raises(ValueError, match="n_folds is 7: expected a divisor of n_hidden=20"):
        fitted("RatingHAE", table, n_folds=7)


def movielens(folder: Path, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the training and test ratings of a split, and the genres of all films."""
    path, names = folder / "ml-100k", ["user", "item", "rating", "time"]
    table = pd.read_csv(path / "u.data", sep="\t", header=None, names=names)
    genres = pd.read_csv(path / "u.item", sep="|", header=None, encoding="latin-1", index_col=0)
    order = np.random.RandomState(seed).permutation(len(table))
    return table.iloc[order[10_000:]], table.iloc[order[:10_000]], genres.iloc[:, 4:]


@pytest.mark.slow
@pytest.mark.real
def test_movielens(shared_data: Path) -> None:
    """One split of the twenty in experiments/; the bounds are two errors of one split above."""
    train, test, genres = movielens(shared_data, 2)
    assert error(SparseFC(random_state=0).fit(train), test) < 0.884
    assert error(RatingHAE(random_state=0).fit(train, genres), test) < 0.884
