"""HMF: the reference optimum, recovery, one fit however data are given, the contract."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from heterofactor import HMF
from heterofactor.datasets import HeterogeneousData, make_heterogeneous
from heterofactor.metrics import subspace_error
from heterofactor.solvers import Averaging, Grassmann
from reference import RESIDUAL, SHARED_ENERGIES, UNIQUE_ENERGIES, Linear


@parametrize_with_checks(
    [HMF(), HMF(2, 0), HMF(0, 1, centre=None), HMF(solver="averaging", tol=1e-4)]
)
def test_scikit_learn_contract(estimator: HMF, check: object) -> None:
    with warnings.catch_warnings():
        # Algorithm 1 may take more than the default number of rounds on some of these data
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


def fitted(data: HeterogeneousData, *ranks: int, **parameters: object) -> HMF:
    return HMF(*ranks, **{"random_state": 0, **parameters}).fit(data.sources)


def errors(model: HMF, data: HeterogeneousData) -> tuple[float, float]:
    """Squared subspace error of the shared basis, and the mean one of the unique bases."""
    unique = [
        subspace_error(model.unique_components_[name].T, basis)
        for name, basis in data.unique_bases.items()
    ]
    return subspace_error(model.shared_components_.T, data.shared_basis), float(np.mean(unique))


def orthogonality(model: HMF) -> float:
    """Return the largest deviation from orthonormal bases that are orthogonal to each other."""
    shared = model.shared_components_
    worst = np.abs(shared @ shared.T - np.eye(len(shared))).max(initial=0)
    for unique in model.unique_components_.values():
        worst = max(worst, np.abs(unique @ unique.T - np.eye(len(unique))).max(initial=0))
        worst = max(worst, np.abs(shared @ unique.T).max(initial=0))
    return float(worst)


@pytest.mark.parametrize(
    ("solver", "within", "energies_within"),
    [("grassmann", 1e-9, 1e-6), (Averaging(2, tol=1e-7), 1e-6, 1e-3)],
    ids=["grassmann", "averaging"],
)
def test_reference_optimum(
    reference: Linear, solver: object, within: float, energies_within: float
) -> None:
    model = HMF(2, [2, 2, 1], centre=None, tol=1e-10, solver=solver, max_rounds=20_000)
    table = model.fit([matrix.T for matrix in reference.sources]).explained_variance_
    # the residual is stationary, and so found to twice the digits of its two parts
    assert table["residual"].sum() == pytest.approx(RESIDUAL, abs=within)
    assert table["shared"].to_numpy() == pytest.approx(SHARED_ENERGIES, abs=energies_within)
    assert table["unique"].to_numpy() == pytest.approx(UNIQUE_ENERGIES, abs=energies_within)


def test_both_solvers_find_the_same_subspaces(reference: Linear) -> None:
    tables = [matrix.T for matrix in reference.sources]
    one = HMF(2, [2, 2, 1], centre=None, tol=1e-10).fit(tables)
    slow = Averaging(2, tol=1e-7)
    two = HMF(2, [2, 2, 1], centre=None, solver=slow, max_rounds=20_000).fit(tables)
    assert subspace_error(one.shared_components_.T, two.shared_components_.T) ** 0.5 < 1e-6
    for name in one.source_names_:
        between = subspace_error(one.unique_components_[name].T, two.unique_components_[name].T)
        assert between**0.5 < 1e-6


@pytest.mark.parametrize("n_features", [30, 60, 120])
@pytest.mark.parametrize("scores", ["orthonormal", "gaussian"])
def test_noise_free_setting_of_the_paper_is_solved_exactly(n_features: int, scores: str) -> None:
    data = make_heterogeneous(100, 100, n_features, scores=scores, random_state=0)
    # errors are squared: 1e-24 is an angle of 1e-12
    assert max(errors(fitted(data, 3, 3, centre=None, tol=1e-13), data)) < 1e-24


def test_truth_is_recovered_up_to_the_noise(seed: int) -> None:
    sizes, ranks = [40, 80, 120, 60], [1, 2, 3, 2]
    data = make_heterogeneous(4, sizes, 50, 3, ranks, noise=0.01, random_state=seed)
    model = HMF(3, ranks, centre=None, random_state=seed).fit(data.sources)
    # relative noise of 1e-2 spread over 50 features: squared angles of about 1e-4 times a few
    assert max(errors(model, data)) < 3e-3
    assert model.converged_


def test_spread_singular_values_and_misaligned_bases_still_converge(seed: int) -> None:
    data = make_heterogeneous(6, 40, 30, noise=0.1, alignment=0.7, spread=10, random_state=seed)
    model = fitted(data, 3, 3, tol=1e-9, max_rounds=100)
    assert model.converged_
    assert model.history_["gradient"].iloc[-1] < 1e-9


def test_restarts_find_nothing_better_than_the_default(seed: int) -> None:
    data = make_heterogeneous(5, 40, 25, noise=0.3, alignment=0.5, spread=10, random_state=seed)
    values = fitted(data, 3, 2, n_restarts=5).history_.groupby("start")["value"].last()
    default = values[[name for name in values.index if name not in random_names(5)]].iloc[0]
    assert default <= values.min() + 1e-9 * abs(values.min())


def random_names(count: int) -> list[str]:
    return [f"random {k}" for k in range(1, count + 1)]


@given(
    n_shared=st.integers(0, 3),
    ranks=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    centre=st.sampled_from(["source", "global", None]),
    scale=st.sampled_from(["source", None]),
    shared_axis=st.sampled_from(["features", "samples"]),
    seed=st.integers(0, 1000),
)
def test_parts_are_orthogonal_and_add_up(
    n_shared: int, ranks: list[int], centre: str, scale: str, shared_axis: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    own = rng.integers(4, 12, size=len(ranks))
    shapes = [(n, 7) if shared_axis == "features" else (7, n) for n in own]
    tables = [rng.normal(size=shape) @ np.diag(rng.uniform(0, 2, shape[1])) for shape in shapes]
    if shared_axis == "samples" and centre == "global":
        centre = "source"
    model = HMF(n_shared, ranks, centre=centre, scale=scale, shared_axis=shared_axis, tol=1e-5)
    with warnings.catch_warnings():
        # pure noise has many flat directions: not every draw converges within the default rounds
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(tables)
    assert orthogonality(model) < 1e-12
    shares = model.explained_variance_ratio_
    assert shares.to_numpy().min() > -1e-12
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-12)
    for name, table in zip(model.source_names_, tables, strict=True):
        both = model.reconstruct(name)
        parts = model.reconstruct(name, part="shared") + model.reconstruct(name, part="unique")
        offset = 0 if model.centres_[name] is None else model.centres_[name]
        assert both == pytest.approx(parts + offset, abs=1e-12)
        left = ((table - both) ** 2).sum()
        # the residual of the table is the difference of two sums of squares of its own size
        assert left == pytest.approx(model.explained_variance_.loc[name, "residual"], abs=1e-10)


def test_list_dict_and_labelled_table_are_one_fit() -> None:
    data = make_heterogeneous(12, 20, 15, 2, 1, noise=0.1, random_state=3)
    stacked, labels = data.stacked()
    shuffled = np.random.default_rng(0).permutation(len(labels))
    by_dict = fitted(data, 2, 1)
    by_list = HMF(2, 1, random_state=0).fit(list(data.sources.values()))
    by_label = HMF(2, 1, random_state=0).fit(stacked[shuffled], sources=labels[shuffled])
    assert by_list.shared_components_ == pytest.approx(by_dict.shared_components_, abs=1e-12)
    assert by_label.shared_components_ == pytest.approx(by_dict.shared_components_, abs=1e-9)
    scores = by_dict.transform(stacked[shuffled], sources=labels[shuffled])
    expected = np.empty_like(scores)
    expected[np.argsort(shuffled)] = scores
    together = np.concatenate(list(by_dict.transform(data.sources).values()))
    assert scores[np.argsort(shuffled)] == pytest.approx(together, abs=1e-12)


def test_fit_transform_is_fit_and_transform(seed: int) -> None:
    data = make_heterogeneous(4, 30, 20, 2, 2, noise=0.2, random_state=seed)
    model = HMF(2, 2, random_state=0)
    at_once = model.fit_transform(data.sources)
    for name, scores in at_once.items():
        assert np.array_equal(scores, model.transform(data.sources)[name])
        kept = np.hstack([model.factors_.shared_scores[name], model.factors_.unique_scores[name]])
        assert scores == pytest.approx(kept, abs=1e-10)


def test_components_are_canonical(seed: int) -> None:
    data = make_heterogeneous(5, 60, 20, 3, 2, noise=0.1, spread=3, random_state=seed)
    model = fitted(data, 3, 2)
    together = np.vstack(list(model.factors_.shared_scores.values()))
    gram = together.T @ together
    assert np.abs(gram - np.diag(np.diag(gram))).max() < 1e-10 * gram.max()
    assert (np.diff(np.diag(gram)) <= 0).all()
    for component in [*model.shared_components_, *model.unique_components_["source0"]]:
        assert component[np.abs(component).argmax()] > 0


def test_order_of_sources_and_samples_does_not_matter(seed: int) -> None:
    data = make_heterogeneous(5, 30, 20, 2, 2, noise=0.1, random_state=seed)
    rng = np.random.default_rng(seed)
    turned = {n: t[rng.permutation(len(t))] for n, t in reversed(data.sources.items())}
    one, two = fitted(data, 2, 2, tol=1e-10), HMF(2, 2, tol=1e-10).fit(turned)
    assert one.shared_components_ == pytest.approx(two.shared_components_, abs=1e-8)


def test_rotated_features_rotate_the_components(seed: int) -> None:
    data = make_heterogeneous(5, 30, 20, 2, 2, noise=0.1, random_state=seed)
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(20, 20)))[0]
    one = fitted(data, 2, 2, tol=1e-10)
    two = HMF(2, 2, tol=1e-10).fit({name: table @ turn for name, table in data.sources.items()})
    rotated = (one.shared_components_ @ turn).T
    assert subspace_error(rotated, two.shared_components_.T) < 1e-16


def test_single_precision_stays_and_agrees(seed: int) -> None:
    data = make_heterogeneous(6, 40, 30, 2, 2, noise=0.1, random_state=seed)
    single = HMF(2, 2).fit({n: t.astype(np.float32) for n, t in data.sources.items()})
    assert single.shared_components_.dtype == np.float32
    assert single.transform(data.sources["source0"].astype("f4"), sources="source0").dtype == "f4"
    # angles to the precision of single numbers, which the relative gradient can resolve
    assert errors(single, data)[0] == pytest.approx(errors(fitted(data, 2, 2), data)[0], abs=1e-6)
    assert orthogonality(single) < 1e-5


def test_torch_goes_through_and_comes_back(seed: int) -> None:
    torch = pytest.importorskip("torch")
    data = make_heterogeneous(6, 40, 30, 2, 2, noise=0.1, random_state=seed)
    tensors = {name: torch.tensor(table) for name, table in data.sources.items()}
    model, same = HMF(2, 2, random_state=0).fit(tensors), fitted(data, 2, 2)
    for found in (model.shared_components_, model.transform(tensors)["source1"]):
        assert isinstance(found, torch.Tensor)
    assert isinstance(model.reconstruct("source0"), torch.Tensor)
    assert model.shared_components_.numpy() == pytest.approx(same.shared_components_, abs=1e-10)
    assert model.explained_variance_.equals(model.explained_variance_)
    assert model.score(tensors) == pytest.approx(same.score(data.sources), abs=1e-12)


def test_sparse_sources_are_centred_without_becoming_dense(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [scipy.sparse.random_array((50, 20), density=0.2, rng=rng, format="csr")] * 2
    tables.append(scipy.sparse.random_array((30, 20), density=0.3, rng=rng, format="coo"))
    sparse = HMF(2, 1, tol=1e-10, random_state=0).fit(tables)
    dense = HMF(2, 1, tol=1e-10, random_state=0).fit([t.toarray() for t in tables])
    assert subspace_error(sparse.shared_components_.T, dense.shared_components_.T) < 1e-14
    expected = dense.explained_variance_.to_numpy()
    assert sparse.explained_variance_.to_numpy() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("size", [1e-140, 1e140])
def test_units_of_the_data_do_not_matter(size: float) -> None:
    data = make_heterogeneous(4, 30, 20, 2, 1, noise=0.1, random_state=0)
    model = HMF(2, 1, random_state=0).fit({n: size * t for n, t in data.sources.items()})
    assert model.shared_components_ == pytest.approx(
        fitted(data, 2, 1).shared_components_, abs=1e-7
    )
    assert model.reconstruct("source0") / size == pytest.approx(
        fitted(data, 2, 1).reconstruct("source0"), abs=1e-6
    )


def test_scaled_sources_count_the_same() -> None:
    data = make_heterogeneous(3, 40, 20, 2, 1, noise=0.3, random_state=0)
    grown = {name: 10**k * table for k, (name, table) in enumerate(data.sources.items())}
    even, plain = fitted(data, 2, 1, scale="source"), HMF(2, 1, scale="source").fit(grown)
    assert subspace_error(even.shared_components_.T, plain.shared_components_.T) < 1e-12
    assert even.explained_variance_ratio_.to_numpy() == pytest.approx(
        plain.explained_variance_ratio_.to_numpy(), abs=1e-6
    )
    drowned = HMF(2, 1).fit(grown)
    assert subspace_error(even.shared_components_.T, drowned.shared_components_.T) > 1e-6


@pytest.mark.parametrize(
    "tables",
    [
        {"a": np.ones((9, 8)), "b": np.ones((5, 8))},
        {"a": np.zeros((9, 8)), "b": np.random.default_rng(0).normal(size=(9, 8))},
        {"a": np.outer(np.arange(9.0), np.ones(8)), "b": np.outer(np.ones(5), np.arange(8.0))},
        {"a": np.random.default_rng(0).normal(size=(2, 8)), "b": np.eye(8)},
    ],
    ids=["constant", "one zero", "rank one", "fewer samples than ranks"],
)
def test_deficient_sources_have_orthonormal_bases(tables: dict[str, np.ndarray]) -> None:
    model = HMF(2, 2).fit(tables)
    assert orthogonality(model) < 1e-12
    assert np.isfinite(model.explained_variance_.to_numpy()).all()
    assert np.isfinite(np.vstack(list(model.transform(tables).values()))).all()


def test_a_new_source_gets_its_own_part_and_the_shared_one_stays(seed: int) -> None:
    data = make_heterogeneous(6, 40, 30, 2, 2, noise=0.05, random_state=seed)
    *old, new = data.sources
    model = HMF(2, 2, random_state=0).fit({name: data.sources[name] for name in old})
    shared = model.shared_components_.copy()
    model.add_source(new, data.sources[new])
    assert np.array_equal(model.shared_components_, shared)
    assert model.source_names_ == [*old, new]
    off = data.sources[new] - data.sources[new].mean(axis=0)
    off = off - off @ shared.T @ shared
    best = np.linalg.svd(off)[2][:2]
    # the best unique basis given the shared one is a singular value decomposition
    assert subspace_error(model.unique_components_[new].T, best.T) < 1e-12
    assert model.transform(data.sources[new], sources=new).shape == (40, 4)
    assert set(model.reconstruct()) == {*old, new}
    with pytest.raises(ValueError, match="already"):
        model.add_source(new, data.sources[new])


def test_samples_of_a_source_never_seen_have_shared_scores_only() -> None:
    data = make_heterogeneous(3, 40, 30, 2, 2, noise=0.05, random_state=0)
    model = fitted(data, 2, 2, centre=None)
    scores = model.transform(data.sources["source1"])
    known = model.transform(data.sources["source1"], sources="source1")
    assert np.array_equal(scores[:, :2], known[:, :2])
    assert not scores[:, 2:].any()
    with pytest.warns(UserWarning, match="'source9' was not in the fit, whose sources are"):
        named = model.transform(data.sources["source1"], sources="source9")
    assert np.array_equal(named, scores)


def test_shared_samples_are_the_transposed_problem(seed: int) -> None:
    data = make_heterogeneous(
        3, 40, [10, 20, 30], 2, 2, noise=0.1, shared_axis="samples", random_state=seed
    )
    model = fitted(data, 2, 2, shared_axis="samples", centre=None, tol=1e-10)
    turned = HMF(2, 2, centre=None, tol=1e-10).fit({n: t.T for n, t in data.sources.items()})
    assert subspace_error(model.shared_components_.T, turned.shared_components_.T) < 1e-16
    scores = model.transform(data.sources)
    assert scores.shape == (40, 2 + 3 * 2)
    # new rows are fitted to all sources together; those of the fit come back
    assert scores[:, :2] == pytest.approx(model.factors_.shared_basis, abs=1e-6)


def test_frames_keep_their_labels() -> None:
    data = make_heterogeneous(2, 8, 5, 1, 1, noise=0.1, random_state=0)
    days = pd.date_range("2020-01-01", periods=8)
    frames = {n: pd.DataFrame(t, days, list("abcde")) for n, t in data.sources.items()}
    model = HMF(1, 1).fit(frames).set_output(transform="pandas")
    scores = model.transform(frames)["source1"]
    assert list(scores.columns) == ["shared0", "unique0"]
    assert scores.index.equals(days)
    part = model.reconstruct("source0", part="unique")
    assert part.index.equals(days)
    assert list(part.columns) == list("abcde")
    assert list(model.feature_names_in_) == list("abcde")


def test_sources_are_routed_through_searches_and_pipelines() -> None:
    import sklearn

    data = make_heterogeneous(3, 60, 12, 2, 1, noise=0.1, random_state=0)
    X, labels = data.stacked()
    with sklearn.config_context(enable_metadata_routing=True):
        model = HMF(random_state=0).set_fit_request(sources=True).set_score_request(sources=True)
        model.set_transform_request(sources=True)
        folds = KFold(3, shuffle=True, random_state=0)
        search = GridSearchCV(model, {"n_shared": [1, 2], "n_unique": [0, 1]}, cv=folds)
        search.fit(X, sources=labels)
        steps = make_pipeline(StandardScaler(with_std=False), clone(model).set_params(n_shared=2))
        scores = steps.fit(X, sources=labels).transform(X, sources=labels)
    assert search.best_params_ == {"n_shared": 2, "n_unique": 1}
    # noise of a tenth of the signal is a hundredth of the variance
    assert search.best_score_ > 0.98
    alone = HMF(2, 1, random_state=0).fit(X, sources=labels).transform(X, sources=labels)
    assert scores == pytest.approx(alone, abs=1e-6)


def test_one_seed_is_one_answer() -> None:
    data = make_heterogeneous(4, 30, 20, 2, 2, noise=0.5, alignment=0.7, random_state=0)
    one, two = (fitted(data, 2, 2, random_state=7) for _ in range(2))
    assert np.array_equal(one.shared_components_, two.shared_components_)
    assert np.array_equal(clone(one).fit(data.sources).shared_components_, one.shared_components_)


def test_stopping_early_warns_and_keeps_the_best() -> None:
    data = make_heterogeneous(4, 30, 20, 2, 2, noise=0.3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_rounds=1"):
        model = fitted(data, 2, 2, max_rounds=1)
    assert not model.converged_
    assert "Not solved" in str(model.diagnostics_)
    assert orthogonality(model) < 1e-12


def test_diagnostics_tell_a_weak_direction_and_unique_parts_that_look_alike() -> None:
    clear = make_heterogeneous(8, 60, 30, 2, 2, noise=0.05, random_state=0)
    alike = make_heterogeneous(8, 60, 30, 2, 2, noise=0.05, alignment=0.99, random_state=0)
    assert "Every source has the shared directions" in str(fitted(clear, 2, 2).diagnostics_)
    assert "weak or missing" in str(fitted(clear, 3, 2).diagnostics_)
    assert "nearly every unique part" in str(fitted(alike, 2, 2).diagnostics_)
    assert fitted(clear, 2, 2).diagnostics_.misalignment == pytest.approx(
        clear.misalignment, abs=0.02
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_shared": 1.5}, "n_shared is 1.5: expected an integer"),
        ({"n_shared": True}, "n_shared is True"),
        ({"tol": 0}, "tol is 0: expected a positive number"),
        ({"max_rounds": 0}, "max_rounds is 0"),
        ({"centre": "mean"}, "centre is 'mean': expected one of 'source', 'global', None"),
        ({"scale": "all"}, "scale is 'all'"),
        ({"solver": "sgd"}, "solver is 'sgd': expected one of"),
        ({"engine": "ray"}, "engine is 'ray': expected one of"),
        ({"loss": "cubic"}, "loss is 'cubic': expected one of"),
        ({"ridge": -1}, "ridge is -1: expected a number from zero on"),
        ({"missing": "zeros"}, "missing is 'zeros': expected one of"),
        ({"shared_axis": "rows"}, "shared_axis is 'rows'"),
        ({"n_shared": 4, "n_unique": 2}, "need 6 features, but the sources share 5"),
    ],
)
def test_wrong_parameters_say_what_was_expected(parameters: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HMF(**parameters).fit({"a": np.eye(5), "b": np.ones((4, 5))})


def test_an_object_that_is_no_loss_is_refused() -> None:
    with pytest.raises(TypeError, match=r"loss is 7, which has no value, slope and majorise"):
        HMF(loss=7).fit({"a": np.eye(5)})  # type: ignore[arg-type]


def test_unknown_source_says_which_there_are() -> None:
    data = make_heterogeneous(2, 20, 10, 1, 1, random_state=0)
    with pytest.raises(ValueError, match="no source 'north' in the fit; its sources are"):
        fitted(data, 1, 1).reconstruct("north")


def test_columns_in_another_order_are_refused() -> None:
    data = make_heterogeneous(2, 8, 5, 1, 1, noise=0.1, random_state=0)
    frames = {n: pd.DataFrame(t, columns=list("abcde")) for n, t in data.sources.items()}
    model = HMF(1, 1).fit(frames)
    turned = {name: frame[list("edcba")] for name, frame in frames.items()}
    with pytest.raises(ValueError, match="number 0 is 'e', not 'a'"):
        model.transform(turned)


def test_scaled_sources_that_share_samples_give_the_fit_back() -> None:
    data = make_heterogeneous(2, 30, [8, 7], 2, 1, noise=0.2, shared_axis="samples", random_state=0)
    data.sources["source1"][:] *= 100
    model = HMF(2, 1, shared_axis="samples", scale="source", tol=1e-10).fit(data.sources)
    shared, _ = model.transform_parts(data.sources)
    assert shared == pytest.approx(model.factors_.shared_basis, abs=1e-6)


def test_a_solver_object_keeps_its_settings_and_takes_the_ranks() -> None:
    data = make_heterogeneous(2, 20, 10, 2, 1, noise=0.1, random_state=0)
    model = fitted(data, 2, 1, solver=Grassmann(n_shared=9, tol=1e-3))
    assert model.converged_
    assert 1e-8 < model.diagnostics_.stationarity < 1e-3
    assert model.shared_components_.shape == (2, 10)
