"""Draws are draws from the posterior: against closed forms, made truths and held-out ratings."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.exceptions import ConvergenceWarning

from heterofactor import RatingModel
from heterofactor.datasets import MadeRatings, load_movielens_100k, make_ratings
from heterofactor.ratings.gibbs import draw_tastes, lines_of, perturb_and_solve
from heterofactor.ratings.normals import draw_around, draw_population, likeness
from heterofactor.ratings.reading import Columns, read_ratings


@pytest.fixture(scope="module")
def made() -> MadeRatings:
    return make_ratings(120, 90, n_ratings=4_000, n_groups=3, step=None, random_state=0)


@pytest.fixture(scope="module")
def model(made: MadeRatings) -> RatingModel:
    held = np.arange(4_000) % 5 == 0
    return small().fit(made.ratings[~held], item_groups=made.item_groups)


def small(**settings: Any) -> RatingModel:
    given = {"n_shared": 3, "n_unique": 2, "solver": "gibbs", "n_rounds": 80, "random_state": 0}
    return RatingModel(**given | settings)


def test_perturbing_and_solving_draws_from_the_posterior() -> None:
    rng = np.random.default_rng(0)
    line, other = np.divmod(np.arange(24), 6)
    weights, noise = rng.uniform(0.5, 2, 24), 0.7
    targets, frame = rng.normal(size=24), rng.normal(size=(6, 2))
    root = rng.normal(size=(2, 2))
    precision, means = root @ root.T + np.eye(2), rng.normal(size=(4, 2))
    lines = lines_of(line, other, weights, 4)
    n = 20_000
    draws = np.empty((n, 4, 2))
    for k in range(n):
        prior = draw_around(means, precision, rng)
        draws[k] = perturb_and_solve(
            lines, frame, prior, precision[None], targets, 1 / np.sqrt(weights), noise, rng
        )
    for j in range(4):
        w = weights[line == j] / noise**2
        expected = np.linalg.inv((frame.T * w) @ frame + precision)
        mean = expected @ (frame.T @ (w * targets[line == j]) + precision @ means[j])
        # five standard errors of a mean, and of a variance, of that many draws
        np.testing.assert_allclose(draws[:, j].mean(axis=0), mean, atol=5 * 0.8 / n**0.5)
        np.testing.assert_allclose(np.cov(draws[:, j].T), expected, atol=5 * 0.8 / n**0.5)


def test_features_tell_likeness(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(9, 4))
    expected = np.linalg.inv(features @ features.T + np.eye(9))
    np.testing.assert_allclose(likeness(features).inverse, expected, atol=1e-12)


def test_means_follow_features_that_matter() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(500, 3))
    effects = rng.normal(size=(3, 2))
    vectors = features @ effects + rng.standard_normal((500, 2))
    like = likeness(features)
    draws = [draw_population(vectors, like, rng) for _ in range(50)]
    # two means and six weights, each known to 1 / sqrt(500): 0.09 in a vector; twice that
    means = np.mean([means for means, _ in draws], axis=0)
    assert np.sqrt(np.mean((means - features @ effects) ** 2)) < 0.18
    # two standard errors of a variance of 500
    np.testing.assert_allclose(np.mean([each for _, each in draws], axis=0), np.eye(2), atol=0.13)
    alone, _ = draw_population(vectors, None, rng)
    assert np.ptp(alone, axis=0).max() == 0


def test_draws_of_a_population_have_the_posterior_of_its_mean() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(2.0, 1.0, size=(50, 1))
    centres = np.array([draw_population(vectors, None, rng)[0][0, 0] for _ in range(4_000)])
    shrunk = 50 / 52 * vectors.mean()
    scatter = 1 + np.sum((vectors - vectors.mean()) ** 2) + 2 * 50 / 52 * vectors.mean() ** 2
    # Normal-Wishart: the mean is Student's t with 51 degrees of freedom
    law = scipy.stats.t(51, loc=shrunk, scale=np.sqrt(scatter / 51 / 52))
    assert scipy.stats.kstest(centres, law.cdf).pvalue > 1e-3


def test_an_interrupt_keeps_the_draws_so_far(made: MadeRatings) -> None:
    ratings = read_ratings(made.ratings, Columns())
    given: dict[str, Any] = {"n_shared": 2, "n_unique": 1, "implicit": False, "seed": 0}
    group = np.arange(90) % 2

    def stop(number: int) -> None:
        if number == 20:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match=r"after 19 of 100 rounds: the 10 draws so far"):
        found = draw_tastes(ratings, group, n_rounds=100, watch=stop, **given)
    whole = draw_tastes(ratings, group, n_rounds=100, **given)
    # the same chain, to rounding: products of stacks may be summed in another order
    np.testing.assert_allclose(found.rows, whole.rows[:10], atol=1e-10)
    with pytest.raises(KeyboardInterrupt):
        draw_tastes(ratings, group, n_rounds=300, watch=stop, **given)


def test_a_bar_shows_progress(made: MadeRatings, capsys: pytest.CaptureFixture[str]) -> None:
    small(n_rounds=4, verbose=1).fit(made.ratings)
    assert "4/4" in capsys.readouterr().err
    small(n_rounds=4).fit(made.ratings)
    assert not capsys.readouterr().err


def test_noise_is_found(model: RatingModel) -> None:
    # 3,200 ratings leave two digits of it, of which tastes take a little
    np.testing.assert_allclose(np.mean(model._tastes.noise), 0.5, rtol=0.15)


def test_intervals_hold_what_they_promise(model: RatingModel, made: MadeRatings) -> None:
    test = made.ratings[np.arange(4_000) % 5 == 0]
    for level, slack in ((0.5, 0.06), (0.9, 0.04)):  # three standard errors of 800 ratings
        bounds = model.predict_interval(test, level)
        inside = (bounds["lower"] <= test["rating"]) & (test["rating"] <= bounds["upper"])
        assert abs(inside.mean() - level) < slack


def test_nobody_is_less_certain_than_a_stranger(model: RatingModel, made: MadeRatings) -> None:
    wide = model.set_params(clip=False).predict_interval(
        pd.DataFrame({"user": ["nobody", "user3"], "item": ["item1", "item1"]})
    )
    width = wide["upper"] - wide["lower"]
    assert width[0] > 1.2 * width[1]


def test_draws_predict_better_than_one_fit(made: MadeRatings) -> None:
    held = np.arange(4_000) % 5 == 0
    train, test = made.ratings[~held], made.ratings[held]
    one = small(solver="als", n_rounds=20, n_fits=1, ridge=(3.0, 3.0))
    errors = [
        -model.fit(train, item_groups=made.item_groups).score(test)
        for model in (small(implicit=False), one)
    ]
    assert errors[0] < errors[1]


def test_one_seed_gives_one_answer(made: MadeRatings) -> None:
    pairs = made.ratings.head(50)
    one, two, other = (
        small(n_rounds=5, random_state=k).fit(made.ratings).predict(pairs) for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 0


def test_new_users_are_learned(made: MadeRatings) -> None:
    late = made.ratings["user"].isin(made.ratings["user"].value_counts().index[:10])
    held = late & (np.arange(len(late)) % 3 == 0)
    model = small().fit(made.ratings[~late], item_groups=made.item_groups)
    before = -model.score(made.ratings[held])
    model.add_ratings(made.ratings[late & ~held])
    assert -model.score(made.ratings[held]) < 0.8 * before


def test_weights_make_ratings_certain(made: MadeRatings) -> None:
    ratings = read_ratings(made.ratings.assign(weight=4.0), Columns())
    heavy = small(n_rounds=30, implicit=False).fit(made.ratings.assign(weight=4.0))
    plain = small(n_rounds=30, implicit=False).fit(made.ratings)
    assert ratings.weighted
    # of ratings that all count four times, the noise of one that counts once is twice as large
    np.testing.assert_allclose(
        np.mean(heavy._tastes.noise), 2 * np.mean(plain._tastes.noise), rtol=0.1
    )


def test_intervals_need_draws(made: MadeRatings) -> None:
    model = small(solver="als", n_rounds=None).fit(made.ratings)
    with pytest.raises(ValueError, match="gives no intervals: fit with solver='gibbs'"):
        model.predict_interval(made.ratings)


def test_who_rated_what_is_compared_up_to_a_limit() -> None:
    many = pd.DataFrame({"user": range(10_001), "item": 0, "rating": 1.0})
    with pytest.raises(ValueError, match=r"all 10,001 users or items.*set implicit=False"):
        small().fit(many)


@pytest.mark.real
@pytest.mark.slow
def test_held_out_ratings_of_movielens(shared_data: Any) -> None:
    movies = load_movielens_100k(shared_data / "ml-100k")
    order = np.random.RandomState(0).permutation(100_000)
    test, train = movies.ratings.iloc[order[:10_000]], movies.ratings.iloc[order[10_000:]]
    model = RatingModel(10, 2, solver="gibbs", n_rounds=60, random_state=0)
    model.fit(train, item_groups=movies.item_flags, item_features=movies.item_flags)
    bounds = model.predict_interval(test)
    inside = (bounds["lower"] <= test["rating"]) & (test["rating"] <= bounds["upper"])
    assert -model.score(test) < 0.88
    assert 0.87 < inside.mean() < 0.93
