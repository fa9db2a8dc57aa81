"""Tables that are not held in memory: the same answers, few passes, little memory, clear words."""

import pickle
import subprocess
import sys
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pandas as pd
import pytest

from heterofactor import HAE, HMF
from heterofactor import stored as module
from heterofactor.brought import read_tables
from heterofactor.datasets import make_heterogeneous
from heterofactor.memory import bytes_of, within
from heterofactor.ondisk import OnDisk
from heterofactor.stored import Stored, stored
from heterofactor.stores import Flat, Sliced

# Sums are taken in another order.
SAME = 1e-10


class Counted:
    """A table that is read by slices, and counts how many of its entries were."""

    def __init__(self, table: np.ndarray) -> None:
        self.table, self.shape, self.dtype, self.read = table, table.shape, table.dtype, 0

    def __getitem__(self, key: Any) -> np.ndarray:
        block = self.table[key]
        self.read += block.size
        return block

    @property
    def passes(self) -> float:
        return self.read / self.table.size


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables be cut that a test can hold."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 7_000)


@pytest.fixture(scope="module")
def tables() -> dict[str, np.ndarray]:
    """Return three tables of 300 samples and 40 features, far from zero."""
    data = make_heterogeneous(
        3, n_samples=300, n_features=40, n_shared=2, n_unique=2, noise=0.1, random_state=0
    )
    return {name: table + np.linspace(-3, 3, 40) for name, table in data.sources.items()}


def as_npy(table: np.ndarray, folder: Path) -> Any:
    np.save(folder / "table.npy", table)
    return folder / "table.npy"


def as_fortran_npy(table: np.ndarray, folder: Path) -> Any:
    np.save(folder / "table.npy", np.asfortranarray(table))
    return str(folder / "table.npy")


def as_map(table: np.ndarray, folder: Path) -> Any:
    return np.load(as_npy(table, folder), mmap_mode="r")


def as_part_of_a_map(table: np.ndarray, folder: Path) -> Any:
    above, below = np.full((3, table.shape[1]), np.nan), np.full((2, table.shape[1]), np.nan)
    return as_map(np.concatenate([above, table, below]), folder)[3:-2]


def as_every_second_column_of_a_map(table: np.ndarray, folder: Path) -> Any:
    return as_map(np.repeat(table, 2, axis=1), folder)[:, ::2]


def as_changed_map(table: np.ndarray, folder: Path) -> Any:
    changed = np.load(as_npy(table + 1, folder), mmap_mode="c")
    changed -= 1
    return changed


def as_zarr(table: np.ndarray, folder: Path) -> Any:
    zarr = pytest.importorskip("zarr")
    return zarr.create_array(str(folder / "table.zarr"), data=table, chunks=(11, 40))


def as_hdf(table: np.ndarray, folder: Path) -> Any:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "table.h5", "w") as file:
        file["X"] = table
    return lambda: h5py.File(folder / "table.h5")["X"]


def as_anndata(table: np.ndarray, folder: Path) -> Any:
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(table).write_h5ad(folder / "table.h5ad")
    return anndata.read_h5ad(folder / "table.h5ad", backed="r").X


def as_sparse_anndata(table: np.ndarray, folder: Path) -> Any:
    anndata = pytest.importorskip("anndata")
    sparse = pytest.importorskip("scipy.sparse")
    anndata.AnnData(sparse.csr_matrix(table)).write_h5ad(folder / "table.h5ad")
    return anndata.read_h5ad(folder / "table.h5ad", backed="r").X


def as_parquet(table: np.ndarray, folder: Path) -> Any:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(table, index=[f"sample{k}" for k in range(len(table))])
    frame.columns = [f"feature{k}" for k in range(table.shape[1])]
    frame.to_parquet(folder / "table.parquet", row_group_size=70)
    return folder / "table.parquet"


def as_slices(table: np.ndarray, folder: Path) -> Any:
    return Counted(table)


def as_callable(table: np.ndarray, folder: Path) -> Any:
    return lambda: as_npy(table, folder)


KINDS = [
    as_npy, as_fortran_npy, as_map, as_part_of_a_map, as_every_second_column_of_a_map,
    as_changed_map, as_zarr, as_hdf, as_anndata, as_sparse_anndata, as_parquet, as_slices,
    as_callable,
]  # fmt: skip


def assert_same(found: HMF, expected: HMF, within: float = SAME) -> None:
    for name in expected.source_names_:
        wanted = expected.reconstruct(name)
        size = np.abs(wanted).max()
        np.testing.assert_allclose(np.asarray(found.reconstruct(name)), wanted, atol=within * size)
    shared = expected.shared_components_
    np.testing.assert_allclose(found.shared_components_, shared, atol=within)
    variance = expected.explained_variance_.to_numpy()
    np.testing.assert_allclose(
        found.explained_variance_.to_numpy(), variance, atol=within * variance.max()
    )
    assert found.n_rounds_ == expected.n_rounds_


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", ["features", "samples"])
def test_the_answer_is_that_of_tables_in_memory(
    kind: Any, axis: str, tables: dict[str, np.ndarray], tmp_path: Path
) -> None:
    given: dict[str, Any] = dict(tables)
    given["source1"] = kind(tables["source1"], tmp_path)
    setting: dict[str, Any] = {"shared_axis": axis, "random_state": 0}
    expected = HMF(2, 2, **setting).fit(tables)
    found = HMF(2, 2, max_memory="1MB", **setting).fit(given)
    assert_same(found, expected)
    name = "source1"
    if axis == "features":
        scores = found.transform(given[name], sources=name)
        wanted = expected.transform(tables[name], sources=name)
    else:
        scores, wanted = found.transform(given), expected.transform(tables)
    np.testing.assert_allclose(np.asarray(scores), wanted, atol=SAME * np.abs(wanted).max())


@pytest.mark.parametrize("centre", ["source", "global", None])
@pytest.mark.parametrize("scale", ["source", None])
@pytest.mark.parametrize("long", [0, 10**9], ids=["streamed", "gram"])
def test_centres_and_scales(
    centre: Any,
    scale: Any,
    long: int,
    tables: dict[str, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GRAM_LENGTH", long)
    setting: dict[str, Any] = {"centre": centre, "scale": scale, "random_state": 0}
    expected = HMF(2, 2, **setting).fit(tables)
    given = {name: Counted(table) for name, table in tables.items()}
    assert_same(HMF(2, 2, **setting).fit(given), expected)


@pytest.mark.parametrize("axis", ["features", "samples"])
def test_a_short_shared_axis_needs_two_passes(axis: Any, tables: dict[str, np.ndarray]) -> None:
    if axis == "samples":
        tables = {name: np.ascontiguousarray(table.T) for name, table in tables.items()}
    given = {name: Counted(table) for name, table in tables.items()}
    HMF(2, 2, shared_axis=axis, random_state=0).fit(given)
    # the first slice is looked at once more, for its shape
    assert [table.passes for table in given.values()] == [2, 2, 2]


def test_passes_of_a_long_shared_axis(
    tables: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRAM_LENGTH", 0)
    given = {name: Counted(table) for name, table in tables.items()}
    model = HMF(2, 2, random_state=0).fit(given)
    # one for the moments, at most six for the start, one a round, one for the scores
    assert max(table.passes for table in given.values()) <= 8 + model.n_rounds_


def test_transform_reads_once(tables: dict[str, np.ndarray]) -> None:
    model = HMF(2, 2).fit(tables)
    given = Counted(tables["source0"])
    model.transform({"source0": given})
    assert given.passes == 1


def test_a_source_that_joins_is_streamed(tables: dict[str, np.ndarray]) -> None:
    last = tables["source2"]
    two = {name: tables[name] for name in ("source0", "source1")}
    expected, found = (HMF(2, 2, random_state=0).fit(two) for _ in range(2))
    expected.add_source("source2", last)
    found.add_source("source2", lambda: last)
    np.testing.assert_allclose(
        found.reconstruct("source2"), expected.reconstruct("source2"), atol=1e-8
    )


def test_several_tables_are_read_side_by_side(
    tables: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "blas_threads", lambda: 2)
    both = Barrier(2, timeout=60)  # is passed only if two wait at it

    class Waiting(Counted):
        def __getitem__(self, key: Any) -> np.ndarray:
            if self.read == 0:
                both.wait()
            return super().__getitem__(key)

    given = [stored(Waiting(tables[name]), name) for name in ("source0", "source1")]
    module.examine(given)
    for table in given:
        expected = tables[str(table.name)].mean(axis=0)
        np.testing.assert_allclose(table.moments.means, expected, atol=SAME)
    failing = stored(Failing(tables["source2"]), "north")
    with pytest.raises(OSError, match="'north' cannot be read"):
        module.examine([failing, stored(Counted(tables["source0"]), "south")])


@pytest.mark.parametrize("engine", ["serial", "threads"])
@pytest.mark.parametrize("solver", ["grassmann", "averaging"])
def test_solvers_and_engines(engine: str, solver: str, tables: dict[str, np.ndarray]) -> None:
    given = {name: Counted(table) for name, table in tables.items()}
    setting: dict[str, Any] = {"solver": solver, "engine": engine, "random_state": 0, "tol": 1e-6}
    expected = HMF(2, 2, max_rounds=4000, **setting).fit(tables)
    assert_same(HMF(2, 2, max_rounds=4000, **setting).fit(given), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, ">f8"])
def test_other_precisions(dtype: Any, tables: dict[str, np.ndarray], tmp_path: Path) -> None:
    rounded = {name: np.round(50 * table).astype(dtype) for name, table in tables.items()}
    given: dict[str, Any] = dict(rounded)
    given["source1"] = as_npy(rounded["source1"], tmp_path)
    native = {
        name: table.astype(np.dtype(dtype).newbyteorder("=")) for name, table in rounded.items()
    }
    expected = HMF(2, 2, random_state=0).fit(native)
    found = HMF(2, 2, random_state=0).fit(given)
    assert found.shared_components_.dtype == expected.shared_components_.dtype
    # of single precision, the noise of rounding in the directions of noise 0.1
    within = 1e-4 if dtype is np.float32 else SAME
    np.testing.assert_allclose(
        found.reconstruct("source1"), expected.reconstruct("source1"), atol=within * 1000
    )


def test_a_single_table_beside_double_ones(tables: dict[str, np.ndarray], tmp_path: Path) -> None:
    single = tables["source1"].astype(np.float32)
    expected = HMF(2, 2, random_state=0).fit({**tables, "source1": single})
    found = HMF(2, 2, random_state=0).fit({**tables, "source1": as_npy(single, tmp_path)})
    assert_same(found, expected)


def test_one_table_alone(tables: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = as_npy(tables["source0"], tmp_path)
    expected = HMF(2, 0, random_state=0).fit(tables["source0"])
    found = HMF(2, 0, random_state=0)
    scores = found.fit_transform(path)
    np.testing.assert_allclose(scores, expected.transform(tables["source0"]), atol=1e-8)


def test_names_of_columns_come_from_parquet(tables: dict[str, np.ndarray], tmp_path: Path) -> None:
    model = HMF(1, 1).fit({"north": as_parquet(tables["source0"], tmp_path)})
    assert model.feature_names_in_[:2].tolist() == ["feature0", "feature1"]
    assert model.reconstruct("north").columns[0] == "feature0"


def test_maps_are_arrays_without_a_limit(tables: dict[str, np.ndarray], tmp_path: Path) -> None:
    found = as_map(tables["source0"], tmp_path)
    (plain,), (cut,) = (
        read_tables([found], in_blocks=in_blocks).values for in_blocks in (False, True)
    )
    assert isinstance(plain, np.memmap) and np.shares_memory(plain, found)
    assert isinstance(cut, Stored) and isinstance(cut.opener(), Flat)


@pytest.mark.parametrize("kind", [as_npy, as_map])
def test_what_is_sent_to_a_worker_is_the_path(
    kind: Any, tables: dict[str, np.ndarray], tmp_path: Path
) -> None:
    table = stored(kind(tables["source0"], tmp_path), "north")
    sent = pickle.dumps(table)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent).moments.means, table.moments.means)


def test_a_changed_map_is_not_read_from_its_file(
    tables: dict[str, np.ndarray], tmp_path: Path
) -> None:
    changed = as_changed_map(tables["source0"], tmp_path)
    assert isinstance(stored(changed, "north").opener(), Sliced)


def test_chunks_are_read_whole(tables: dict[str, np.ndarray]) -> None:
    table = Counted(tables["source0"])
    table.chunks = (13, 40)  # type: ignore[attr-defined]
    widths = [block.shape[0] for block in Sliced(table).read(0, 30)]
    assert set(widths[:-1]) == {26}


class Failing(Counted):
    """A table whose rows cannot be read from one on."""

    def __getitem__(self, key: Any) -> np.ndarray:
        if key.stop > 100:
            raise OSError("the disk is gone")
        return super().__getitem__(key)


def test_errors_name_the_source_and_the_rows(tables: dict[str, np.ndarray]) -> None:
    with pytest.raises(OSError, match=r"'north' cannot be read, in rows 84 to 104: .*disk is gone"):
        HMF(1, 1).fit({"north": Failing(tables["source0"])})


@pytest.mark.parametrize(("value", "what"), [(np.nan, "a missing entry"), (np.inf, "infinity")])
@pytest.mark.parametrize("axis", ["features", "samples"])
def test_what_is_missing_is_found(
    value: float, what: str, axis: Any, tables: dict[str, np.ndarray]
) -> None:
    table = tables["source0"].copy()
    table[123, 31] = value
    said = rf"'north' has {what} in row 123, column 31, .*must be complete.*Fill it in"
    with pytest.raises(ValueError, match=said):
        HMF(1, 1, shared_axis=axis).fit({"south": tables["source1"], "north": Counted(table)})
    model = HMF(1, 1, shared_axis=axis).fit({"north": tables["source0"]})
    with pytest.raises(ValueError, match=said):
        model.transform({"north": Counted(table)})


def test_a_truncated_file(tables: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = as_npy(tables["source0"], tmp_path)
    with open(path, "r+b") as file:
        file.truncate(128 + 200 * 40 * 8)
    with pytest.raises(OSError, match=r"'north' cannot be read, in rows 189 to 209: .*ends before"):
        HMF(1, 1).fit({"north": path})


def test_a_changed_shape(tables: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = as_npy(tables["source0"], tmp_path)
    table = stored(path, "north")
    np.save(path, tables["source0"][:200])
    with pytest.raises(ValueError, match=r"'north' has changed .* \(300, 40\), and now .*\(200"):
        table.moments  # noqa: B018 - reads it


@pytest.mark.parametrize("rows", [200, 400])
def test_a_store_that_yields_less_or_more_than_it_said(
    rows: int, tables: dict[str, np.ndarray]
) -> None:
    class Lying(Sliced):
        def read(self, axis: int, width: int) -> Any:
            yield np.zeros((rows, 40))

    table = Stored("north", lambda: Lying(tables["source0"]), (300, 40), np.dtype(float))
    with pytest.raises(ValueError, match="'north' has changed"):
        table.moments  # noqa: B018 - reads it


def test_a_callable_that_fails() -> None:
    def fail() -> Any:
        raise PermissionError("not yours")

    with pytest.raises(OSError, match="'north' cannot be opened: PermissionError: not yours"):
        HMF(1, 1).fit({"north": fail})


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ("table.csv", OSError, r"ends in \.npy or \.parquet.*callable"),
        ("nowhere.npy", OSError, "cannot be opened: FileNotFoundError"),
        (lambda: np.ones(3), ValueError, r"shape \(3,\): expected two dimensions"),
        (lambda: np.array([["a"]]), ValueError, "not real numbers"),
        (lambda: 7, OSError, "cannot be opened: AttributeError"),
    ],
)
def test_what_is_no_table(given: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=f"'north'.*{said}"):
        HMF(1, 1).fit({"north": given})


def test_text_in_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"length": [1.0, 2.0], "colour": ["red", "blue"]})
    frame.to_parquet(tmp_path / "table.parquet")
    with pytest.raises(OSError, match=r"'north'.*column 'colour' holds .*string, not numbers"):
        HMF(1, 1).fit({"north": tmp_path / "table.parquet"})


@pytest.mark.parametrize("setting", [{"loss": "huber"}, {"ridge": 1.0}, {"solver": "alternating"}])
def test_other_fits_are_refused(setting: dict[str, Any], tables: dict[str, np.ndarray]) -> None:
    given = {**tables, "source1": Counted(tables["source1"])}
    with pytest.raises(TypeError, match=r"'source1' is not held in memory: .*squared loss"):
        HMF(1, 1, **setting).fit(given)


def test_holes_beside_it_are_refused(tables: dict[str, np.ndarray]) -> None:
    holes = tables["source0"].copy()
    holes[0, 0] = np.nan
    with pytest.raises(TypeError, match="'source1' is not held in memory"):
        HMF(1, 1).fit({"source0": holes, "source1": Counted(tables["source1"])})


def test_labels_of_rows_are_refused(tables: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="a dict with a table for each source"):
        HMF(1, 1).fit(Counted(tables["source0"]), sources=["a"] * 300)


def test_imputing_and_scoring_are_refused(tables: dict[str, np.ndarray]) -> None:
    model = HMF(1, 1).fit(tables)
    for call in (model.impute, model.score):
        with pytest.raises(TypeError, match="'source0' is not held in memory"):
            call({"source0": Counted(tables["source0"])})


def test_networks_refuse_it(tables: dict[str, np.ndarray]) -> None:
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match="'source0' is not held in memory"):
        HAE(1, 1).fit({"source0": Counted(tables["source0"])})


def test_predictions_are_dense(tables: dict[str, np.ndarray]) -> None:
    model = HMF(1, 1).fit(tables)
    found = model.predict({"source0": Counted(tables["source0"])})["source0"]
    np.testing.assert_allclose(found, model.reconstruct("source0"), atol=1e-8)


@pytest.mark.parametrize("limit", ["2 apples", "GB", "", 0, -1, True, 1.5, "0GB"])
def test_limits_that_are_none(limit: Any, tables: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"max_memory is .*'2GB'"):
        HMF(1, 1, max_memory=limit).fit(tables)


@pytest.mark.parametrize(("limit", "count"), [("0.5GB", 5 * 10**8), ("2kib", 2048), (" 7 ", 7)])
def test_limits(limit: str, count: int) -> None:
    assert bytes_of(limit) == count


def test_a_limit_below_what_the_factors_take(tables: dict[str, np.ndarray]) -> None:
    given = {name: Counted(table) for name, table in tables.items()}
    with pytest.raises(
        ValueError, match=r"max_memory is '20KB', but the factors .* 0\.12 MB.*lower"
    ):
        HMF(2, 2, max_memory="20KB").fit(given)


def test_a_tight_limit_does_without_normal_matrices(tables: dict[str, np.ndarray]) -> None:
    given = read_tables({name: Counted(table) for name, table in tables.items()})
    factors = 3 * (3 * 300 + 8 * 40) * 4 * 8
    tight, wide = (within(given, [2] * 3, 2, factors + more).values for more in (10**4, 10**6))
    assert not any(table.keeps_gram for table in tight)
    assert all(table.keeps_gram for table in wide)
    assert tight[0].block_bytes < wide[0].block_bytes


FIT = """
import sys
import numpy as np
from pathlib import Path
from heterofactor import HMF

def peak():
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1000

folder = Path(sys.argv[1])
HMF(1, 1).fit([np.random.default_rng(0).normal(size=(50, 10))] * 2)  # loads all that is loaded late
before = peak()
given = sorted(folder.glob("*.npy"))
if sys.argv[2] == "maps":
    given = [np.load(path, mmap_mode="r") for path in given]
HMF(1, 1, max_memory="30MB", tol=1e-3, random_state=0).fit(given)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
@pytest.mark.parametrize("given", ["paths", "maps"])
def test_memory_is_bounded(given: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for k in range(2):
        scores, basis = rng.normal(size=(20_000, 2)), rng.normal(size=(2, 300))
        np.save(tmp_path / f"{k}.npy", scores @ basis + rng.normal(size=(20_000, 300)))
    answer = subprocess.run(
        [sys.executable, "-c", FIT, str(tmp_path), given],
        capture_output=True,
        text=True,
        check=True,
    )
    # 96 MB lie on the disk
    assert float(answer.stdout) < 30


def test_a_source_that_shares_samples_has_its_means_for_centre(
    tables: dict[str, np.ndarray],
) -> None:
    source = OnDisk(stored(Counted(tables["source0"]), "north", axis=1), np.zeros(40))
    with pytest.raises(ValueError, match="expected the means"):
        source.energy  # noqa: B018 - needs the centre
