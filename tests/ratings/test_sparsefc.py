"""Auto-encoders of ratings: SparseFC, and HAE with groups of items."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from heterofactor.ratings.hae_ratings import RatingHAE  # noqa: E402
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


def test_scores_of_items_are_as_the_networks_have_them() -> None:
    """A prediction is a product of scores of item and user, and their offsets."""
    table = ratings()
    model = fitted("RatingHAE", table)
    assert model.item_scores_.shape == (80, 20) and model.user_basis_.shape == (60, 20)
    full = model.item_scores_ @ model.user_basis_.T + model.user_offsets_
    full = full + model.item_offsets_[:, None]
    item = list(model.items_).index("film7")
    pairs = pd.DataFrame({"user": model.users_, "item": "film7"})
    np.testing.assert_allclose(model.predict(pairs), np.clip(full[item], 1, 5), rtol=1e-5)


def test_what_cannot_be_is_refused() -> None:
    table = ratings()
    with pytest.raises(ValueError, match="item_groups has no row for"):
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
    """One split of the twenty in experiments/; where a fit begins changes it by 0.001 to 0.002."""
    train, test, genres = movielens(shared_data, 2)
    assert error(SparseFC(random_state=0).fit(train), test) < 0.882
    assert error(RatingHAE(random_state=0).fit(train, genres), test) < 0.870
