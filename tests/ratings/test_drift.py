"""Drift in time: against Gaussian processes with dense matrices, and on ratings that drift."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from heterofactor import RatingModel
from heterofactor.datasets import load_movielens_100k
from heterofactor.ratings.blend import Blend
from heterofactor.ratings.drift import TimeDrift, fit_drift

SCALES, STRENGTHS = (10.0, 300.0, 5000.0), (0.3, 0.2, 0.1)
OFFSETS = RatingModel(0, 0, n_fits=1)


def kernel(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    gap = np.abs(one[:, None] - other)
    return sum(v * np.exp(-gap / s) for v, s in zip(STRENGTHS, SCALES, strict=True))


def test_agrees_with_dense_gaussian_processes(seed: int) -> None:
    """Users with one, with few and with many ratings, some of one second, out of order."""
    rng = np.random.default_rng(seed)
    user = rng.permutation(np.repeat([2, 3, 7], [1, 5, 60]))
    time = rng.integers(0, 3000, len(user)).astype(float)
    time[user == 7] = rng.integers(0, 40, 60)  # nearly all seconds are there twice
    left = rng.normal(size=len(user))
    asked_user = np.repeat([2, 3, 7, 5, 9, -1], 20)
    asked = np.concatenate([time[:40], rng.uniform(-500, 4000, 80)])
    expected = np.zeros(len(asked))
    for who in (2, 3, 7):
        mine, at = user == who, asked_user == who
        gram = kernel(time[mine], time[mine]) + np.eye(mine.sum())
        expected[at] = kernel(asked[at], time[mine]) @ np.linalg.solve(gram, left[mine])
    found = fit_drift(user, time, left, SCALES, STRENGTHS).at(asked_user, asked)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert (found[asked_user == 5] == 0).all() and (found[asked_user == -1] == 0).all()


def moody(seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ratings from sessions, in each of which a user is strict or mild by half a point."""
    rng = np.random.default_rng(seed)
    user = np.repeat(np.arange(40), 60)
    item = np.concatenate([rng.permutation(100)[:60] for _ in range(40)])
    session = np.tile(np.repeat(np.arange(6), 10), 40)
    mood = rng.choice([-0.5, 0.5], size=(40, 6))[user, session]
    good = rng.normal(size=100)[item]
    time = 86400.0 * session + rng.integers(0, 300, len(user))
    table = pd.DataFrame({"user": user, "item": item, "time": time})
    table["rating"] = 3 + good + mood + 0.5 * rng.normal(size=len(user))
    table = table.sample(frac=1, random_state=seed)
    return table[:2000], table[2000:]


def test_moods_of_sessions_are_found() -> None:
    train, test = moody()
    plain = TimeDrift(OFFSETS, scales=[3000], strengths=[1.0], clip=False).fit(train)
    without, within = plain.predict(test.drop(columns="time")), plain.predict(test)
    before = np.mean((test["rating"] - without) ** 2)
    after = np.mean((test["rating"] - within) ** 2)
    # moods are 0.25 of variance, of which eight ratings of variance 0.25 leave a ninth
    assert before - after == pytest.approx(0.25 * 8 / 9, abs=0.05)
    alone = RatingModel(0, 0, n_fits=1, clip=False).fit(train)
    np.testing.assert_array_equal(without, alone.predict(test))
    np.testing.assert_array_equal(plain.predict_table(), alone.predict_table())


def test_no_time_is_like_another_user_or_another_day() -> None:
    """What one user is off by says nothing of others, nor of times that are far away."""
    train, test = moody()
    model = TimeDrift(OFFSETS).fit(train)
    far = test.assign(time=1e12)
    np.testing.assert_allclose(model.predict(far), model.predict(test.drop(columns="time")))
    new = test.assign(user="nobody")
    np.testing.assert_array_equal(model.predict(new), model.predict(new.drop(columns="time")))


def test_order_and_units_of_time_do_not_matter() -> None:
    train, test = moody()
    model = TimeDrift(OFFSETS).fit(train)
    found = model.predict(test)
    np.testing.assert_array_equal(TimeDrift(OFFSETS).fit(train[::-1]).predict(test), found)
    dated = [t.assign(time=pd.to_datetime(t["time"], unit="s")) for t in (train, test)]
    np.testing.assert_allclose(TimeDrift(OFFSETS).fit(dated[0]).predict(dated[1]), found)
    named = [t.rename(columns={"time": "when", "user": "who"}) for t in (train, test)]
    renamed = TimeDrift(OFFSETS, time="when", user="who").fit(named[0])
    np.testing.assert_array_equal(renamed.predict(named[1]), found)


def test_of_two_ratings_of_a_pair_the_time_of_the_last_one_counts() -> None:
    train, test = moody()
    first = train[:50].assign(time=lambda t: t["time"] - 1e7, rating=1.0)
    twice = TimeDrift(OFFSETS).fit(pd.concat([first, train]))
    np.testing.assert_array_equal(twice.predict(test), TimeDrift(OFFSETS).fit(train).predict(test))


def test_the_model_is_given_its_tables_and_left_as_it_was() -> None:
    train, _ = moody()
    model = RatingModel(1, 1, n_fits=1, random_state=0)
    groups = {item: item % 2 for item in range(100)}
    found = TimeDrift(model).fit(train, item_groups=groups)
    assert found.model_.item_groups_.to_dict() == {i: groups[i] for i in found.items_}
    assert not hasattr(model, "users_")


def test_a_blend_may_drift() -> None:
    """The best combination of models, corrected by times."""
    train, test = moody()
    blend = Blend([("offsets", OFFSETS), ("tastes", RatingModel(1, 0, n_fits=1, random_state=0))],
                  random_state=0)  # fmt: skip
    model = TimeDrift(blend, scales=[3000], strengths=[1.0]).fit(train)
    assert model.score(test) > blend.fit(train).score(test) + 0.1


def test_what_cannot_be_is_refused() -> None:
    train, _ = moody()

    def fit(table: pd.DataFrame = train, **settings: Any) -> None:
        TimeDrift(OFFSETS, **settings).fit(table)

    with pytest.raises(ValueError, match="There is no column 'time' of times"):
        fit(train.drop(columns="time"))
    with pytest.raises(ValueError, match="expected as many positive numbers in both"):
        fit(scales=[1.0])
    with pytest.raises(ValueError, match="expected as many positive numbers in both"):
        fit(scales=[0.0], strengths=[1.0])
    with pytest.raises(ValueError, match="holds neither numbers nor times"):
        fit(train.assign(time="soon"))
    with pytest.raises(ValueError, match="holds no time in row"):
        fit(train.assign(time=np.where(train["user"] == 3, np.nan, train["time"])))


@pytest.mark.real
def test_people_are_stricter_at_some_times_than_at_others(shared_data: Path) -> None:
    """On MovieLens by some 0.016; the standard error of such a difference is 0.001."""
    ratings = load_movielens_100k(shared_data / "ml-100k").ratings
    order = np.random.RandomState(0).permutation(len(ratings))
    train, test = ratings.iloc[order[10_000:]], ratings.iloc[order[:10_000]]
    model = TimeDrift(RatingModel(n_fits=2, random_state=0)).fit(train)
    assert model.score(test) - model.score(test.drop(columns="time")) > 0.01
    shuffled = test.assign(time=test["time"].to_numpy()[::-1])
    assert model.score(shuffled) < model.score(test) - 0.01
