"""New samples with holes are scored by what was observed of them, under the loss of the fit."""

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from heterofactor import HMF
from heterofactor.datasets import make_heterogeneous
from heterofactor.files import load, save
from heterofactor.losses import Huber, Trimmed

LOSSES: dict[str, Any] = {
    "squared": "squared",
    "huber": Huber(threshold=0.5),
    "trimmed": Trimmed(threshold=1.5),
    "logistic": "logistic",
    "poisson": "poisson",
}


def made(
    loss: str = "squared", shared_axis: Any = "features", seed: int = 0
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return tables with holes to fit, and new samples with holes."""
    sizes = {"n_samples": 60, "n_features": 25}
    data = make_heterogeneous(
        3, n_shared=1, n_unique=1, noise=0.3, shared_axis=shared_axis, random_state=seed, **sizes
    )
    rng = np.random.default_rng(seed)
    tables = {}
    for name, table in data.sources.items():
        z = table / table.std() + 0.3
        observed = {
            "logistic": lambda z: rng.random(z.shape) < scipy.special.expit(z),
            "poisson": lambda z: rng.poisson(np.exp(z / 2)),
        }.get(loss, lambda z: z)(z)
        tables[name] = np.where(rng.random(z.shape) < 0.25, np.nan, observed)
    return (
        {name: table[:-10] for name, table in tables.items()},
        {name: table[-10:] for name, table in tables.items()},
    )


def fitted(loss: str, tables: Any, **parameters: Any) -> HMF:
    # some sample's answers can always be told apart completely: only a ridge bounds its scores
    ridge = 1.0 if loss == "logistic" else 0.0
    parameters = {"tol": 1e-6, "max_rounds": 2000, "ridge": ridge} | parameters
    return HMF(1, 1, loss=LOSSES[loss], random_state=0, **parameters).fit(tables)


@pytest.mark.parametrize("centre", ["source", "global", None])
def test_scores_are_least_squares_on_what_was_observed(centre: Any) -> None:
    tables, new = made()
    model = fitted("squared", tables, centre=centre)
    for name, table in new.items():
        basis = np.hstack([model.shared_components_.T, model.unique_components_[name].T])
        offset = 0 if centre is None else model.centres_[name]
        found = model.transform(table, sources=name)
        for row, scores in zip(table - offset, found, strict=True):
            seen = np.isfinite(row)
            expected, *_ = np.linalg.lstsq(basis[seen], row[seen], rcond=None)
            np.testing.assert_allclose(scores, expected, atol=1e-9)
    unseen = model.transform(new["source0"])
    assert (unseen[:, 1:] == 0).all() and np.isfinite(unseen).all()


@pytest.mark.parametrize("scale", [None, "source"])
def test_rows_shared_by_sources_are_least_squares_on_all_of_them(scale: Any) -> None:
    tables, new = made(shared_axis="samples")
    for k, name in enumerate(tables):  # other units, and other shares of holes
        more = np.random.default_rng(k).random(tables[name].shape) < 0.15 * k
        tables[name] = np.where(more, np.nan, tables[name]) * 3.0**k
        new[name] = new[name] * 3.0**k
    model = fitted("squared", tables, shared_axis="samples", scale=scale, tol=1e-9)
    shared, unique = model.transform_parts(new)
    weight = dict.fromkeys(tables, 1.0)
    if scale:
        means = {name: np.nanmean(table, axis=0) for name, table in tables.items()}
        weight = {n: np.nansum((t - means[n]) ** 2) ** -0.5 for n, t in tables.items()}
    names = list(tables)
    for row in range(len(shared)):
        design, target = [], []
        for k, name in enumerate(names):
            seen = np.isfinite(new[name][row])
            block = np.zeros((seen.sum(), 1 + len(names)))
            block[:, :1] = model.factors_.shared_scores[name][seen]
            block[:, 1 + k : 2 + k] = model.factors_.unique_scores[name][seen]
            design.append(block * weight[name])
            left = new[name][row][seen] - model.centres_[name][seen]
            target.append(left * weight[name])
        expected, *_ = np.linalg.lstsq(np.vstack(design), np.concatenate(target), rcond=None)
        np.testing.assert_allclose(shared[row], expected[:1], atol=1e-8)
        np.testing.assert_allclose([unique[n][row, 0] for n in names], expected[1:], atol=1e-8)
    again, own = model.transform_parts(tables)
    np.testing.assert_allclose(again, model.factors_.shared_basis, atol=1e-6)
    for name in names:
        np.testing.assert_allclose(own[name], model.factors_.unique_bases[name], atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_other_scores_have_a_smaller_loss(loss: str) -> None:
    tables, new = made(loss)
    model = fitted(loss, tables)
    for name, table in new.items():
        basis = np.hstack([model.shared_components_.T, model.unique_components_[name].T])
        centre, scores = model.centres_[name], model.transform(table, sources=name)
        # the ridge is on the scores as the solver had them, in a frame that is not orthonormal
        raw = np.linalg.inv(model._turned[name]) if model._turned else np.zeros((2, 2))

        for row, found in zip(table, scores, strict=True):
            seen = np.isfinite(row)
            best = scipy.optimize.minimize(
                objective, found, (model.loss_, row[seen], centre[seen], basis[seen], raw),
                method="Nelder-Mead", tol=1e-9,
            )  # fmt: skip
            here = objective(found, model.loss_, row[seen], centre[seen], basis[seen], raw)
            assert here <= best.fun + 1e-4 * abs(best.fun)


def objective(x: Any, loss: Any, observed: Any, centre: Any, basis: Any, raw: Any) -> float:
    return float(loss.value(observed, centre + basis @ x).sum() + ((raw @ x) ** 2).sum() / 2)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shared_axis", ["features", "samples"])
def test_fit_transform_is_fit_and_transform(loss: str, shared_axis: Any) -> None:
    tables, _ = made(loss, shared_axis)
    for ridge in (1.0,) if loss in ("logistic", "poisson") else (0.0, 1.0):
        settings: dict[str, Any] = {"shared_axis": shared_axis, "ridge": ridge, "tol": 1e-5}
        model = fitted(loss, tables, **settings)
        found = model.transform(tables)
        again = fitted(loss, tables, **settings).fit_transform(tables)
        for one, other in zip(listed(found), listed(again), strict=True):
            np.testing.assert_array_equal(one, other)
        if loss == "trimmed":
            continue  # of several best scores for a sample, another may be found
        for name, table in model.predict(tables).items():
            # the scores of the fit and those of its samples settle at slow rates of their own
            expected = model.reconstruct(name)
            assert np.linalg.norm(table - expected) < 0.01 * np.linalg.norm(expected)


def listed(scores: Any) -> list[Any]:
    return list(scores.values()) if isinstance(scores, dict) else [scores]


@pytest.mark.parametrize("loss", LOSSES)
def test_holes_are_filled_on_the_scale_of_the_data_and_nothing_else_changes(loss: str) -> None:
    tables, new = made(loss)
    model = fitted(loss, tables)
    expected, filled = model.predict(new), model.impute(new)
    everywhere = model.impute(new, everywhere=True)
    for name, table in new.items():
        seen = np.isfinite(table)
        np.testing.assert_array_equal(filled[name][seen], table[seen])
        np.testing.assert_array_equal(filled[name][~seen], expected[name][~seen])
        np.testing.assert_array_equal(everywhere[name], expected[name])
        scores = model.transform(table, sources=name)
        basis = np.hstack([model.shared_components_.T, model.unique_components_[name].T])
        z = scores @ basis.T + model.centres_[name]
        link = {"logistic": scipy.special.expit, "poisson": np.exp}.get(loss, lambda z: z)
        np.testing.assert_allclose(expected[name], link(z), rtol=1e-9, atol=1e-12)
        parts = [model.reconstruct(name, part=part) for part in ("shared", "unique")]
        whole = link(sum(parts) + model.centres_[name])
        np.testing.assert_allclose(model.reconstruct(name), whole, rtol=1e-9, atol=1e-12)
    # the expected counts and shares of answers are those that were observed, on the whole
    if loss in ("logistic", "poisson"):
        observed = np.concatenate([t[np.isfinite(t)] for t in tables.values()])
        fit = np.concatenate([model.reconstruct(n)[np.isfinite(t)] for n, t in tables.items()])
        assert fit.mean() == pytest.approx(observed.mean(), rel=0.01)


def test_a_source_of_which_nothing_was_observed_is_predicted_from_the_others() -> None:
    data = make_heterogeneous(
        3, n_shared=3, n_unique=1, noise=0.1, shared_axis="samples", n_samples=60, n_features=25,
        random_state=0,
    )  # fmt: skip
    model = HMF(3, 1, shared_axis="samples", centre=None, random_state=0)
    model.fit({name: table[:50] for name, table in data.sources.items()})
    new = {name: table[50:] for name, table in data.sources.items()}
    hidden = new | {"source2": np.full((10, 25), np.nan)}
    found, truth = model.predict(hidden)["source2"], new["source2"]
    assert np.sum((found - truth) ** 2) < 0.5 * np.sum(truth**2)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_saved_model_scores_imputes_and_knows_its_outliers(loss: str, tmp_path: Any) -> None:
    tables, new = made(loss)
    for parameters in ({}, {"ridge": (1.0, 0.5)}, {"scale": "source"}):
        model = fitted(loss, tables, **parameters)
        save(model, tmp_path / "model.safetensors")
        again = load(tmp_path / "model.safetensors")
        assert again.loss_ == model.loss_
        assert again.score(new) == model.score(new)
        for name, table in model.impute(new).items():
            np.testing.assert_array_equal(again.impute(new)[name], table)
            np.testing.assert_array_equal(again.reconstruct(name), model.reconstruct(name))
        for name, part in getattr(model, "outliers_", {}).items():
            assert (again.outliers_[name] != part).nnz == 0
