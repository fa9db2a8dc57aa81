"""Tables with holes and weights: every way to say what was observed is one fit."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.sparse

from heterofactor import HMF
from heterofactor.datasets import make_heterogeneous
from heterofactor.losses import Huber, Trimmed
from heterofactor.metrics import subspace_error
from heterofactor.solvers import Alternating

Tables = dict[Any, Any]
SAMPLES, FEATURES = 40, 30


def made(noise: float = 0.3, shared_axis: Any = "features", seed: int = 0) -> Any:
    return make_heterogeneous(
        4, n_samples=SAMPLES, n_features=FEATURES, n_shared=2, n_unique=1, noise=noise,
        shared_axis=shared_axis, random_state=seed,
    )  # fmt: skip


def with_holes(tables: Tables, share: float = 0.3, seed: int = 0) -> Tables:
    rng = np.random.default_rng(seed)
    return {n: np.where(rng.random(t.shape) < share, np.nan, t) for n, t in tables.items()}


def model(**parameters: Any) -> HMF:
    return HMF(**{"n_shared": 2, "n_unique": 1, "tol": 1e-10, "random_state": 0} | parameters)


def assert_same_fit(one: HMF, other: HMF, within: float = 1e-8) -> None:
    """Compare fitted tables, whose entries are of about the size of one."""
    for name, same in zip(one.source_names_, other.source_names_, strict=True):
        found, expected = (np.asarray(m.reconstruct(n)) for m, n in ((one, name), (other, same)))
        np.testing.assert_allclose(found, expected, atol=within)


TABLES = with_holes(made().sources)
FILLED = {name: np.nan_to_num(table) for name, table in TABLES.items()}
SEEN = {name: np.isfinite(table) * 1.0 for name, table in TABLES.items()}
ROWS = np.repeat(list(TABLES), SAMPLES)


@pytest.fixture(scope="module")
def reference() -> HMF:
    return model().fit(TABLES)


@pytest.mark.parametrize(
    ("X", "arguments"),
    [
        (list(TABLES.values()), {}),
        (np.stack(list(TABLES.values())), {}),
        (np.concatenate(list(TABLES.values())), {"sources": ROWS}),
        ({n: pd.DataFrame(t) for n, t in TABLES.items()}, {}),
        ({n: pd.DataFrame(t).astype("Float64") for n, t in TABLES.items()}, {}),
        ({n: np.ma.masked_invalid(t) for n, t in TABLES.items()}, {}),
        ({n: scipy.sparse.csr_array(t) for n, t in TABLES.items()}, {}),  # stored as NaN
        (FILLED, {"weights": SEEN}),
        (list(FILLED.values()), {"weights": list(SEEN.values())}),
        (np.stack(list(FILLED.values())), {"weights": np.stack(list(SEEN.values()))}),
        (
            np.concatenate(list(FILLED.values())),
            {"sources": ROWS, "weights": np.concatenate(list(SEEN.values()))},
        ),
        (FILLED, {"weights": {n: pd.DataFrame(w) for n, w in SEEN.items()}}),
        (FILLED, {"weights": {n: scipy.sparse.csr_array(w) for n, w in SEEN.items()}}),
        (FILLED, {"weights": {n: w > 0 for n, w in SEEN.items()}}),
        (FILLED, {"weights": {n: 7 * w for n, w in SEEN.items()}}),
        # what has no weight may be anything
        ({n: np.where(SEEN[n] > 0, t, 1e3) for n, t in FILLED.items()}, {"weights": SEEN}),
    ],
    ids=[
        "list", "3-d", "one table", "frames", "nullable", "masked", "sparse with NaN",
        "weights", "weights in a list", "weights in 3-d", "weights of a table", "weights in frames",
        "sparse weights", "boolean weights", "equal weights", "junk under the weights",
    ],
)  # fmt: skip
def test_every_way_to_say_what_is_missing_is_one_fit(
    X: Any, arguments: dict[str, Any], reference: HMF
) -> None:
    assert_same_fit(model().fit(X, **arguments), reference)


@pytest.mark.parametrize("shared_axis", ["features", "samples"])
def test_absent_entries_of_sparse_tables_are_holes(shared_axis: Any) -> None:
    turn = shared_axis == "samples"
    dense = {n: t.T if turn else t for n, t in TABLES.items()}
    sparse = {n: scipy.sparse.csc_array(np.nan_to_num(t)) for n, t in dense.items()}
    expected = model(shared_axis=shared_axis).fit(dense)
    found = model(shared_axis=shared_axis, missing="absent").fit(sparse)
    assert_same_fit(found, expected)
    np.testing.assert_allclose(found.score(sparse), expected.score(dense), rtol=1e-9)
    some = {n: dense[n] if k % 2 else t for k, (n, t) in enumerate(sparse.items())}
    assert_same_fit(model(shared_axis=shared_axis, missing="absent").fit(some), expected)


def test_a_row_of_weight_two_is_a_row_that_is_there_twice() -> None:
    rng = np.random.default_rng(0)
    times = {name: rng.integers(1, 4, SAMPLES) for name in TABLES}
    repeated = {name: np.repeat(table, times[name], axis=0) for name, table in TABLES.items()}
    for parameters in (
        {},
        {"centre": "global"},
        {"centre": None},
        {"scale": "source"},
        {"loss": Huber(threshold=0.3)},
        {"loss": Trimmed(threshold=1.0)},
    ):
        one = model(**parameters).fit(TABLES, weights=times)
        other = model(**parameters).fit(repeated)
        for name, found in one.predict(TABLES).items():
            np.testing.assert_allclose(found, other.predict(TABLES)[name], atol=1e-7)


def test_weights_of_one_on_complete_tables_change_nothing() -> None:
    tables = made().sources
    ones = {name: np.ones(SAMPLES) for name in tables}
    assert_same_fit(model().fit(tables, weights=ones), model().fit(tables))
    some = tables | {"source1": TABLES["source1"]}
    found = model().fit(some)
    assert_same_fit(found, model().fit(list(some.values())))
    assert found.centres_["source0"] == pytest.approx(
        np.mean(found.reconstruct("source0"), axis=0), abs=1e-8
    )


def test_single_precision_stays_single() -> None:
    tables = {name: table.astype(np.float32) for name, table in TABLES.items()}
    answers = {n: np.where(np.isnan(t), t, t > 0).astype("f") for n, t in tables.items()}
    counts = {n: np.round(np.exp(t)) for n, t in tables.items()}
    for loss, X in {
        "squared": tables, "huber": tables, "absolute": tables, "trimmed": tables,
        "logistic": answers, "poisson": counts,
    }.items():  # fmt: skip
        fitted = HMF(2, 1, loss=loss, ridge=0.3, tol=1e-3, random_state=0).fit(X)
        name = fitted.source_names_[0]
        for array in (
            fitted.shared_components_,
            fitted.unique_components_[name],
            fitted.centres_[name],
            fitted.reconstruct(name),
            fitted.transform(X)[name],
            fitted.impute(X)[name],
            fitted.predict(X)[name],
        ):
            assert array.dtype == np.float32, loss
    # rounding of 6e-8, and a tolerance of the fit that it allows for
    single, double = model().fit(tables), model().fit(TABLES)
    assert_same_fit(single, double, within=1e-3)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"loss": "huber"}, {"loss": "trimmed"}, {"ridge": 1.0}, {"centre": "global"},
     {"scale": "source"}, {"shared_axis": "samples"}],
    ids=str,
)  # fmt: skip
def test_torch_tables_with_holes_come_back_as_such(parameters: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    turn = "shared_axis" in parameters
    tables = {name: table.T.copy() if turn else table for name, table in TABLES.items()}
    tensors = {name: torch.asarray(table) for name, table in tables.items()}
    parameters = {"tol": 1e-8, **parameters}
    one, other = model(**parameters).fit(tensors), model(**parameters).fit(tables)
    # other libraries round in another order, and stop in another place within the tolerance
    assert_same_fit(one, other, within=1e-5)
    name = one.source_names_[0]
    assert isinstance(one.impute(tensors)[name], torch.Tensor)
    assert isinstance(one.reconstruct(name), torch.Tensor)
    scores = one.transform(tensors)
    assert isinstance(scores if turn else scores[name], torch.Tensor)
    assert one.score(tensors) == pytest.approx(other.score(tables), rel=1e-5)


def test_frames_keep_their_labels() -> None:
    index, columns = [f"s{k}" for k in range(SAMPLES)], [f"p{k}" for k in range(FEATURES)]
    frames = {n: pd.DataFrame(t, index, columns) for n, t in TABLES.items()}
    fitted = model().fit(frames)
    for found in (fitted.reconstruct(), fitted.impute(frames), fitted.predict(frames)):
        for table in found.values():
            assert table.index.tolist() == index and table.columns.tolist() == columns
            assert not table.isna().any(axis=None)
    # whole numbers that may be missing: filled with numbers that are not whole
    whole = {n: (10 * t).round().astype("Int64") for n, t in frames.items()}
    filled = model().fit(whole).impute(whole)["source0"]
    seen = SEEN["source0"] > 0
    np.testing.assert_array_equal(filled.to_numpy()[seen], np.round(10 * TABLES["source0"][seen]))


def test_ranks_of_zero_and_different_ranks() -> None:
    for ranks in ((2, 0), (0, 2), (0, 0), (1, [0, 1, 2, 0])):
        fitted = HMF(*ranks, ridge=0.1, random_state=0).fit(TABLES)
        assert fitted.shared_components_.shape == (ranks[0], FEATURES)
        for name, table in fitted.predict(TABLES).items():
            assert np.isfinite(table).all()
            np.testing.assert_allclose(fitted.reconstruct(name), table, atol=1e-6)
    only = HMF(0, 0, random_state=0).fit(TABLES)
    # a centre and nothing else: the means of what was observed
    for name, table in TABLES.items():
        np.testing.assert_allclose(only.centres_[name], np.nanmean(table, axis=0), atol=1e-12)


def independent_loss(fitted: HMF, tables: Tables, by_samples: bool) -> tuple[Any, Any]:
    """Return an objective in all parameters of a plain model, and where the fit is in them."""
    names = list(tables)
    factors = fitted.factors_
    start = [factors.shared_basis]
    for name in names:
        start += [factors.unique_bases[name], factors.shared_scores[name]]
        start += [factors.unique_scores[name], fitted.centres_[name]]
    shapes = [np.shape(part) for part in start]
    edges = np.cumsum([0] + [int(np.prod(shape)) for shape in shapes])

    def value(flat: Any) -> tuple[float, Any]:
        parts = [flat[a:b].reshape(s) for a, b, s in zip(edges, edges[1:], shapes, strict=False)]
        slopes = [np.zeros(shape) for shape in shapes]
        total = 0.0
        for k, name in enumerate(names):
            unique, shared_scores, scores, centre = parts[1 + 4 * k : 5 + 4 * k]
            fit = parts[0] @ shared_scores.T + unique @ scores.T
            fit = fit + (centre if by_samples else centre[:, None])
            matrix = tables[name] if by_samples else tables[name].T
            left = np.where(np.isnan(matrix), 0, fit - matrix)
            total += (left**2).sum() / 2
            slopes[0] += left @ shared_scores
            slopes[1 + 4 * k] = left @ scores
            slopes[2 + 4 * k] = left.T @ parts[0]
            slopes[3 + 4 * k] = left.T @ unique
            slopes[4 + 4 * k] = left.sum(axis=0 if by_samples else 1)
        return total, np.concatenate([slope.ravel() for slope in slopes])

    return value, np.concatenate([np.ravel(part) for part in start])


@pytest.mark.parametrize("shared_axis", ["features", "samples"])
def test_no_other_factors_and_centres_fit_better(shared_axis: Any, seed: int) -> None:
    sizes = {"n_samples": 14, "n_features": 12}
    data = make_heterogeneous(
        3, n_shared=1, n_unique=1, noise=0.2, shared_axis=shared_axis, random_state=seed, **sizes
    )
    rng = np.random.default_rng(seed)
    shifted = {name: t + rng.normal(size=t.shape[1]) for name, t in data.sources.items()}
    tables = with_holes(shifted, 0.2, seed)
    fitted = HMF(1, 1, shared_axis=shared_axis, tol=1e-11, random_state=0).fit(tables)
    value, at = independent_loss(fitted, tables, shared_axis == "samples")
    found, slope = value(at)
    assert np.abs(slope).max() < 1e-6
    others = [
        scipy.optimize.minimize(value, rng.normal(size=len(at)), jac=True, method="L-BFGS-B")
        for _ in range(5)
    ]
    assert found <= min(other.fun for other in others) * (1 + 1e-3)


@pytest.mark.parametrize("shared_axis", ["features", "samples"])
def test_centres_are_those_of_the_complete_tables(shared_axis: Any) -> None:
    data = made(noise=0.0, shared_axis=shared_axis)
    rng = np.random.default_rng(0)
    tables = {name: t + rng.normal(size=t.shape[1]) for name, t in data.sources.items()}
    fitted = model(shared_axis=shared_axis, tol=1e-12).fit(with_holes(tables))
    for name, table in tables.items():
        # means of what was observed would be off by what happens to be missing
        np.testing.assert_allclose(fitted.centres_[name], table.mean(axis=0), atol=1e-7)
        np.testing.assert_allclose(fitted.reconstruct(name), table, atol=1e-6)


def test_a_global_centre_is_the_mean_over_all_that_was_observed() -> None:
    fitted = model(centre="global").fit(TABLES)
    expected = np.nanmean(np.concatenate(list(TABLES.values())), axis=0)
    for centre in fitted.centres_.values():
        np.testing.assert_allclose(centre, expected, atol=1e-12)
    assert model(centre=None).fit(TABLES).centres_ == dict.fromkeys(TABLES)


def test_more_entries_bring_the_truth_nearer() -> None:
    truth = made(noise=0.5)
    errors = []
    for share in (0.6, 0.3, 0.0):
        fitted = model(ridge=0.3, tol=1e-6).fit(with_holes(truth.sources, share))
        errors.append(subspace_error(fitted.shared_components_.T, truth.shared_basis))
    assert errors == sorted(errors, reverse=True)


def test_what_cannot_be_meant_is_refused() -> None:
    wrong = TABLES | {"source2": np.full((SAMPLES, FEATURES), np.nan)}
    with pytest.raises(ValueError, match="Source 'source2' has no observed entry at all"):
        model().fit(wrong)
    infinite = {name: table.copy() for name, table in FILLED.items()}
    infinite["source1"][3, 4] = np.inf
    for arguments in ({}, {"weights": SEEN}):
        with pytest.raises(ValueError, match="Source 'source1' contains infinity"):
            model().fit(infinite, **arguments)
    for weights, message in (
        ({"west": np.ones(SAMPLES)}, "weights= names 'west', which is no source"),
        ({"source0": np.ones(7)}, r"weights of source 'source0' have shape \(7,\)"),
        ({"source0": -np.ones(SAMPLES)}, "weights of source 'source0' hold -1"),
        ({"source0": np.full(SAMPLES, np.nan)}, "weights of source 'source0' hold nan"),
    ):
        with pytest.raises(ValueError, match=message):
            model().fit(FILLED, weights=weights)
    with pytest.raises(ValueError, match="has 2 entries, but there are 4 sources"):
        model().fit(list(FILLED.values()), weights=[None, None])
    with pytest.raises(ValueError, match="solver='grassmann' is for complete tables"):
        model(solver="grassmann").fit(TABLES)
    for loss, named in (("logistic", "only 0 and 1"), ("poisson", "only whole numbers from 0 on")):
        with pytest.raises(ValueError, match=f"Source 'source0' holds .*{named}"):
            model(loss=loss).fit(TABLES)


def test_a_ridge_may_be_the_solvers_own() -> None:
    tables = with_holes(made().sources)
    given = HMF(2, 1, solver=Alternating(2, ridge=(1.0, 2.0)), random_state=0).fit(tables)
    same = HMF(2, 1, ridge=(1.0, 2.0), random_state=0).fit(tables)
    name = same.source_names_[0]
    np.testing.assert_array_equal(given.reconstruct(name), same.reconstruct(name))
    np.testing.assert_array_equal(given.transform(tables)[name], same.transform(tables)[name])


@pytest.mark.parametrize("ridge", [(), (1.0,), (1.0, 2.0, 3.0), -1.0, (1.0, np.inf), "much"])
def test_a_ridge_that_is_none_is_refused(ridge: Any) -> None:
    with pytest.raises(ValueError, match="expected a number from zero on, or two"):
        HMF(2, 1, ridge=ridge).fit(made().sources)
