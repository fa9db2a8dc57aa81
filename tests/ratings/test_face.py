"""What every method for ratings must do: the same tables in, the same answers out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from heterofactor import RatingModel
from heterofactor.files import load, save
from heterofactor.ratings.autosvd import AutoSVD
from heterofactor.ratings.blend import Blend
from heterofactor.ratings.completion import MatrixCompletion
from heterofactor.ratings.drift import TimeDrift
from heterofactor.ratings.face import RatingFace

METHODS: dict[str, Callable[..., RatingFace]] = {
    "als": lambda **names: RatingModel(3, 1, n_fits=2, random_state=0, **names),
    "gibbs": lambda **names: RatingModel(
        3, 1, solver="gibbs", n_rounds=20, random_state=0, **names
    ),
    "AutoSVD++": lambda **names: AutoSVD(3, learning_rate=0.02, random_state=0, **names),
    "AutoSVD": lambda **names: AutoSVD(
        3, implicit=False, learning_rate=0.02, max_rounds=40, random_state=0, **names
    ),
    "completion": lambda **names: MatrixCompletion(2, ridge=1.0, random_state=0, **names),
    "blend": lambda **names: Blend(
        [
            ("offsets", RatingModel(0, 0, n_fits=1)),
            ("tastes", RatingModel(3, 1, n_fits=2, random_state=0)),
        ],
        random_state=0,
        **names,
    ),
    "drift": lambda **names: TimeDrift(RatingModel(3, 1, n_fits=2, random_state=0), **names),
}
# Those whose groups know nothing of tastes unless users have features.
WITHOUT_TASTES = {"GHRS"}
try:
    from heterofactor.ratings.ghrs import GHRS
    from heterofactor.ratings.graphrec import GraphRec
    from heterofactor.ratings.hae_ratings import RatingHAE
    from heterofactor.ratings.sparsefc import SparseFC
except ModuleNotFoundError:  # torch is an extra
    pass
else:
    SMALL: dict[str, Any] = {
        "n_hidden": 20, "learning_rate": 0.02, "max_rounds": 100, "random_state": 0,
    }  # fmt: skip
    METHODS["SparseFC"] = lambda **names: SparseFC(ridge=0.3, **SMALL, **names)
    METHODS["RatingHAE"] = lambda **names: RatingHAE(
        ridge=(0.3, 1.0), n_hidden_unique=5, **SMALL, **names
    )
    METHODS["GHRS"] = lambda **names: GHRS(3, max_rounds=50, random_state=0, **names)
    METHODS["GraphRec"] = lambda **names: GraphRec(10, learning_rate=0.01, random_state=0, **names)

# Numbers of single precision, of the size of ratings.
SINGLE = 1e-5


def made(seed: int = 0, share: float = 0.3) -> pd.DataFrame:
    """Return ratings from 1 to 5 of users and items with one taste, named out of order.

    All are of one second, for the method that needs times.
    """
    rng = np.random.default_rng(seed)
    users, items = rng.normal(size=60), rng.normal(size=80)
    table = np.clip(np.round(3 + 1.2 * np.outer(users, items)), 1, 5)
    user, item = np.nonzero(rng.random(table.shape) < share)
    found = pd.DataFrame({"user": user, "item": item, "rating": table[user, item], "time": 0})
    return found.sample(frac=1, random_state=0).assign(
        item=lambda t: "film" + t["item"].astype(str)
    )


TABLE = made()
FITTED: dict[str, RatingFace] = {}


@pytest.fixture(params=list(METHODS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(kind: str) -> RatingFace:
    if kind not in FITTED:
        FITTED[kind] = METHODS[kind]().fit(TABLE)  # type: ignore[attr-defined]
    return FITTED[kind]


@pytest.mark.parametrize("kind", [kind for kind in METHODS if kind not in WITHOUT_TASTES])
def test_hidden_ratings_are_predicted_better_than_by_the_mean(kind: str) -> None:
    train, test = TABLE[:-200], TABLE[-200:]
    found = METHODS[kind]().fit(train)  # type: ignore[attr-defined]
    assert -found.score(test) < 0.8 * test["rating"].std()


def test_one_seed_one_answer_in_any_order(kind: str, model: RatingFace) -> None:
    again = clone(model).fit(TABLE[::-1])
    np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))


def test_one_number_per_pair_in_the_order_of_the_pairs(model: RatingFace) -> None:
    every = model.predict(TABLE)
    np.testing.assert_allclose(model.predict(TABLE[::-1]), every[::-1], atol=SINGLE)
    assert every.shape == (len(TABLE),) and every.min() >= 1 and every.max() <= 5


def test_a_table_has_what_is_predicted_of_its_pairs(model: RatingFace) -> None:
    table = model.predict_table([7, "nobody", 3])
    assert table.index.tolist() == [7, "nobody", 3] and table.columns.equals(model.items_)
    pairs = table.stack().rename_axis(["user", "item"]).rename("found").reset_index()
    np.testing.assert_allclose(model.predict(pairs), pairs["found"], atol=SINGLE)


def test_who_was_never_seen_gets_means(model: RatingFace) -> None:
    by_item = TABLE.groupby("item")["rating"].mean()
    pairs = pd.DataFrame(
        {"user": [-1, -1, -1], "item": [by_item.idxmax(), by_item.idxmin(), "nothing"]}
    )
    best, worst, nothing = model.predict(pairs)
    assert best > nothing > worst
    # the mean over ratings, or over users and items, of which some have more ratings
    assert nothing == pytest.approx(TABLE["rating"].mean(), abs=0.1)


def test_the_best_unseen_items_are_recommended(model: RatingFace) -> None:
    user = TABLE["user"].iloc[0]
    seen = set(TABLE.loc[TABLE["user"] == user, "item"])
    best = model.recommend(user, n=5)
    assert best.is_monotonic_decreasing and not seen & set(best.index)
    rest = model.predict_table([user]).loc[user].drop(list(seen))
    np.testing.assert_allclose(best, rest.nlargest(5), atol=SINGLE)
    assert len(model.recommend(user, n=1000, exclude_seen=False)) == len(model.items_)


def test_a_model_comes_back_from_its_file_to_the_last_bit(
    model: RatingFace, tmp_path: Path
) -> None:
    save(model, tmp_path / "model.safetensors")
    other = load(tmp_path / "model.safetensors")
    assert type(other) is type(model) and other.scale_ == model.scale_
    np.testing.assert_array_equal(other.predict(TABLE), model.predict(TABLE))
    pd.testing.assert_frame_equal(
        other.predict_table([7, "nobody"]), model.predict_table([7, "nobody"]), check_exact=True
    )
    pd.testing.assert_series_equal(other.recommend(7), model.recommend(7), check_exact=True)


def test_columns_may_have_other_names(kind: str, model: RatingFace) -> None:
    renamed = TABLE.rename(columns={"user": "who", "item": "what", "rating": "stars"})
    other = METHODS[kind](user="who", item="what", rating="stars")
    found = other.fit(renamed).predict(renamed)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(found, model.predict(TABLE))


def test_of_two_ratings_of_a_pair_the_last_one_counts(kind: str, model: RatingFace) -> None:
    first = TABLE[:1].assign(rating=6 - TABLE["rating"].iloc[0])
    twice = clone(model).fit(pd.concat([first, TABLE]))
    np.testing.assert_array_equal(twice.predict(TABLE), model.predict(TABLE))


def test_what_cannot_be_is_refused(kind: str) -> None:
    fresh: Any = METHODS[kind]()
    with pytest.raises(ValueError, match="no column 'rating', but 'user', 'item'"):
        fresh.fit(TABLE[["user", "item"]])
    with pytest.raises(ValueError, match="rows without a user or an item"):
        fresh.fit(TABLE.assign(user=np.nan))
    with pytest.raises(ValueError, match="expected finite numbers"):
        fresh.fit(TABLE.assign(rating=np.nan))
    with pytest.raises(ValueError, match="There are no ratings"):
        fresh.fit(TABLE[:0])
    with pytest.raises(TypeError, match="expected a DataFrame"):
        fresh.fit(TABLE.to_numpy())


def test_settings_that_cannot_be_are_refused(kind: str) -> None:
    fresh: Any = METHODS[kind]()
    wrong = {"max_rounds": 0, "n_rounds": 0, "n_hidden": -3, "n_components": 0, "left_out": 1.5,
             "learning_rate": 0.0, "n_shared": -1, "held": 1.0, "n_folds": 0}  # fmt: skip
    for name in wrong.keys() & fresh.get_params(deep=False).keys():
        with pytest.raises(ValueError, match=f"{name} is "):
            clone(fresh).set_params(**{name: wrong[name]}).fit(TABLE)
