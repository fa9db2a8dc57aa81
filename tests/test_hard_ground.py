"""Where too little was observed: an answer that is finite, and a warning that names the source."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from heterofactor import HMF, EntryKFold, ObservedEntries
from heterofactor.datasets import make_heterogeneous

Tables = dict[Any, Any]


def made(shared_axis: Any = "features", noise: float = 0.3) -> Any:
    return make_heterogeneous(
        4, n_samples=40, n_features=30, n_shared=2, n_unique=1, noise=noise,
        shared_axis=shared_axis, random_state=0,
    )  # fmt: skip


def with_holes(tables: Tables, share: float = 0.3) -> Tables:
    rng = np.random.default_rng(0)
    return {n: np.where(rng.random(t.shape) < share, np.nan, t) for n, t in tables.items()}


def fit(model: HMF, X: Tables) -> tuple[HMF, list[str]]:
    """Fit; whatever happens, all that the model answers is finite. Return it with its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X)
    assert {warning.category for warning in caught} <= {UserWarning, ConvergenceWarning}
    assert np.isfinite(model.shared_components_).all()
    assert np.isfinite(model.explained_variance_.to_numpy()).all()
    assert np.isfinite(model.score(X))
    for answer in (model.reconstruct(), model.impute(X), model.predict(X)):
        assert all(np.isfinite(table).all() for table in answer.values())
    return model, [str(w.message) for w in caught if w.category is UserWarning]


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "trimmed"])
@pytest.mark.parametrize("shared_axis", ["features", "samples"])
def test_lines_never_observed_are_at_the_centre_or_what_others_say(
    shared_axis: Any, loss: str
) -> None:
    tables = with_holes(made(shared_axis).sources)
    tables["source0"][3], tables["source1"][:, 5] = np.nan, np.nan
    model = HMF(2, 1, loss=loss, shared_axis=shared_axis, max_rounds=50, random_state=0)
    model, said = fit(model, tables)
    lines = sorted(text.partition(": they are")[0] for text in said)
    assert lines == [
        "No entry was observed of some features of source 'source1' (1 of 30)",
        "No entry was observed of some samples of source 'source0' (1 of 40)",
    ]
    if shared_axis == "features":
        filled, centre = model.impute(tables)["source0"][3], model.centres_["source0"]
        np.testing.assert_allclose(filled, centre, atol=1e-9)
        # others observed the feature: what they share says something of it
        assert model.impute(tables)["source1"][:, 5].std() > 0


def test_many_sources_are_one_warning() -> None:
    tables = with_holes({k: np.ones((5, 4)) * np.arange(4) for k in range(9)})
    for table in tables.values():
        table[:, 1], table[:, 0] = np.nan, 1.0
    _, said = fit(HMF(0, 0, ridge=0.1, random_state=0), tables)
    features = [text for text in said if "features of source" in text]
    assert len(features) == 1
    assert "0 (1 of 4), 1 (1 of 4), 2 (1 of 4), 3 (1 of 4), 4 (1 of 4) and 4 more" in features[0]


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_a_source_with_one_entry_leaves_the_others_alone(ridge: float) -> None:
    tables = with_holes(made().sources)
    rest = {name: table for name, table in tables.items() if name != "source2"}
    nearly_nothing = np.full((40, 30), np.nan)
    nearly_nothing[0, 0] = 1.0
    settings = {"ridge": ridge, "max_rounds": 100, "random_state": 0}
    model, said = fit(HMF(2, 1, **settings), tables | {"source2": nearly_nothing})
    few = [text for text in said if "'source2' (1 entries, 70 numbers)" in text]
    # a ridge bounds what few entries say
    assert len(few) == (ridge == 0)
    alone = HMF(2, 1, **settings).fit(rest)
    for name in rest:
        np.testing.assert_allclose(model.reconstruct(name), alone.reconstruct(name), atol=1e-2)


def test_more_numbers_than_entries() -> None:
    tables = with_holes(made().sources, 0.8)
    model, said = fit(HMF(6, 6, max_rounds=50, random_state=0), tables)
    assert not model.converged_
    assert any("do not trust that part" in text for text in said)
    model, said = fit(HMF(6, 6, ridge=1.0, tol=1e-4, random_state=0), tables)
    assert model.converged_
    assert not any("do not trust that part" in text for text in said)


@pytest.mark.parametrize("loss", ["squared", "huber", "trimmed", "poisson", "logistic"])
def test_tables_of_zeros(loss: str) -> None:
    zeros = with_holes({name: np.zeros((40, 30)) for name in "ab"})
    model, said = fit(HMF(2, 1, loss=loss, ridge=0.0, max_rounds=50, random_state=0), zeros)
    for table in model.reconstruct().values():
        np.testing.assert_allclose(table, 0, atol=1e-6)
    certain = "The fit of some entries has become certain in source 'a', 'b'"
    assert any(certain in text for text in said) == (loss in ("poisson", "logistic"))


def test_a_source_without_a_count_among_others() -> None:
    rng = np.random.default_rng(0)
    tables = {n: rng.poisson(np.exp(t)) * 1.0 for n, t in made().sources.items()}
    tables["source1"][:] = 0
    settings: Any = {"loss": "poisson", "max_rounds": 50, "random_state": 0}
    model, said = fit(HMF(2, 1, ridge=0.0, **settings), tables)
    assert any("certain in source 'source1'" in text for text in said)
    np.testing.assert_allclose(model.reconstruct("source1"), 0, atol=1e-3)


def test_answers_that_can_be_told_apart_completely() -> None:
    tables = {name: (table > 0) * 1.0 for name, table in made(noise=0.01).sources.items()}
    model, said = fit(HMF(2, 1, loss="logistic", ridge=0.0, max_rounds=100, random_state=0), tables)
    assert any("certain in source 'source0', 'source1', 'source2', 'source3'" in t for t in said)
    assert any("set a ridge" in text for text in said)
    right = [np.mean((model.reconstruct(n) > 0.5) == t) for n, t in tables.items()]
    assert min(right) > 0.98
    settings = {"ridge": 1.0, "tol": 1e-4, "random_state": 0}
    bounded, said = fit(HMF(2, 1, loss="logistic", **settings), tables)
    assert bounded.converged_ and not said
    assert min(np.mean((bounded.reconstruct(n) > 0.5) == t) for n, t in tables.items()) > 0.95


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_ranks_that_are_too_large_predict_nearly_as_well_with_a_ridge(noise: float) -> None:
    entries = ObservedEntries(with_holes(made(noise=noise).sources))
    train, test = next(EntryKFold(4, random_state=0).split(entries))

    def held_out(n_shared: int, n_unique: int, ridge: float) -> float:
        model = HMF(n_shared, n_unique, ridge=ridge, tol=1e-4, random_state=0)
        return float(model.fit(entries[train]).score(entries[test]))

    ridges = (0.3, 2.0)
    right = max(held_out(2, 1, ridge) for ridge in ridges)
    large = max(held_out(4, 3, ridge) for ridge in ridges)
    assert large > right - 0.1
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        assert held_out(4, 3, 0.0) < large - 1


def test_without_a_ridge_the_advice_is_to_set_one() -> None:
    tables = with_holes(made().sources, 0.6)
    with pytest.warns(ConvergenceWarning, match="lower them or set a ridge"):
        HMF(4, 4, max_rounds=20, random_state=0).fit(tables)
