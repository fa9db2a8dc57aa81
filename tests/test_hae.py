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
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

torch = pytest.importorskip("torch")

from heterofactor import HAE, EntryKFold, ObservedEntries  # noqa: E402
from heterofactor.datasets import make_heterogeneous  # noqa: E402
from heterofactor.engines import Serial  # noqa: E402
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


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"kernel": "gaussian", "missing": "absent", "activation": "relu"},
        {"solver": "averaging", "engine": "serial", "batch_size": 30, "loss": "huber"},
    ],
)
def test_a_file_gives_the_same_model(changed: dict[str, Any], tmp_path: Path) -> None:
    """To the last bit, also once sources are added before and after."""
    given = with_holes(tables(), 0.1)
    new = given.pop("source2")
    model = HAE(**FAST, **changed).fit(given).add_source("source2", new)
    given["source2"] = new
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert type(again) is HAE and again.get_params() == model.get_params()
    for _ in range(2):
        assert again.source_names_ == model.source_names_
        assert again.weights_.keys() == model.weights_.keys()
        for name, values in model.weights_.items():
            assert again.weights_[name].dtype == values.dtype
            np.testing.assert_array_equal(again.weights_[name], values)
        for name in given:
            np.testing.assert_array_equal(
                again.transform(given)[name], model.transform(given)[name]
            )
            np.testing.assert_array_equal(again.reconstruct(name), model.reconstruct(name))
            np.testing.assert_array_equal(again.impute(given)[name], model.impute(given)[name])
            np.testing.assert_array_equal(again.shared_scores_[name], model.shared_scores_[name])
        assert again.score(given) == model.score(given)
        pd.testing.assert_frame_equal(again.history_, model.history_, check_exact=True)
        given["new"] = tables()["source0"][:20]
        if "new" not in model.source_names_:
            model.add_source("new", given["new"])
            again.add_source("new", given["new"])
    np.testing.assert_array_equal(again.reconstruct("new"), model.reconstruct("new"))


def test_a_file_cannot_hold_networks_of_ones_own(tmp_path: Path) -> None:
    model = HAE(**FAST, encoder=torch.nn.Linear).fit(tables())
    with pytest.raises(TypeError, match="of parameter 'encoder'"):
        save(model, tmp_path / "model.safetensors")


@pytest.mark.parametrize("engine", ["serial", "threads", Serial])
def test_every_engine_averages_to_the_same(engine: Any) -> None:
    given = with_holes(tables(), 0.2)
    one = HAE(**FAST, solver="averaging").fit(given)
    other = HAE(**FAST, solver="averaging", engine=engine).fit(given)
    for name in given:
        # one thread of BLAS or several may round otherwise, and sixty rounds make more of that
        np.testing.assert_allclose(
            one.reconstruct(name), other.reconstruct(name), rtol=0, atol=1e-3
        )


def test_more_steps_between_averages_go_farther_in_as_many_rounds() -> None:
    given, few = tables(), {**FAST, "max_rounds": 20, "solver": "averaging"}
    one, three = HAE(**few).fit(given), HAE(**few, n_local_steps=3).fit(given)
    assert three.history_["value"].iloc[-1] < 0.8 * one.history_["value"].iloc[-1]


@pytest.mark.parametrize("solver", ["joint", "averaging"])
@pytest.mark.parametrize("size", [120, 10**6])
def test_a_batch_of_all_samples_is_no_batch(solver: str, size: int) -> None:
    given = with_holes(tables(), 0.2)
    one = HAE(**FAST, solver=solver).fit(given)
    other = HAE(**FAST, solver=solver, batch_size=size).fit(given)
    for name, values in one.weights_.items():
        np.testing.assert_array_equal(values, other.weights_[name])


@pytest.mark.parametrize("solver", ["joint", "averaging"])
@pytest.mark.parametrize("missing", ["nan", "absent"])
def test_batches_come_to_what_all_samples_at_once_come_to(solver: str, missing: str) -> None:
    """As many steps altogether, and nearly the same objective at their end."""
    given: dict[str, Any] = with_holes(tables(), 0.3)
    if missing == "absent":
        given = {k: scipy.sparse.csr_array(np.nan_to_num(t)) for k, t in given.items()}
    settings: dict[str, Any] = {**FAST, "missing": missing, "validation": 0, "solver": solver}
    whole = HAE(**{**settings, "max_rounds": 120}).fit(given)
    parts = HAE(**{**settings, "max_rounds": 40}, batch_size=40).fit(given)
    again = HAE(**{**settings, "max_rounds": 40}, batch_size=40).fit(given)
    found, expected = (model.history_["value"].iloc[-1] for model in (parts, whole))
    # the noise of batches leaves a little more, and averages of copies go another way
    assert found == pytest.approx(expected, rel=0.15)
    for name, values in parts.weights_.items():
        np.testing.assert_array_equal(values, again.weights_[name])


@pytest.mark.parametrize("solver", ["joint", "averaging"])
@pytest.mark.parametrize("validation", [0, 0.1])
def test_an_interruption_keeps_what_there_is_and_says_so(solver: str, validation: float) -> None:
    class Interrupting:
        left = 50

        def value(self, m: Any, z: Any) -> Any:
            Interrupting.left -= 1
            if Interrupting.left == 0:
                raise KeyboardInterrupt
            return (m - z) ** 2 / 2

        def slope(self, m: Any, z: Any) -> Any:
            return z - m

    given = tables()
    model = HAE(**FAST, loss=Interrupting(), solver=solver, validation=validation)
    with pytest.warns(ConvergenceWarning, match=r"has not converged: interrupted after \d+ rounds"):
        model.fit(given)
    assert not model.converged_ and 5 < model.n_rounds_ <= len(model.history_) < 60
    assert model.stopped_.endswith("the best so far stands")
    assert model.score(given) > 0.1
    assert model.transform(given)["source0"].shape == (40, 16)


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


def test_a_source_that_cannot_be_added_leaves_the_fit_as_it_was() -> None:
    given = tables()
    new = given.pop("source2")
    model = HAE(**FAST).fit(given)
    with pytest.raises(ValueError, match="'source2' has no observed entry at all"):
        model.add_source("source2", np.full((4, 12), np.nan))
    model.set_params(learning_rate=float("1e30"))
    with pytest.raises(ValueError, match="ran away"):
        model.add_source("source2", 1e3 * new)
    assert model.source_names_ == ["source0", "source1"]
    model.set_params(learning_rate=0.01).add_source("source2", new)
    assert model.score({"source2": new}) > 0


def test_a_source_of_one_entry_is_kept_for_training() -> None:
    one = np.full((3, 12), np.nan)
    one[1, 4] = 2.0
    model = HAE(**FAST, validation=0.9).fit({**tables(), "one": one})
    assert np.isfinite(model.predict({"one": one})["one"]).all()


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
