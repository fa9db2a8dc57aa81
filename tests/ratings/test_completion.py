"""Completion of raw ratings: what HMF finds of them, by pairs."""

import numpy as np
import pandas as pd
import pytest

from heterofactor import HMF
from heterofactor.ratings.completion import MatrixCompletion

RNG = np.random.default_rng(0)
USERS, ITEMS = 40, 60
GROUP = pd.Series(np.where(np.arange(ITEMS) < 25, "near", "far"), index=np.arange(ITEMS))


def truth(n_unique: int) -> np.ndarray:
    """Return a table of rank one, and one more in each group."""
    rng = np.random.default_rng(1)
    table = np.outer(rng.normal(size=USERS), rng.normal(size=ITEMS))
    for name in ("near", "far"):
        at = np.flatnonzero(GROUP.eq(name).to_numpy())
        for _ in range(n_unique):
            table[:, at] += np.outer(rng.normal(size=USERS), rng.normal(size=len(at)))
    return table


def observed(table: np.ndarray, share: float = 0.6) -> tuple[pd.DataFrame, pd.DataFrame]:
    every = pd.DataFrame(np.argwhere(np.ones_like(table)), columns=["user", "item"])
    every["rating"] = table.ravel()
    some = np.random.default_rng(2).random(len(every)) < share
    return every[some], every[~some]


@pytest.mark.parametrize("n_unique", [0, 1])
def test_a_table_of_low_rank_is_completed(n_unique: int) -> None:
    """Without noise, what is missing is found to the tolerance of the fit."""
    train, rest = observed(truth(n_unique))
    groups = GROUP if n_unique else None
    model = MatrixCompletion(1, tol=1e-8, clip=False, random_state=0).fit(train, groups)
    np.testing.assert_allclose(model.predict(rest), rest["rating"], atol=1e-5)


@pytest.mark.parametrize("solver", ["alternating", "averaging"])
def test_it_is_hmf_on_the_table_of_each_group(solver: str) -> None:
    train, rest = observed(truth(1) + 0.1 * RNG.normal(size=(USERS, ITEMS)))
    settings = {"solver": solver, "tol": 1e-3, "max_rounds": 20000}
    model = MatrixCompletion(1, 1, **settings, random_state=0).fit(train, GROUP)
    table = np.full((USERS, ITEMS), np.nan)
    table[train["user"], train["item"]] = train["rating"]
    sources = {name: table[:, GROUP.eq(name).to_numpy()] for name in ("far", "near")}
    plain = HMF(1, 1, shared_axis="samples", centre=None, **settings, random_state=0).fit(sources)
    expected = np.empty_like(table)
    for name in sources:
        expected[:, GROUP.eq(name).to_numpy()] = plain.reconstruct(name)
    bounds = train["rating"].min(), train["rating"].max()
    at = rest["user"], rest["item"]
    # two fits, each stopped within its tolerance of the best one
    np.testing.assert_allclose(model.predict(rest), np.clip(expected[at], *bounds), atol=0.05)
    assert model.item_groups_.equals(GROUP.rename("group"))


def test_without_groups_nothing_is_unique() -> None:
    train, _ = observed(truth(0))
    model = MatrixCompletion(1, 3, random_state=0).fit(train)
    assert model.model_.n_unique == 0 and model.model_.source_names_ == ["all"]


def test_a_ridge_shrinks() -> None:
    train, rest = observed(truth(0))
    loose, tight = (
        MatrixCompletion(1, ridge=ridge, random_state=0).fit(train).predict(rest)
        for ridge in (0.0, 20.0)
    )
    assert np.sum(tight**2) < 0.9 * np.sum(loose**2)
