"""A source that is added to a fit gets what it would have got in the fit."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from heterofactor import HMF
from heterofactor.datasets import make_heterogeneous
from heterofactor.losses import Huber


def made(loss: Any, shared_axis: Any) -> dict[Any, Any]:
    data = make_heterogeneous(
        3, n_samples=40, n_features=30, n_shared=2, n_unique=1, noise=0.3,
        shared_axis=shared_axis, random_state=0,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    tables = {}
    for name, table in data.sources.items():
        observed = {"logistic": table > 0, "poisson": np.round(np.exp(table))}.get(loss, table)
        tables[name] = np.where(rng.random(table.shape) < 0.2, np.nan, observed)
    return tables


@pytest.mark.parametrize("shared_axis", ["features", "samples"])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"ridge": 1.0},
        {"ridge": (0.5, 2.0)},
        {"ridge": 1.0, "centre": None},
        {"ridge": 0.005, "scale": "source"},
        {"scale": "source"},
        {"loss": Huber(threshold=0.5)},
        {"loss": Huber(threshold=0.5), "ridge": 1.0},
        {"loss": "logistic", "ridge": 1.0},
        {"loss": "poisson", "ridge": 1.0},
    ],
    ids=str,
)
def test_a_copy_of_a_source_joins_as_the_source_did(
    parameters: dict[str, Any], shared_axis: Any
) -> None:
    tables = made(parameters.get("loss"), shared_axis)
    settings = {"tol": 1e-6, "max_rounds": 3000} | parameters
    model = HMF(2, 1, shared_axis=shared_axis, random_state=0, **settings).fit(tables)
    model.add_source("copy", tables["source1"])
    found, expected = model.reconstruct("copy"), model.reconstruct("source1")
    # both have settled to a tolerance, at rates that may be slow
    assert np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected)
    for part in ("shared", "unique"):
        one, other = model.reconstruct("copy", part=part), model.reconstruct("source1", part=part)
        assert np.linalg.norm(one - other) < 0.03 * np.linalg.norm(other)
    if shared_axis == "features":
        again = model.predict({"copy": tables["source1"]})["copy"]
        assert np.linalg.norm(again - found) < 0.01 * np.linalg.norm(expected)


def test_a_sparse_source_joins_as_a_dense_one() -> None:
    tables = made(None, "features")
    model = HMF(2, 1, ridge=0.5, missing="absent", random_state=0).fit(tables)
    model.add_source("dense", tables["source2"])
    sparse = scipy.sparse.csr_array(np.nan_to_num(tables["source2"]))
    model.add_source("sparse", sparse)
    found, expected = model.reconstruct("sparse"), model.reconstruct("dense")
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_complete_source_joins_under_the_ridge_of_the_fit() -> None:
    tables = {name: np.nan_to_num(table) for name, table in made(None, "features").items()}
    model = HMF(2, 1, ridge=1.0, centre="global", random_state=0).fit(tables)
    model.add_source("copy", tables["source1"])
    found, expected = model.reconstruct("copy"), model.reconstruct("source1")
    np.testing.assert_allclose(found, expected, atol=1e-5)
