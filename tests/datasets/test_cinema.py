"""The bundled ratings are what the script makes, and a fit finds the truth behind them."""

import runpy
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from heterofactor import RatingModel
from heterofactor.datasets import load_cinema

FILE = files("heterofactor.datasets").joinpath("data", "cinema.npz")


def test_ratings_are_of_known_users_and_films() -> None:
    cinema = load_cinema()
    ratings = cinema.ratings
    assert set(ratings["user"]) <= set(cinema.user_features.index)
    assert set(ratings["item"]) <= set(cinema.item_features.index)
    assert not ratings.duplicated(["user", "item"]).any()
    assert set(ratings["rating"]) == {1, 2, 3, 4, 5}
    assert cinema.item_features.index.is_unique
    assert cinema.item_flags.to_numpy()[
        np.arange(150), cinema.item_flags.columns.get_indexer(cinema.item_groups)
    ].all()
    assert len(FILE.read_bytes()) < 150_000


def test_ratings_follow_the_truth() -> None:
    cinema = load_cinema()
    users, items = cinema.ratings["user"], cinema.ratings["item"]
    rows, columns = users - 1, cinema.shared_parts.columns.get_indexer(items)
    expected = cinema.mean + cinema.user_offsets[users].to_numpy()
    expected += cinema.item_offsets[items].to_numpy()
    for part in (cinema.shared_parts, cinema.unique_parts):
        expected += part.to_numpy()[rows, columns]
    # the noise of 0.4, and rounding and cutting off, of 0.3 and a little
    assert np.std(cinema.ratings["rating"] - expected) < 0.55


def test_the_truth_is_found() -> None:
    cinema = load_cinema()
    model = RatingModel(2, 1, ridge=(3.0, 3.0), n_rounds=20, n_fits=1, random_state=0)
    model.fit(cinema.ratings, item_groups=cinema.item_groups)
    users, items = np.indices((200, 150)).reshape(2, -1)
    pairs = pd.DataFrame({"user": users + 1, "item": cinema.shared_parts.columns[items]})
    found = model.predict_parts(pairs)
    for part, truth in (("shared", cinema.shared_parts), ("unique", cinema.unique_parts)):
        # thirty ratings a user: what is unique to a genre is known by seven of them
        assert np.corrcoef(found[part], truth.to_numpy().ravel())[0, 1] > 0.8


def test_features_tell_of_users_and_films() -> None:
    cinema = load_cinema()
    for side in ("user", "item"):
        ids = cinema.user_features.index if side == "user" else cinema.item_features.index
        held = cinema.ratings[side].isin(ids[::10])
        model = RatingModel(2, 1, n_fits=4, random_state=0).fit(
            cinema.ratings[~held],
            item_groups=cinema.item_groups,
            user_features=cinema.user_features,
            item_features=cinema.item_features,
        )
        test = cinema.ratings[held]
        assert -model.score(test) < -model.score(test.assign(**{side: "nobody"}))


def test_the_script_makes_the_bundled_file(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "experiments" / "bundle_data.py"
    runpy.run_path(str(script))["bundle_cinema"](tmp_path / "cinema.npz")
    with np.load(tmp_path / "cinema.npz") as one, np.load(str(FILE)) as two:
        assert one.files == two.files
        for key in one.files:
            if one[key].dtype.kind == "f":
                # the singular value decomposition has no sign, and rounding differs by machine
                np.testing.assert_allclose(np.abs(one[key]), np.abs(two[key]), atol=1e-9)
            else:
                np.testing.assert_array_equal(one[key], two[key])
