"""A model that comes back from its file is the same model."""

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.exceptions import NotFittedError

from heterofactor import HMF
from heterofactor.datasets import load_beijing_air, load_mice_protein
from heterofactor.files import FORMAT, KEY, load, save
from heterofactor.labels import index_from_json, index_to_json, label_from_json, label_to_json
from heterofactor.solvers import Averaging, Grassmann


def tables(*shapes: tuple[int, int], dtype: str = "float64", seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def again(model: HMF, folder: Path) -> HMF:
    save(model, folder / "model.safetensors")
    return load(folder / "model.safetensors")


def assert_identical(one: Any, other: Any) -> None:
    """Compare values to the last bit, types, precision and labels, all the way down."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert [(k, type(k)) for k in one] == [(k, type(k)) for k in other]
        for key in one:
            assert_identical(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_identical(a, b)
    elif isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    elif isinstance(one, pd.Index):
        pd.testing.assert_index_equal(one, other, exact=True)
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.array_equal(one, other)
    else:
        assert one == other


def assert_same_model(one: HMF, other: HMF, data: Any, sources: Any = None) -> None:
    assert repr(one.get_params()) == repr(other.get_params())
    assert_identical(one.transform(data, sources=sources), other.transform(data, sources=sources))
    parts = one.transform_parts(data, sources=sources)
    assert_identical(parts, other.transform_parts(data, sources=sources))
    assert_identical(one.score(data, sources=sources), other.score(data, sources=sources))
    for part in ("both", "shared", "unique"):
        assert_identical(one.reconstruct(part=part), other.reconstruct(part=part))
        for name in one.source_names_:
            assert_identical(one.reconstruct(name, part=part), other.reconstruct(name, part=part))
    for name in (
        "source_names_",
        "shared_components_",
        "unique_components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "centres_",
        "history_",
        "n_rounds_",
        "converged_",
        "diagnostics_",
    ):
        assert_identical(getattr(one, name), getattr(other, name))
    assert_identical(one.get_feature_names_out(), other.get_feature_names_out())
    for name in ("n_features_in_", "feature_names_in_"):
        assert hasattr(one, name) == hasattr(other, name)
        if hasattr(one, name):
            assert_identical(getattr(one, name), getattr(other, name))


@settings(max_examples=25)
@given(
    n_shared=st.integers(0, 3),
    n_unique=st.lists(st.integers(0, 2), min_size=3, max_size=3),
    dtype=st.sampled_from(["float32", "float64"]),
    shared_axis=st.sampled_from(["features", "samples"]),
    container=st.sampled_from(["list", "dict", "table"]),
    names=st.lists(
        st.one_of(st.text(max_size=4), st.integers(-9, 9)), min_size=3, max_size=3, unique=True
    ),
    centre=st.sampled_from(["source", None]),
    scale=st.sampled_from(["source", None]),
    seed=st.integers(0, 99),
)
def test_any_model_comes_back_to_the_last_bit(
    tmp_path_factory, n_shared, n_unique, dtype, shared_axis, container, names, centre, scale, seed
):
    lengths = (7, 9, 8)
    shapes = [(n, 6) if shared_axis == "features" else (6, n) for n in lengths]
    data, sources = tables(*shapes, dtype=dtype, seed=seed), None
    if container == "dict":
        data = dict(zip(names, data, strict=True))
    elif container == "table":
        rng = np.random.default_rng(seed)
        sources = rng.permutation(np.repeat([f"source {n!r}" for n in names], lengths))
        data = np.concatenate(data, axis=0 if shared_axis == "features" else 1)
    model = HMF(
        n_shared,
        n_unique,
        shared_axis=shared_axis,
        centre=centre,
        scale=scale,
        tol=1e-2,
        random_state=seed,
    ).fit(data, sources=sources)
    other = again(model, tmp_path_factory.mktemp("any"))
    assert_same_model(model, other, data, sources)
    assert other.shared_components_.dtype == dtype


def test_mice_come_back_with_their_labels(tmp_path):
    mice = load_mice_protein().sources
    model = HMF(3, 2, random_state=0).fit(mice)
    other = again(model, tmp_path)
    assert_same_model(model, other, mice)
    assert other.reconstruct("t-CS-m").index.names == ["mouse", "measurement"]


def test_days_come_back_as_days(tmp_path):
    air = load_beijing_air().sources
    model = HMF(2, 1, scale="source", random_state=0).fit(air)
    other = again(model, tmp_path)
    assert_same_model(model, other, air)
    assert isinstance(other.reconstruct("Dingling").index, pd.DatetimeIndex)


def test_labelled_table_comes_back_in_its_order(tmp_path):
    table = pd.DataFrame(tables((20, 5))[0], index=list("abcdefghijklmnopqrst"))
    labels = [1, 2] * 10
    model = HMF(1, 1).fit(table, sources=labels)
    other = again(model, tmp_path)
    assert_same_model(model, other, table, labels)
    assert list(other.reconstruct().index) == list(table.index)


def test_a_source_can_be_added_to_what_came_back(tmp_path):
    one, two, new = tables((9, 6), (8, 6), (7, 6))
    model = HMF(2, 1).fit({"one": one, "two": two})
    other = again(model, tmp_path)
    model.add_source("new", new)
    other.add_source("new", new)
    assert_same_model(model, other, {"one": one, "two": two, "new": new})
    assert_same_model(model, again(other, tmp_path), {"one": one, "two": two, "new": new})


def test_products_with_a_transposed_basis_are_the_same_bits(tmp_path):
    """BLAS may add in another order when the same numbers lie differently in memory."""
    data = tables((90, 400), (80, 400))
    model = HMF(5, 3, tol=1e-2).fit(data)
    model.factors_.unique_bases[0] = np.asfortranarray(model.factors_.unique_bases[0])
    other = again(model, tmp_path)
    assert other.factors_.unique_bases[0].strides == model.factors_.unique_bases[0].strides
    assert_identical(model.transform(data), other.transform(data))


def test_torch_tensors_come_back_as_torch_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    data = [torch.from_numpy(table) for table in tables((9, 6), (8, 6), dtype="float32")]
    model = HMF(2, 1, tol=1e-3).fit(data)
    other = again(model, tmp_path)
    for one, two in zip(model.transform(data), other.transform(data), strict=True):
        assert two.dtype == torch.float32
        assert torch.equal(one, two)


def test_output_container_is_remembered(tmp_path):
    data = tables((9, 6), (8, 6))
    model = HMF(2, 1).fit(data).set_output(transform="pandas")
    pd.testing.assert_frame_equal(
        again(model, tmp_path).transform(data)[0], model.transform(data)[0]
    )


@pytest.mark.parametrize("solver", [Grassmann(2, memory=3), Averaging(2, tol=1e-3, beta=0.2)])
def test_settings_of_a_solver_come_back(tmp_path, solver):
    model = HMF(2, 1, solver=solver, max_rounds=3000, random_state=0).fit(tables((9, 6), (8, 6)))
    assert again(model, tmp_path).solver == solver


def test_named_ranks_numpy_numbers_and_random_state_come_back(tmp_path):
    state = np.random.RandomState(3)
    model = HMF(np.int64(2), {"a": 1, "b": 2}, tol=np.float32(1e-4), random_state=state)
    model.fit(dict(zip("ab", tables((9, 6), (8, 6)), strict=True)))
    other = again(model, tmp_path)
    assert type(other.n_shared) is np.int64
    assert type(other.tol) is np.float32
    assert other.n_unique == {"a": 1, "b": 2}
    assert other.random_state.randint(1000) == state.randint(1000)


def test_labels_that_sources_have_in_common_are_written_once(tmp_path):
    names = [f"a feature with a long name {k}" for k in range(200)]
    data = {k: pd.DataFrame(t, columns=names) for k, t in enumerate(tables(*[(5, 200)] * 40))}
    save(HMF(1, 0).fit(data), tmp_path / "model.safetensors")
    bases_and_scores = 8 * (200 + 40 * 5 + 40 * 200)  # the centres are most of it
    labels = len(json.dumps(names))
    assert (tmp_path / "model.safetensors").stat().st_size < bases_and_scores + 3 * labels + 30000


def test_the_memory_of_the_solver_stays_out_of_the_file(tmp_path):
    data = tables((30, 2000), (30, 2000))
    model = HMF(2, 1).fit(data)
    save(model, tmp_path / "model.safetensors")
    factors = sum(v.nbytes for v in model.factors_.unique_bases.values())
    needed = factors + model.factors_.shared_basis.nbytes + 2 * 2000 * 8
    assert (tmp_path / "model.safetensors").stat().st_size < needed + 20_000  # the memory is 800 kB


INDEXES = [
    pd.RangeIndex(2, 9, 3, name="row"),
    pd.Index(["a", "b"], name=("a", 1)),
    pd.Index(["a", None], dtype="str"),
    pd.Index([3, 1], dtype="int32"),
    pd.Index([0.1, np.nan, np.inf]),
    pd.Index([True, False]),
    pd.Index(["a", 1, None, 2.5, ("x", 1), date(2020, 1, 2)], dtype=object, tupleize_cols=False),
    pd.Index([1, pd.NA], dtype="Int64"),
    pd.date_range("2020-01-01", periods=3, freq="D", name="day"),
    pd.DatetimeIndex(["2020-01-01T00:00:00.123456789", None]).as_unit("ns"),
    pd.date_range("2020-03-28", periods=3, freq="D", tz="Europe/Berlin"),
    pd.to_timedelta([1, 90], unit="min"),
    pd.period_range("2020-01", periods=3, freq="M"),
    pd.CategoricalIndex(["b", "a", "b"], categories=["b", "a", "c"], ordered=True, name="c"),
    pd.MultiIndex.from_product([["x", "y"], pd.date_range("2020-01-01", periods=2)]),
    pd.Index([], dtype="str"),
]


@pytest.mark.parametrize(
    "index", INDEXES, ids=lambda index: f"{type(index).__name__} {index.dtype}"
)
def test_every_kind_of_index_comes_back(index):
    found = index_from_json(json.loads(json.dumps(index_to_json(index))))
    pd.testing.assert_index_equal(found, index, exact=True)
    assert getattr(found, "freq", None) == getattr(index, "freq", None)


LABELS = [
    "north",
    7,
    True,
    0.1,
    None,
    (1, ("a", 2)),
    np.int32(7),
    np.str_("a"),
    np.datetime64("2020-01-02"),
    np.timedelta64(3, "h"),
    pd.Timestamp("2020-01-02T03:04", tz="Asia/Tokyo"),
    pd.Timedelta("3h"),
    pd.Period("2020-02", "M"),
    date(2020, 1, 2),
]


@pytest.mark.parametrize("label", LABELS, ids=repr)
def test_every_kind_of_label_comes_back(label):
    found = label_from_json(json.loads(json.dumps(label_to_json(label))))
    assert type(found) is type(label)
    assert found == label


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.tuples))
def test_any_plain_label_comes_back(label):
    assert_identical(label_from_json(json.loads(json.dumps(label_to_json(label)))), label)


def fitted(**parameters: Any) -> HMF:
    return HMF(1, 1, **parameters).fit(tables((9, 6), (8, 6)))


@dataclass(frozen=True)
class MySolver(Grassmann):
    """A solver that the library does not know."""


def test_an_unknown_solver_is_refused_and_leaves_no_file(tmp_path):
    model = fitted(solver=MySolver(1))
    with pytest.raises(TypeError, match=r"cannot hold MySolver.*parameter 'solver'.*set_params"):
        save(model, tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_labels_without_a_written_form_are_refused(tmp_path):
    table = pd.DataFrame(tables((9, 6))[0], columns=[object() for _ in range(6)])
    with pytest.raises(TypeError, match="cannot hold <object object"):
        save(HMF(1, 1).fit([table]), tmp_path / "model.safetensors")


def test_a_model_that_is_not_fitted_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        save(HMF(), tmp_path / "model.safetensors")


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"Only models of this library.*HMF, .*this is dict"):
        save({}, tmp_path / "model.safetensors")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no folder '.*nowhere'"):
        save(fitted(), tmp_path / "nowhere" / "model.safetensors")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file '.*nothing'"):
        load(tmp_path / "nothing")


def test_saving_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_text("something else")
    save(fitted(), path)
    assert load(path).n_shared == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_newer_format_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    header = {"format": FORMAT + 1, "version": "9.9"}
    save_file({"0": np.zeros(1)}, path, {KEY: json.dumps(header)})
    with pytest.raises(ValueError, match=rf"heterofactor 9.9 in format {FORMAT + 1}.*newer"):
        load(path)


def test_a_file_of_someone_else_is_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"weight": np.zeros(1)}, path)
    with pytest.raises(ValueError, match="is a safetensors file, but not a model"):
        load(path)


@pytest.mark.parametrize("content", [b"", b"text, and quite a lot of it", b"\x80\x04K\x01."])
def test_a_file_of_another_kind_is_refused(tmp_path, content):
    path = tmp_path / "text.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged, or not a model"):
        load(path)


def test_a_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save(fitted(), path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="is damaged"):
        load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"n_common": 3}},
        {"attributes": {"factors_": {"object": ["Popen", {"args": "true"}]}}},
        {"attributes": {"factors_": {"array": "no such tensor"}}},
        {"attributes": {"factors_": {"pickle": "gASVAAAA"}}},
    ],
)
def test_a_file_names_nothing_but_what_is_known(tmp_path, change):
    path = tmp_path / "model.safetensors"
    header = {"format": 1, "version": "0.0.9", "parameters": {}, "attributes": {}} | change
    save_file({"0": np.zeros(1)}, path, {KEY: json.dumps(header)})
    with pytest.raises(ValueError, match=r"written by heterofactor 0\.0\.9, holds what"):
        load(path)


def test_the_header_says_what_wrote_the_file(tmp_path):
    save(fitted(), tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", framework="numpy") as file:
        header = json.loads(file.metadata()[KEY])
    assert (header["format"], header["class"]) == (FORMAT, "HMF")
    assert header["parameters"]["tol"] == 1e-8
