"""Scores of samples are least-squares solutions, and those of the fit for its own samples."""

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from heterofactor import HMF
from heterofactor.brought import read_tables
from heterofactor.scores import centre_of, score_samples

# the scores of a fit are those of bases converged to a relative gradient of 1e-10
CONVERGED = 1e-6
EXACT = 1e-9  # well-conditioned least squares in double precision


def tables(axis: str = "features", seed: int = 0) -> dict[str, np.ndarray]:
    """Draw three noisy sources with clear ranks, two shared and one or two unique."""
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(2, 12))
    found = {}
    for name, length, rank in (("a", 20, 1), ("b", 30, 2), ("c", 25, 1)):
        shared = rng.normal(size=(length, 2)) @ basis
        unique = 0.7 * rng.normal(size=(length, rank)) @ rng.normal(size=(rank, 12))
        found[name] = shared + unique + 0.1 * rng.normal(size=(length, 12)) + rng.normal(size=12)
    return found if axis == "features" else {name: t.T.copy() for name, t in found.items()}


def fitted(axis: Any = "features", seed: int = 0, **settings: Any) -> HMF:
    settings = {"tol": 1e-10, "random_state": 0, "shared_axis": axis} | settings
    return HMF(2, {"a": 1, "b": 2, "c": 1}, **settings).fit(tables(axis, seed))


def new_samples(axis: str = "features", seed: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    if axis == "features":
        return {name: rng.normal(size=(n, 12)) for name, n in (("a", 3), ("b", 4), ("c", 2))}
    return {name: rng.normal(size=(4, n)) for name, n in (("a", 20), ("b", 30), ("c", 25))}


@pytest.mark.parametrize("centre", ["source", "global", None])
@pytest.mark.parametrize("scale", ["source", None])
def test_training_samples_have_the_scores_of_the_fit(centre, scale, seed):
    model = fitted(seed=seed, centre=centre, scale=scale)
    shared, unique = model.transform_parts(tables(seed=seed))
    for name in "abc":
        np.testing.assert_allclose(
            shared[name], model.factors_.shared_scores[name], rtol=0, atol=EXACT
        )
        np.testing.assert_allclose(
            unique[name], model.factors_.unique_scores[name], rtol=0, atol=EXACT
        )


@pytest.mark.parametrize("centre", ["source", None])
def test_training_samples_have_the_bases_of_the_fit_where_samples_are_shared(centre, seed):
    model = fitted("samples", seed, centre=centre)
    shared, unique = model.transform_parts(tables("samples", seed))
    np.testing.assert_allclose(shared, model.factors_.shared_basis, rtol=0, atol=CONVERGED)
    for name in "abc":
        np.testing.assert_allclose(
            unique[name], model.factors_.unique_bases[name], rtol=0, atol=CONVERGED
        )


def test_sources_that_count_equally_in_the_fit_do_so_in_its_scores(seed):
    X = tables("samples", seed)
    X["b"] = 50 * X["b"]
    model = HMF(2, 1, shared_axis="samples", scale="source", tol=1e-10, random_state=0).fit(X)
    found = score_samples(
        model.factors_,
        model.centres_,
        read_tables(X, shared_axis="samples"),
        list(X),
        equally=True,
    )
    np.testing.assert_allclose(found[0][0], model.factors_.shared_basis, rtol=0, atol=CONVERGED)


def test_new_samples_have_least_squares_scores(seed):
    model, X = fitted(seed=seed), new_samples(seed=seed)
    found = model.transform(X)
    for name in "abc":
        components = np.vstack([model.shared_components_, model.unique_components_[name]])
        centred = X[name] - model.centres_[name]
        expected = np.linalg.lstsq(components.T, centred.T, rcond=None)[0].T
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=EXACT)


def test_new_rows_of_shared_samples_solve_one_least_squares_problem(seed):
    model, X = fitted("samples", seed), new_samples("samples", seed)
    shared, unique = model.transform_parts(X)
    factors, names = model.factors_, ["a", "b", "c"]
    ranks = [factors.unique_scores[name].shape[1] for name in names]
    ends = 2 + np.cumsum([0, *ranks])
    design = np.zeros((ends[-1], sum(X[name].shape[1] for name in names)))
    column = 0
    for name, first, last in zip(names, ends[:-1], ends[1:], strict=True):
        width = X[name].shape[1]
        design[:2, column : column + width] = factors.shared_scores[name].T
        design[first:last, column : column + width] = factors.unique_scores[name].T
        column += width
    rows = np.hstack([X[name] - model.centres_[name] for name in names])
    expected = np.linalg.lstsq(design.T, rows.T, rcond=None)[0].T
    found = np.hstack([shared, *(unique[name] for name in names)])
    np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT)
    np.testing.assert_allclose(model.transform(X), found, rtol=0, atol=EXACT)


def test_a_subset_of_sources_is_fitted_by_itself(seed):
    model, X = fitted("samples", seed), new_samples("samples", seed)
    found = model.transform({"b": X["b"]})
    factors = model.factors_
    design = np.hstack([factors.shared_scores["b"], factors.unique_scores["b"]])
    expected = np.linalg.lstsq(design, (X["b"] - model.centres_["b"]).T, rcond=None)[0].T
    names = list(model.get_feature_names_out())
    of_b = [k for k, name in enumerate(names) if name.startswith(("shared", "b_"))]
    np.testing.assert_allclose(found[:, of_b], expected, rtol=0, atol=EXACT)
    assert not np.delete(found, of_b, axis=1).any()


def test_a_dict_of_some_sources_gives_those_back():
    model, X = fitted(), new_samples()
    found = model.transform({"c": X["c"], "a": X["a"]})
    assert list(found) == ["c", "a"]
    np.testing.assert_array_equal(found["a"], model.transform(X)["a"])


@pytest.mark.parametrize("label", ["a", "b"])
def test_one_table_of_one_source_is_scored_as_in_a_dict(label):
    model, table = fitted(), new_samples()[label]
    expected = model.transform({label: table})[label]
    found = model.transform(table, sources=label)
    assert found.shape == (len(table), 4)  # as wide as the widest source
    np.testing.assert_allclose(found[:, : expected.shape[1]], expected, rtol=0, atol=EXACT)
    assert not found[:, expected.shape[1] :].any()


def test_one_table_with_labels_is_scored_row_by_row():
    model, X = fitted(), new_samples()
    table = np.vstack([X["a"], X["b"], X["c"]])
    labels = np.repeat(list("abc"), [3, 4, 2])
    order = np.random.default_rng(0).permutation(9)
    found = model.transform(table[order], sources=labels[order])
    for row, label in zip(order, labels[order], strict=True):
        alone = model.transform(table[row : row + 1], sources=label)[0]
        place = list(order).index(row)
        np.testing.assert_allclose(found[place], alone, rtol=0, atol=EXACT)


def test_a_source_never_seen_has_shared_scores_about_the_mean_of_the_centres():
    model, table = fitted(), new_samples()["a"]
    centre = np.mean([model.centres_[name] for name in "abc"], axis=0)
    shared, unique = model.transform_parts(table)
    np.testing.assert_allclose(
        shared, (table - centre) @ model.shared_components_.T, rtol=0, atol=EXACT
    )
    assert unique.shape == (3, 2) and not unique.any()


def test_the_centre_of_a_source_never_seen_is_none_where_nothing_was_subtracted():
    assert centre_of({"a": None, "b": None}, None) is None


@pytest.mark.parametrize("axis", ["features", "samples"])
def test_sparse_samples_are_scored_like_dense_ones(axis):
    model, X = fitted(axis), new_samples(axis)
    sparse = {name: scipy.sparse.csr_array(table) for name, table in X.items()}
    for found, expected in zip(
        model.transform_parts(sparse), model.transform_parts(X), strict=True
    ):
        pairs = found.items() if isinstance(found, dict) else [(None, found)]
        for name, one in pairs:
            other = expected if name is None else expected[name]
            np.testing.assert_allclose(one, other, rtol=0, atol=EXACT)


@pytest.mark.parametrize(("n_shared", "n_unique"), [(0, 2), (2, 0)])
@pytest.mark.parametrize("axis", ["features", "samples"])
def test_a_part_without_components_has_empty_scores(n_shared, n_unique, axis):
    model = HMF(n_shared, n_unique, shared_axis=axis, random_state=0).fit(tables(axis))
    X = new_samples(axis)
    shared, unique = model.transform_parts(X)
    shared = shared["a"] if axis == "features" else shared
    rows = X["a"].shape[0]
    assert shared.shape == (rows, n_shared) and unique["a"].shape == (rows, n_unique)


def test_a_source_without_energy_has_no_scores_and_leaves_those_of_others():
    X = tables("samples") | {"z": np.zeros((12, 6))}
    model = HMF(2, 1, shared_axis="samples", tol=1e-10, random_state=0).fit(X)
    shared, unique = model.transform_parts(X)
    np.testing.assert_allclose(shared, model.factors_.shared_basis, rtol=0, atol=CONVERGED)
    assert np.isfinite(unique["z"]).all()


def refused(message: str) -> Any:
    return pytest.raises(ValueError, match=re.escape(message))


def test_a_name_that_is_no_source():
    model = fitted()
    unseen = "'north' was not in the fit, whose sources are 'a', 'b', 'c'"
    with pytest.warns(UserWarning, match=unseen):
        by_key = model.transform({"north": np.ones((2, 12))})["north"]
    with pytest.warns(UserWarning, match=unseen):
        by_label = model.transform(np.ones((2, 12)), sources="north")
    assert np.array_equal(by_key, by_label[:, : by_key.shape[1]])


def test_a_list_of_another_length():
    with refused("X is a list of 2 tables, but the fit has 3 sources"):
        fitted().transform([np.ones((2, 12))] * 2)


def test_another_number_of_features():
    with refused("X has 11 features, but HMF is expecting 12 features as input."):
        fitted().transform({"a": np.ones((2, 11))})


def test_shared_samples_without_a_word_on_the_source():
    with refused("new samples need to say which columns are of which source"):
        fitted("samples").transform(np.ones((4, 20)))


def test_new_samples_with_infinities():
    with refused("Source 'a' contains infinity: 1 of its entries, the first in row 1, column 2."):
        table = np.ones((2, 12))
        table[1, 2] = np.inf
        fitted().transform({"a": table})
