"""What users bring is read as they meant it, given back as they brought it, or refused in words."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from heterofactor import HMF
from heterofactor import tables as module
from heterofactor.brought import is_collection, read_tables
from heterofactor.tables import Tables

RNG_SHAPE = (3, 8, 6)  # sources, samples, features
SPARSE_FORMATS = ["csr", "csc", "coo", "dok", "lil", "bsr", "dia"]


def cube(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=RNG_SHAPE) + 1.0


def uneven(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(n, 6)) for name, n in (("b", 9), ("a", 7), ("c", 9))}


def assert_same_values(tables: Tables, expected: Any) -> None:
    assert len(tables.values) == len(expected)
    for found, wanted in zip(tables.values, expected, strict=True):
        found = found.toarray() if hasattr(found, "toarray") else found
        np.testing.assert_array_equal(found, wanted)


def in_every_form(stack: np.ndarray) -> dict[str, tuple[Any, Any]]:
    """Write one stack of tables in all the ways: what to give as X, and as sources=."""
    count, length, _ = stack.shape
    return {
        "list": (list(stack), None),
        "tuple": (tuple(stack), None),
        "dict": (dict(enumerate(stack)), None),
        "3-d array": (stack, None),
        "labelled table": (np.concatenate(list(stack)), np.repeat(np.arange(count), length)),
        "labelled frame": (
            pd.DataFrame(np.concatenate(list(stack))),
            pd.Series(np.repeat(np.arange(count), length)),
        ),
        "list of frames": ([pd.DataFrame(table) for table in stack], None),
    }


# ------------------------------------------------------------------ one content, many containers


@pytest.mark.parametrize("form", in_every_form(cube()))
def test_every_container_holds_the_same_tables(form):
    X, sources = in_every_form(cube())[form]
    tables = read_tables(X, sources)
    assert tables.names == [0, 1, 2]
    assert_same_values(tables, cube())


@pytest.mark.parametrize("form", in_every_form(cube()))
def test_every_container_leads_to_the_same_fit(form, seed):
    X, sources = in_every_form(cube(seed))[form]
    plain = HMF(2, 1, random_state=0).fit(list(cube(seed)))
    model = HMF(2, 1, random_state=0).fit(X, sources=sources)
    # some are centred in a copy and some within the products: the same to rounding at every round
    np.testing.assert_allclose(
        model.shared_components_, plain.shared_components_, rtol=0, atol=1e-10
    )
    for name in plain.source_names_:
        np.testing.assert_allclose(
            model.unique_components_[name], plain.unique_components_[name], rtol=0, atol=1e-10
        )


@pytest.mark.parametrize("form", in_every_form(cube()))
def test_the_3_d_array_shares_samples_like_the_list(form):
    X, sources = in_every_form(cube())[form]
    if sources is not None:  # labels are of columns here
        X = np.concatenate(list(cube()), axis=1)
        sources = np.repeat([0, 1, 2], RNG_SHAPE[2])
    tables = read_tables(X, sources, shared_axis="samples")
    assert_same_values(tables, cube())
    assert tables.shared_length == RNG_SHAPE[1]
    assert tables.lengths == [RNG_SHAPE[2]] * 3


def test_a_list_takes_names_from_sources():
    tables = read_tables(list(cube()), np.array(["x", "y", "z"]))
    assert tables.names == ["x", "y", "z"]
    assert all(type(name) is str for name in tables.names)


@pytest.mark.parametrize("container", [list, tuple])
def test_a_nested_list_of_numbers_is_one_table(container):
    nested = container([[1, 2, 3], [4, 5, 6]])
    assert not is_collection(nested)
    assert_same_values(read_tables(nested), [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])


def test_a_list_of_1_d_arrays_is_one_table():
    assert not is_collection([np.arange(3), np.arange(3)])


@pytest.mark.parametrize("wrap", [scipy.sparse.dok_array, scipy.sparse.dok_matrix])
def test_a_dictionary_of_keys_is_one_table_though_it_may_be_a_dict(wrap):
    table = wrap(np.diag([1.0, 2.0]))
    assert not is_collection(table)
    assert_same_values(read_tables(table), [np.diag([1.0, 2.0])])
    assert is_collection([table, table])


# ------------------------------------------------------------------ kinds of table


@pytest.mark.parametrize("form", SPARSE_FORMATS)
def test_every_sparse_format_is_read(form):
    dense = cube()[0] * (cube()[0] > 1)
    tables = read_tables([scipy.sparse.coo_array(dense).asformat(form)] * 2)
    assert_same_values(tables, [dense, dense])
    assert all(value.format in ("csr", "csc") for value in tables.values)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_sparse_values_are_not_copied(form):
    table = scipy.sparse.random_array((7, 5), density=0.4, rng=0, format=form)
    value = read_tables([table]).values[0]
    assert np.shares_memory(value.data, table.data)
    assert value.format == form


def test_sparse_entries_stored_twice_add_up_and_stay_as_they_were():
    table = scipy.sparse.csr_array(([1.0, 2.0, 3.0], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    value = read_tables([table]).values[0]
    np.testing.assert_array_equal(value.toarray(), [[0.0, 3.0], [3.0, 0.0]])
    assert value.nnz == 2
    assert table.nnz == 3


@pytest.mark.parametrize("form", SPARSE_FORMATS)
def test_sparse_and_dense_lead_to_the_same_fit(form):
    stack = cube() * (cube() > 1)
    dense = HMF(2, 1, random_state=0).fit(list(stack))
    sparse = HMF(2, 1, random_state=0).fit(
        [scipy.sparse.coo_array(t).asformat(form) for t in stack]
    )
    # both converge to a relative gradient of 1e-8
    np.testing.assert_allclose(sparse.shared_components_, dense.shared_components_, atol=1e-6)


def test_a_frame_of_integers_and_floats_becomes_floats():
    frame = pd.DataFrame({"count": [1, 2], "weight": [0.5, 1.5], "yes": [True, False]})
    tables = read_tables([frame])
    assert_same_values(tables, [[[1.0, 0.5, 1.0], [2.0, 1.5, 0.0]]])
    assert tables.values[0].dtype == np.float64
    assert list(tables.columns[0]) == ["count", "weight", "yes"]


@pytest.mark.parametrize(
    "dtype", ["Int64", "Float64", "UInt8", "int64[pyarrow]", "double[pyarrow]"]
)
def test_nullable_columns_without_gaps_are_numbers(dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]}).astype(dtype)
    tables = read_tables([frame])
    assert_same_values(tables, [[[1.0, 3.0], [2.0, 4.0]]])
    assert tables.values[0].dtype == np.float64


def test_a_gap_in_a_nullable_column_is_a_missing_entry():
    frame = pd.DataFrame({"a": [1, 2], "b": pd.array([3, None], dtype="Int64")})
    tables = read_tables([frame])
    assert np.isnan(tables.values[0]).tolist() == [[False, False], [False, True]]
    assert not tables.complete


def test_a_masked_entry_is_a_missing_entry():
    table = np.ma.masked_equal(np.arange(6).reshape(3, 2), 3)
    tables = read_tables([table])
    assert np.argwhere(np.isnan(tables.values[0])).tolist() == [[1, 1]]
    assert not tables.complete


def test_columns_of_one_name_are_all_read():
    frame = pd.DataFrame([[1, 2.0], [3, 4.0]], columns=["a", "a"])
    assert_same_values(read_tables([frame]), [[[1.0, 2.0], [3.0, 4.0]]])


def test_a_plain_frame_of_floats_is_not_copied():
    values = cube()[0]
    frame = pd.DataFrame(values, copy=False)
    assert np.shares_memory(read_tables([frame]).values[0], values)


@pytest.fixture
def mapped(tmp_path: Path) -> np.memmap:
    made = np.memmap(tmp_path / "table", dtype=np.float64, mode="w+", shape=(12, 5))
    made[:] = np.random.default_rng(0).normal(size=made.shape)
    made.flush()
    return np.memmap(tmp_path / "table", dtype=np.float64, mode="r", shape=made.shape)


def test_a_memory_mapped_table_stays_on_disk(mapped):
    value = read_tables({"disk": mapped}).values[0]
    assert isinstance(value, np.memmap)
    assert np.shares_memory(value, mapped)


def test_sorted_labels_split_a_memory_mapped_table_in_place(mapped):
    tables = read_tables(mapped, ["x"] * 5 + ["y"] * 7)
    assert all(np.shares_memory(value, mapped) for value in tables.values)


def test_a_large_memory_mapped_table_is_used_where_it_lies(mapped, monkeypatch):
    monkeypatch.setattr(module, "STACKED_BYTES", 8)
    tables = read_tables([mapped, mapped])
    (found,), _ = tables.sources(tables.centres("source"), [1, 1])
    assert all(np.shares_memory(part.matrix, mapped) for part in found.parts)


def test_a_3_d_array_is_used_where_it_lies():
    stack = cube()
    tables = read_tables(stack)
    (source,), _ = tables.sources(tables.centres("source"), [1, 1, 1])
    assert np.shares_memory(source.matrix, stack)


def test_torch_tables_stay_torch():
    torch = pytest.importorskip("torch")
    tables = read_tables([torch.asarray(table) for table in cube()])
    sources, _ = tables.sources(tables.centres("source"), [1, 1, 2])
    assert all(isinstance(value, torch.Tensor) for value in tables.values)
    assert all(isinstance(source.matrix, torch.Tensor) for source in sources)
    assert_same_values(tables, cube())


# ------------------------------------------------------------------ precision


@pytest.mark.parametrize(
    ("given_", "becomes"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("float16", "float32"),
        ("longdouble", "float64"),
        ("int8", "float64"),
        ("uint32", "float64"),
        ("bool", "float64"),
        (">f8", "float64"),
    ],
)
def test_precision_is_kept_or_raised(given_, becomes):
    value = read_tables([np.eye(3, dtype=given_)]).values[0]
    assert value.dtype == np.dtype(becomes)
    np.testing.assert_array_equal(value, np.eye(3))


def test_a_float32_fit_is_float32_throughout():
    model = HMF(2, 1, random_state=0).fit([table.astype(np.float32) for table in cube()])
    assert model.shared_components_.dtype == np.float32
    assert model.unique_components_[0].dtype == np.float32
    assert model.transform(cube().astype(np.float32)[:, :2])[0].dtype == np.float32


def test_mixed_precision_is_raised_to_the_widest():
    stack = cube()
    mixed = [stack[0].astype(np.float32), stack[1], scipy.sparse.csr_array(stack[2])]
    tables = read_tables(mixed)
    assert {value.dtype for value in tables.values} == {np.dtype(np.float64)}
    assert np.shares_memory(tables.values[1], stack[1])


def test_torch_integers_and_mixed_precision_are_raised():
    torch = pytest.importorskip("torch")
    integers = torch.arange(6).reshape(3, 2)
    tables = read_tables([integers, integers.to(torch.float32)])
    assert [value.dtype for value in tables.values] == [torch.float64, torch.float64]


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array, "torch"])
def test_the_mean_of_many_single_precision_rows_is_right_to_the_last_digit(wrap):
    if wrap == "torch":
        wrap = pytest.importorskip("torch").asarray
    # added up in single precision, one row after the other, the mean would be off by 1e-5
    table = (1000 + np.random.default_rng(0).normal(size=(50_000, 2))).astype(np.float32)
    (mean,) = read_tables([wrap(table)]).centres("source")
    np.testing.assert_array_equal(mean, table.mean(axis=0, dtype=float).astype(np.float32))


# ------------------------------------------------------------------ labels


def test_names_come_in_the_order_of_first_appearance():
    labels = [f"source{k}" for k in (10, 2, 11, 1, 0, 9, 8, 7, 6, 5, 4, 3)] * 2
    tables = read_tables(np.arange(48.0).reshape(24, 2), labels)
    assert tables.names == labels[:12]
    np.testing.assert_array_equal(tables.values[1], [[2.0, 3.0], [26.0, 27.0]])


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a", "b", "c", "a"],
        [7, 3, 7, 1, 3],
        [("b", 1), ("a", 1), ("b", 1), ("c", 2), ("a", 1)],
        ["b", 2, "b", 3.5, 2],
        np.array(["b", "a", "b", "c", "a"]),
        pd.Series(["b", "a", "b", "c", "a"], index=[4, 3, 2, 1, 0]),
        pd.Categorical(["b", "a", "b", "c", "a"], categories=["a", "b", "c", "unused"]),
        pd.Series(["b", "a", "b", "c", "a"], dtype="category"),
        pd.Series([7, 3, 7, 1, 3], dtype="Int64"),
        pd.Index(["b", "a", "b", "c", "a"]),
    ],
    ids=lambda labels: f"{type(labels).__name__} of {labels[0]!r}",
)
def test_labels_of_any_kind_split_the_rows(labels):
    table = np.arange(10.0).reshape(5, 2)
    tables = read_tables(table, labels)
    given_ = list(labels)
    assert tables.names == [given_[0], given_[1], given_[3]]
    assert_same_values(tables, [table[[0, 2]], table[[1, 4]], table[[3]]])


def test_labels_split_columns_where_samples_are_shared():
    frame = pd.DataFrame(np.arange(12.0).reshape(3, 4), columns=list("pqrs"), index=list("xyz"))
    tables = read_tables(frame, ["b", "a", "b", "a"], shared_axis="samples")
    assert tables.names == ["b", "a"]
    assert_same_values(tables, [frame[["p", "r"]], frame[["q", "s"]]])
    assert [list(columns) for columns in tables.columns] == [["p", "r"], ["q", "s"]]
    assert [list(index) for index in tables.index] == [list("xyz")] * 2


@given(labels=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=20), data=st.data())
def test_what_labels_split_is_put_together_again(labels, data):
    axis = data.draw(st.sampled_from(["features", "samples"]))
    table = np.arange(3.0 * len(labels)).reshape(len(labels), 3)
    table = table if axis == "features" else table.T
    tables = read_tables(table, labels, shared_axis=axis)
    np.testing.assert_array_equal(tables.collect(tables.values), table)


def test_unsorted_and_sorted_labels_lead_to_the_same_fit():
    rng = np.random.default_rng(0)
    table, labels = np.concatenate(list(cube())), np.repeat(list("abc"), RNG_SHAPE[1])
    order = rng.permutation(len(table))
    one = HMF(2, 1, random_state=0).fit(table, sources=labels)
    other = HMF(2, 1, random_state=0).fit(table[order], sources=labels[order])
    # the order of the rows changes nothing but rounding and the order of the sums
    np.testing.assert_allclose(one.shared_components_, other.shared_components_, atol=1e-6)
    np.testing.assert_allclose(one.reconstruct()[order], other.reconstruct(), atol=1e-5)


def test_an_empty_copy_gives_results_back_without_the_entries():
    table = np.arange(8.0).reshape(4, 2)
    tables = read_tables(table, list("abab"))
    emptied = tables.emptied()
    assert emptied.values == [] and emptied.stack is None
    np.testing.assert_array_equal(emptied.collect(tables.values), table)


def test_one_name_more_makes_a_dict_of_a_labelled_table():
    tables = read_tables(np.arange(8.0).reshape(4, 2), list("abab")).emptied().with_name("new")
    assert tables.collect([1, 2, 3]) == {"a": 1, "b": 2, "new": 3}


# ------------------------------------------------------------------ what is refused, and how


def refused(message: str) -> Any:
    return pytest.raises(ValueError, match=re.escape(message))


@pytest.mark.parametrize("nothing", [[], (), {}, np.zeros((0, 3, 2))])
def test_no_source_at_all(nothing):
    with refused("is empty"):
        read_tables(nothing)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_an_empty_source_is_named(shape):
    with refused(f"Source 'hollow' is empty: 0 sample(s) or 0 feature(s) (shape={shape})"):
        read_tables({"full": np.eye(3), "hollow": np.zeros(shape)})


@pytest.mark.parametrize("table", [np.arange(3.0), np.float64(1), pd.Series([1.0, 2.0])])
def test_other_numbers_of_dimensions(table):
    with refused(f"Source 'x' has {np.ndim(table)} dimension(s)"):
        read_tables({"x": table})


def test_rows_of_different_lengths():
    with refused("Source 'X' is not a table"):
        read_tables([[1, 2], [3]])


def test_an_axis_nobody_knows():
    with refused("shared_axis is 'rows': expected 'features' or 'samples'."):
        read_tables(np.eye(2), shared_axis="rows")


@pytest.mark.parametrize(
    ("axis", "other", "turn"),
    [("features", "samples", lambda t: t), ("samples", "features", lambda t: t.T)],
)
def test_different_lengths_offer_the_other_reading_where_it_fits(axis, other, turn):
    wrong = {"a": turn(np.ones((4, 3))), "b": turn(np.ones((4, 5)))}
    with refused(
        f"Source 'b' has 5 {axis}, but source 'a' has 3: the sources must share their {axis}. "
        f"They all have 4 {other}: did you mean shared_axis={other!r}?"
    ):
        read_tables(wrong, shared_axis=axis)
    assert read_tables(wrong, shared_axis=other).shared_length == 4


def test_different_lengths_offer_nothing_where_nothing_fits():
    with pytest.raises(ValueError, match=r"share their features\.$"):
        read_tables([np.ones((4, 3)), np.ones((6, 5))])


def holed(value: float) -> np.ndarray:
    table = np.random.default_rng(0).normal(size=(5, 4))
    table[3, 1] = table[3, 2] = table[4, 0] = value
    return table


def column_format(table: np.ndarray) -> Any:
    """Store by columns, with a zero written out before the holes."""
    made = scipy.sparse.csc_array(table)
    made.data[0] = 0
    return made


@pytest.mark.parametrize("wrap", [np.asarray, pd.DataFrame, scipy.sparse.csr_array, column_format])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_the_first_entry_that_is_infinite_is_named(wrap, value):
    tables = read_tables({"whole": wrap(np.ones((5, 4))), "holed": wrap(holed(value))})
    with refused("Source 'holed' contains infinity: 3 of its entries, the first in row 3, col"):
        tables.complete  # noqa: B018


@pytest.mark.parametrize("wrap", [np.asarray, pd.DataFrame, scipy.sparse.csr_array, column_format])
def test_tables_with_holes_are_not_complete(wrap):
    whole, with_holes = wrap(np.ones((5, 4))), wrap(holed(np.nan))
    assert read_tables([whole]).complete
    assert not read_tables([whole, with_holes]).complete


def test_torch_entries_that_are_infinite_are_named():
    torch = pytest.importorskip("torch")
    with refused("Source 0 contains infinity: 3 of its entries, the first in row 3, column 1."):
        read_tables([torch.asarray(holed(np.inf))]).complete  # noqa: B018


def test_infinities_of_both_signs_are_named_without_another_warning():
    table = np.array([[1.0, 1.0], [np.inf, 1.0], [-np.inf, 1.0]])
    with refused("contains infinity: 2 of its entries, the first in row 1, column 0."):
        read_tables([table]).complete  # noqa: B018


@pytest.mark.parametrize("axis", ["features", "samples"])
def test_an_infinity_in_a_labelled_table_is_named_by_its_place_in_that_table(axis):
    table = np.ones((6, 6))
    table[4, 3] = np.inf
    tables = read_tables(table, list("abacbc"), shared_axis=axis)
    name = "b" if axis == "features" else "c"
    with refused(
        f"Source {name!r} contains infinity: 1 of its entries, the first in row 4, column 3 of X."
    ):
        tables.complete  # noqa: B018


def test_values_too_large_to_add_up():
    with refused("Source 0 holds values too large to add up"):
        read_tables([np.full((3, 2), 1e308)]).complete  # noqa: B018


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array])
def test_complex_numbers(wrap):
    with refused("Source 'x' holds complex numbers."):
        read_tables({"x": wrap(np.eye(2) * 1j)})


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (["low", "high"], "str"),
        (pd.Categorical(["low", "high"]), "category"),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), "datetime64"),
        (np.array([1, "high"], dtype=object), "object"),
        (np.array([1j, 2.0]), "complex128"),
    ],
)
def test_a_column_without_numbers_is_named(column, kind):
    frame = pd.DataFrame({"fine": [1.0, 2.0], "level": column})
    with pytest.raises(ValueError, match=f"Source 'x': column 'level' holds {kind}.* values"):
        read_tables({"x": frame})


@pytest.mark.parametrize(
    "table",
    [
        np.array([["1", "two"]]),
        np.array([[1, None, "x"]], dtype=object),
        np.array([["2020-01-01"]], dtype="M8[D]"),
        np.array([[b"bytes"]]),
    ],
)
def test_an_array_without_numbers_is_named(table):
    with refused("Source 'x' holds values that are not numbers"):
        read_tables({"x": table})


def test_objects_that_are_numbers_are_read():
    assert_same_values(read_tables([np.array([[1, 2.5]], dtype=object)]), [[[1.0, 2.5]]])


def test_two_tables_of_one_name():
    with refused("Two tables are named 'a': give each source its own name."):
        read_tables([np.eye(2)] * 3, np.array(["b", "a", "a"]))


def test_more_names_than_tables():
    with refused("sources= names 3 sources, but X is a list of 2 tables"):
        read_tables([np.eye(2)] * 2, ["a", "b", "c"])


@pytest.mark.parametrize(("axis", "what"), [("features", "row"), ("samples", "column")])
@pytest.mark.parametrize("labels", [["a"], "a", np.full((4, 1), "a")])
def test_labels_of_another_shape(axis, what, labels):
    with refused(f"sources= has shape {np.shape(labels)}, but X has 4 {what}s"):
        read_tables(np.eye(4), labels, shared_axis=axis)


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b", None],
        ["a", "b", np.nan],
        [1.0, 2.0, np.nan],
        np.array(["a", "b", None], dtype=object),
        pd.Series(["a", "b", None]),
        pd.Series([1, 2, None], dtype="Int64"),
        pd.Categorical(["a", "b", None]),
    ],
)
@pytest.mark.parametrize(("axis", "what"), [("features", "row"), ("samples", "column")])
def test_a_missing_label_is_counted_out(labels, axis, what):
    with refused(f"sources= is missing for {what} 2"):
        read_tables(np.eye(3), labels, shared_axis=axis)


def test_a_dict_and_labels_at_once():
    with refused("X is a dict, whose keys name the sources, and sources= is given as well"):
        read_tables({"a": np.eye(2)}, ["a"])


def named(columns: str) -> pd.DataFrame:
    return pd.DataFrame(np.ones((2, 3)), columns=list(columns))


def test_other_column_names_are_refused():
    with refused(
        "Source 's' names its features differently from source 'n': number 2 is 'z', not 'c'."
    ):
        read_tables({"n": named("abc"), "s": named("abz")})


def test_another_order_of_columns_is_refused_with_its_remedy():
    first, second = named("abc"), named("acb")
    with refused("number 1 is 'c', not 'b'. Bring them into one order, for instance with table["):
        read_tables([first, second])
    read_tables([first, second[first.columns]])


def test_names_are_compared_with_the_first_table_that_has_some():
    with refused("Source 2 names its features differently from source 1"):
        read_tables([np.ones((2, 3)), named("abc"), named("bac")])


def test_another_order_of_shared_samples_is_refused():
    one = pd.DataFrame(np.ones((2, 3)), index=["x", "y"])
    with refused("names its samples differently from source 0: number 0 is 'y', not 'x'."):
        read_tables([one, one.iloc[::-1]], shared_axis="samples")


def test_names_of_what_is_not_shared_may_differ():
    one, other = named("abc"), named("def")
    tables = read_tables([one, other], shared_axis="samples")
    assert [list(columns) for columns in tables.columns] == [list("abc"), list("def")]


# ------------------------------------------------------------------ centres


def test_the_centre_of_a_source_is_its_mean():
    tables = read_tables(uneven())
    for centre, table in zip(tables.centres("source"), uneven().values(), strict=True):
        np.testing.assert_allclose(centre, table.mean(axis=0), rtol=0, atol=1e-15)


def test_the_global_centre_is_the_mean_of_all_rows():
    expected = np.concatenate(list(uneven().values())).mean(axis=0)
    for centre in read_tables(uneven()).centres("global"):
        np.testing.assert_allclose(centre, expected, rtol=0, atol=1e-15)


def test_no_centre_is_none():
    assert read_tables(uneven()).centres(None) == [None, None, None]


def test_a_global_centre_needs_shared_features():
    with refused("centre='global' needs features that all sources share"):
        read_tables(cube(), shared_axis="samples").centres("global")


# ------------------------------------------------------------------ sources for solvers


@st.composite
def collections(draw: st.DrawFn) -> tuple[Any, str, list[int]]:
    axis = draw(st.sampled_from(["features", "samples"]))
    count = draw(st.integers(1, 8))
    shared = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    ranks = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    sparse = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    if draw(st.booleans()):  # one shape and one rank, as in a 3-d array
        lengths, ranks, sparse = [lengths[0]] * count, [ranks[0]] * count, [False] * count
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found = []
    for length, is_sparse in zip(lengths, sparse, strict=True):
        table = rng.normal(size=(length, shared) if axis == "features" else (shared, length))
        found.append(scipy.sparse.csr_array(table) if is_sparse else table)
    if len(set(lengths)) == 1 and not any(sparse) and draw(st.booleans()):
        return np.stack(found), axis, ranks
    return found, axis, ranks


@given(collected=collections(), centre=st.sampled_from(["source", None]), data=st.data())
def test_every_table_is_in_exactly_one_source_whatever_shapes_and_ranks(collected, centre, data):
    X, axis, ranks = collected
    stacked = data.draw(st.sampled_from([8, 64, module.STACKED_BYTES]))
    shard = data.draw(st.sampled_from([1, 100, module.SHARD_BYTES]))
    tables = read_tables(X, shared_axis=axis)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STACKED_BYTES", stacked)
        patch.setattr(module, "SHARD_BYTES", shard)
        found, members = tables.sources(tables.centres(centre), ranks)
    assert sorted(place for places in members for place in places) == list(range(len(X)))
    for source, places in zip(found, members, strict=True):
        assert source.shape[0] == len(places)
        assert len({ranks[place] for place in places}) == 1
        n2 = source.shape[2]
        seen = source.matmat(np.broadcast_to(np.eye(n2), (len(places), n2, n2)))
        for matrix, place in zip(seen, places, strict=True):
            table = tables.values[place]
            table = table.toarray() if hasattr(table, "toarray") else table
            expected = table - table.mean(axis=0) if centre else table
            expected = expected.T if axis == "features" else expected
            np.testing.assert_allclose(matrix, expected, atol=1e-13)


# ------------------------------------------------------------------ the input stays as it is


def all_kinds() -> dict[str, Any]:
    tables = uneven()
    return {
        "arrays": tables,
        "frames": {name: pd.DataFrame(table) for name, table in tables.items()},
        "sparse": {name: scipy.sparse.csc_array(table) for name, table in tables.items()},
        "stack": cube(),
        "one": np.concatenate(list(tables.values())),
    }


def frozen(table: Any) -> Any:
    """Make the numbers of a table read-only."""
    if isinstance(table, dict):
        return {name: frozen(one) for name, one in table.items()}
    numbers = table.data if scipy.sparse.issparse(table) else table
    if isinstance(numbers, np.ndarray):
        numbers.flags.writeable = False
    return table


def contents(table: Any) -> list[np.ndarray]:
    if isinstance(table, dict):
        return [one for value in table.values() for one in contents(value)]
    return [table.toarray() if hasattr(table, "toarray") else np.array(table)]


@pytest.mark.parametrize("kind", all_kinds())
@pytest.mark.parametrize("centre", ["source", "global", None])
@pytest.mark.parametrize("scale", ["source", None])
def test_a_fit_leaves_its_input_as_it_was(kind, centre, scale):
    X = all_kinds()[kind]
    sources = np.arange(25) % 3 if kind == "one" else None
    model = HMF(1, 1, centre=centre, scale=scale)
    model.fit(X, sources=sources).transform(X, sources=sources)
    for found, expected in zip(contents(X), contents(all_kinds()[kind]), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["arrays", "sparse", "stack", "one"])
def test_read_only_input_is_fitted_like_any_other(kind):
    sources = np.arange(25) % 3 if kind == "one" else None
    free = HMF(1, 1, random_state=0).fit(all_kinds()[kind], sources=sources)
    bound = HMF(1, 1, random_state=0).fit(frozen(all_kinds()[kind]), sources=sources)
    np.testing.assert_array_equal(bound.shared_components_, free.shared_components_)
