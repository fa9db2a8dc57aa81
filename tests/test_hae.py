"""HAE: the face of HMF, on networks."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

torch = pytest.importorskip("torch")

from heterofactor import HAE, EntryKFold, ObservedEntries  # noqa: E402
from heterofactor.datasets import make_heterogeneous  # noqa: E402
from heterofactor.files import load, save  # noqa: E402

FAST: dict[str, Any] = {"n_scores": 8, "hidden": (12,), "max_rounds": 60, "random_state": 0}
# Networks compute in single precision.
SINGLE = 1e-5


def tables(noise: float = 0.1) -> dict[str, np.ndarray]:
    data = make_heterogeneous(
        3, n_samples=[40, 50, 30], n_features=12, n_shared=2, n_unique=1, noise=noise,
        random_state=0,
    )  # fmt: skip
    return {name: table + np.arange(12.0) for name, table in data.sources.items()}


def with_holes(given: dict[str, np.ndarray], share: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {k: np.where(rng.random(t.shape) < share, np.nan, t) for k, t in given.items()}


@parametrize_with_checks([HAE(n_scores=4, n_folds=1, hidden=(8,), max_rounds=10, random_state=0)])
def test_scikit_learn_contract(estimator: HAE, check: Any) -> None:
    check(estimator)


def test_it_explains_what_there_is() -> None:
    model = HAE(random_state=0).fit(tables())
    assert model.score(tables()) > 0.9  # the noise alone is about a hundredth


def test_bent_sources_need_it() -> None:
    """Tables on curved surfaces: networks explain more than as many linear components."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(2, 30))
    bent = [np.tanh(2 * rng.normal(size=(300, 2)) @ mix) for _ in range(2)]
    linear = np.linalg.svd(bent[0] - bent[0].mean(0), compute_uv=False)[:2] ** 2
    share = linear.sum() / ((bent[0] - bent[0].mean(0)) ** 2).sum()
    model = HAE(n_scores=2, n_folds=1, hidden=(64,), ridge=0.1, max_rounds=300, random_state=0)
    assert model.fit(bent).score(bent) > share + 0.03


@pytest.mark.parametrize("solver", ["joint", "averaging"])
def test_scores_are_orthogonal_by_group_in_any_batch(solver: str) -> None:
    model = HAE(**FAST, solver=solver).fit(tables())
    rng = np.random.default_rng(0)
    batches = [tables()["source0"], rng.normal(size=(500, 12)), 1e6 * rng.normal(size=(9, 12)),
               np.zeros((1, 12)), np.full((2, 12), np.nan)]  # fmt: skip
    for batch in batches:
        for name in model.source_names_:
            shared, unique = model.transform_parts(batch, sources=name)
            one, other = (c.reshape(len(c), 2, 4) for c in (shared, unique))
            inner = np.linalg.norm(one @ other.swapaxes(1, 2), axis=(1, 2))
            sizes = np.linalg.norm(one, axis=(1, 2)) * np.linalg.norm(other, axis=(1, 2))
            assert (inner <= SINGLE * sizes).all()


def test_one_table_with_labels_is_the_same_as_a_dict() -> None:
    given = tables()
    labels = np.repeat(list(given), [len(table) for table in given.values()])
    one = HAE(**FAST).fit(given)
    other = HAE(**FAST).fit(np.vstack(list(given.values())), sources=labels)
    found = other.transform(np.vstack(list(given.values())), sources=labels)
    np.testing.assert_array_equal(found, np.vstack(list(one.transform(given).values())))


def test_one_seed_one_answer() -> None:
    given = with_holes(tables(), 0.2)
    one, other = HAE(**FAST).fit(given), HAE(**FAST).fit(given)
    for name in given:
        np.testing.assert_array_equal(one.reconstruct(name), other.reconstruct(name))
    third = clone(one).set_params(random_state=1).fit(given)
    assert not np.allclose(third.reconstruct("source0"), one.reconstruct("source0"))


def test_units_of_the_data_make_no_difference() -> None:
    given = tables()
    one = HAE(**FAST).fit(given)
    other = HAE(**FAST).fit({name: 1000 * table for name, table in given.items()})
    found = other.reconstruct("source1") / 1000
    np.testing.assert_allclose(found, one.reconstruct("source1"), rtol=1e-3, atol=1e-3)


def test_transform_of_what_was_fitted_is_its_codes() -> None:
    given = tables()
    model = HAE(**FAST)
    scores = model.fit_transform(given)
    for name in given:
        kept = np.hstack([model.shared_scores_[name], model.unique_scores_[name]])
        np.testing.assert_allclose(scores[name], kept, rtol=0, atol=SINGLE)
        assert scores[name].shape == (len(given[name]), 16)
    assert list(model.get_feature_names_out()[[0, 8]]) == ["shared0", "unique0"]


def test_parts_and_centre_add_up() -> None:
    given = tables()
    model = HAE(**FAST).fit(given)
    for name in given:
        parts = sum(model.reconstruct(name, part=part) for part in ("shared", "unique"))
        np.testing.assert_allclose(
            parts + model.centres_[name], model.reconstruct(name), rtol=0, atol=1e-4
        )


def test_a_source_never_seen_has_shared_scores_only() -> None:
    model = HAE(**FAST).fit(tables())
    new = np.random.default_rng(0).normal(size=(5, 12))
    scores = model.transform(new)
    assert not scores[:, 8:].any() and scores[:, :8].any()
    with pytest.warns(UserWarning, match="'west' was not in the fit"):
        model.transform({"west": new})


def test_holes_are_filled_and_the_rest_stays() -> None:
    given = tables()
    holes = with_holes(given, 0.2)
    model = HAE(n_scores=8, ridge=0.3, random_state=0).fit(holes)
    filled = model.impute(holes)
    left = total = 0.0
    for name, table in given.items():
        hidden = np.isnan(holes[name])
        np.testing.assert_array_equal(filled[name][~hidden], table[~hidden])
        left += ((filled[name] - table)[hidden] ** 2).sum()
        total += ((table - np.nanmean(holes[name], axis=0))[hidden] ** 2).sum()
    assert left < 0.5 * total
    assert 0 < model.score(holes, given) < 1


def test_what_is_absent_is_as_what_is_missing() -> None:
    holes = with_holes(tables(), 0.3)
    sparse = {}
    for name, table in holes.items():
        rows, columns = np.nonzero(~np.isnan(table))
        entries = (table[rows, columns], (rows, columns))
        sparse[name] = scipy.sparse.csr_array(entries, shape=table.shape)
    one = HAE(**FAST).fit(holes)
    other = HAE(**FAST, missing="absent").fit(sparse)
    for name in holes:
        # the same sums in another order, and what sixty rounds make of that
        np.testing.assert_allclose(
            other.reconstruct(name), one.reconstruct(name), rtol=0, atol=1e-2
        )
    assert other.score(sparse) == pytest.approx(one.score(holes), abs=1e-3)
    with pytest.raises(ValueError, match="would fill up a sparse table"):
        other.predict(sparse)


@pytest.mark.parametrize("loss", ["huber", "absolute", "trimmed", "logistic", "poisson"])
def test_every_loss_of_the_library_is_lowered(loss: str) -> None:
    given = tables()
    if loss == "logistic":
        given = {k: (t > np.arange(12)).astype(float) for k, t in given.items()}
    if loss == "poisson":
        rng = np.random.default_rng(0)
        given = {
            k: rng.poisson(np.exp(np.clip(t - np.arange(12), -2, 2))).astype(float)
            for k, t in given.items()
        }
    model = HAE(**FAST, loss=loss, ridge=0.3).fit(given)
    assert model.score(given) > 0.2
    if loss in ("logistic", "poisson"):
        expected = model.reconstruct("source0")
        assert expected.min() >= 0 and (loss == "poisson" or expected.max() <= 1)


def test_a_loss_of_ones_own_goes_through() -> None:
    class Fourth:
        def value(self, m, z):
            return (m - z) ** 2 / 2 + (m - z) ** 4 / 4

        def slope(self, m, z):
            return (z - m) + (z - m) ** 3

        def majorise(self, m, z):
            raise NotImplementedError  # not needed by gradients

    assert HAE(**FAST, loss=Fourth()).fit(tables()).score(tables()) > 0.5


def test_adding_a_source_trains_its_own_encoder_alone() -> None:
    given = tables()
    new = given.pop("source2")
    model = HAE(**FAST).fit(given)
    before = {k: v.copy() for k, v in model.weights_.items()}
    kept = model.reconstruct("source0")
    model.add_source("source2", new)
    for name, values in model.weights_.items():
        old = values if not name.startswith("unique") else values[:2]
        np.testing.assert_array_equal(old, before[name])
    np.testing.assert_array_equal(model.reconstruct("source0"), kept)
    assert model.weights_["unique.layers.0.weight"].shape[0] == 3
    with_own = model.score({"source2": new})
    shared = model.reconstruct("source2", part="shared") + model.centres_["source2"]
    alone = 1 - ((new - shared) ** 2).sum() / ((new - new.mean(0)) ** 2).sum()
    assert with_own > alone
    with pytest.raises(ValueError, match="There is a source 'source2' already"):
        model.add_source("source2", new)


def test_it_stops_in_time_and_says_so() -> None:
    model = HAE(**{**FAST, "max_rounds": 400}, patience=5, ridge=0.0, learning_rate=0.05)
    model.fit(tables(noise=1.0))
    assert model.converged_ and "no better for 5 rounds" in model.stopped_
    assert model.n_rounds_ == 1 + int(np.argmin(model.history_["held_out"]))
    unheld = HAE(**FAST, validation=0).fit(tables())
    assert not unheld.converged_ and unheld.n_rounds_ == len(unheld.history_) == 60
    assert unheld.history_["held_out"].isna().all()


@pytest.mark.parametrize("changed", [{}, {"kernel": "gaussian", "missing": "absent"}])
def test_a_file_gives_the_same_model(changed: dict[str, Any], tmp_path: Path) -> None:
    given = with_holes(tables(), 0.1)
    model = HAE(**FAST, **changed).fit(given)
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert type(again) is HAE and again.get_params() == model.get_params()
    for name in given:
        np.testing.assert_array_equal(again.transform(given)[name], model.transform(given)[name])
        np.testing.assert_array_equal(again.reconstruct(name), model.reconstruct(name))
    again.add_source("new", tables()["source0"])


def test_networks_of_ones_own() -> None:
    def encoder(n_in: int, n_out: int) -> Any:
        return torch.nn.Sequential(
            torch.nn.Linear(n_in, 20), torch.nn.ELU(), torch.nn.Dropout(0.1),
            torch.nn.Linear(20, n_out),
        )  # fmt: skip

    given = tables()
    model = HAE(**FAST, encoder=encoder, decoder=torch.nn.Linear).fit(given)
    assert model.score(given) > 0.5
    one, other = model.transform(given), model.transform(given)  # no dropout any more
    np.testing.assert_array_equal(one["source0"], other["source0"])


def test_entries_can_be_held_out_by_searches() -> None:
    entries = ObservedEntries(tables())
    train, test = next(EntryKFold(4, random_state=0).split(entries))
    model = HAE(n_scores=8, random_state=0).fit(entries[train])
    assert 0.5 < model.score(entries[test]) < 1


def test_tables_with_labels_come_back_with_labels() -> None:
    names = list("abcdefghijkl")
    given = {
        name: pd.DataFrame(table, columns=names).astype(np.float32)
        for name, table in tables().items()
    }
    model = HAE(**FAST).fit(given)
    assert list(model.feature_names_in_) == names
    assert list(model.reconstruct("source1").columns) == names
    assert model.transform(given)["source1"].dtype == np.float32
    found = model.set_output(transform="pandas").transform(given["source0"], sources="source0")
    assert list(found.columns[:2]) == ["shared0", "shared1"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"n_scores": 0}, "n_scores is 0: expected an integer of at least 1"),
        ({"n_scores": 4, "n_folds": 2}, "n_folds is 2: expected a divisor of n_scores=4"),
        ({"solver": "adam"}, "solver is 'adam': expected one of 'joint', 'averaging'"),
        ({"kernel": "wide"}, "kernel is 'wide'"),
        ({"validation": 1}, "validation is 1"),
        ({"ridge": -1.0}, "ridge is -1.0"),
        ({"loss": "hinge"}, "loss is 'hinge'"),
    ],
)
def test_wrong_settings_are_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HAE(**changed).fit(tables())


def test_data_that_cannot_be_are_refused() -> None:
    given = tables()
    with pytest.raises(ValueError, match=r"'source0' holds .* cannot be observed under"):
        HAE(**FAST, loss="logistic").fit(given)
    with pytest.raises(ValueError, match="'source1' has no observed entry at all"):
        HAE(**FAST).fit({**given, "source1": np.full((4, 12), np.nan)})
    model = HAE(**FAST).fit(given)
    with pytest.raises(ValueError, match="X has 11 features, but HAE is expecting 12"):
        model.transform(given["source0"][:, :11], sources="source0")


def test_the_library_does_not_import_torch_by_itself() -> None:
    code = "import sys, heterofactor, heterofactor.files; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_it_is_said_what_to_install() -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Missing())
try:
    from heterofactor import HAE
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "HAE needs torch: pip install 'heterofactor[hae]'."


def test_entries_of_sparse_tables_are_not_taken_for_zeros() -> None:
    sparse = {name: scipy.sparse.csr_array(table) for name, table in tables().items()}
    with pytest.raises(ValueError, match="set missing='absent'"):
        HAE(**FAST).fit(ObservedEntries(sparse))


def test_entries_to_be_predicted_that_do_not_fit_are_refused() -> None:
    given = tables()
    model = HAE(**FAST).fit(given)
    with pytest.raises(ValueError, match="the same names and shapes"):
        model.score(given, {name: table[:3] for name, table in given.items()})
