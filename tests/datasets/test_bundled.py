"""The bundled data are whole, named, licensed, and what the script makes of the raw ones."""

import runpy
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from heterofactor.datasets import RealData, load_beijing_air, load_mice_protein

LOADERS = pytest.mark.parametrize("load", [load_mice_protein, load_beijing_air])
FOLDER = files("heterofactor.datasets").joinpath("data")
MICE = {
    "c-CS-m": 150,
    "c-CS-s": 120,
    "c-SC-m": 150,
    "c-SC-s": 135,
    "t-CS-m": 135,
    "t-CS-s": 105,
    "t-SC-m": 135,
    "t-SC-s": 132,
}
DAYS = {
    "Aotizhongxin": 1381,
    "Changping": 1410,
    "Dingling": 1369,
    "Dongsi": 1300,
    "Guanyuan": 1398,
    "Gucheng": 1402,
    "Huairou": 1414,
    "Nongzhanguan": 1428,
    "Shunyi": 1359,
    "Tiantan": 1417,
    "Wanliu": 1351,
    "Wanshouxigong": 1410,
}
UNITS = ["PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM"]


@LOADERS
def test_nothing_is_missing_and_features_are_the_same(load: Callable[[], RealData]) -> None:
    tables = list(load().sources.values())
    for table in tables:
        assert np.isfinite(table.to_numpy()).all()
        assert set(table.dtypes) == {np.dtype(np.float64)}
        assert table.index.is_unique
        assert table.columns.is_unique
        pd.testing.assert_index_equal(table.columns, tables[0].columns)


@LOADERS
def test_every_load_is_a_fresh_copy(load: Callable[[], RealData]) -> None:
    name, table = next(iter(load().sources.items()))
    table.iloc[0, 0] = 1e9
    assert load().sources[name].iloc[0, 0] != 1e9


@LOADERS
def test_terms_and_authors_are_stated(load: Callable[[], RealData]) -> None:
    data = load()
    terms = FOLDER.joinpath("LICENSE-DATA.md").read_text(encoding="utf-8")
    assert data.licence.startswith("CC BY 4.0")
    assert data.url.startswith("https://archive.ics.uci.edu/dataset/")
    assert data.url in terms
    doi = data.citation.rsplit(" ", 1)[1]
    assert doi.startswith("https://doi.org/10.24432/")
    assert doi in terms
    assert len(data.description) > 200


def test_mice_are_eight_groups_of_measurements() -> None:
    mice = load_mice_protein().sources
    assert {group: len(table) for group, table in mice.items()} == MICE
    assert sum(MICE.values()) == 1062
    for table in mice.values():
        assert table.shape[1] == 70
        assert table.index.names == ["mouse", "measurement"]
        assert set(table.index.get_level_values("measurement")) <= set(range(1, 16))
    assert len({mouse for table in mice.values() for mouse, _ in table.index}) == 71


def test_no_mouse_is_in_two_groups() -> None:
    mice = [set(t.index.get_level_values("mouse")) for t in load_mice_protein().sources.values()]
    assert sum(map(len, mice)) == len(set.union(*mice))


def test_first_measurement_of_mice_is_the_published_one() -> None:
    first = load_mice_protein().sources["c-CS-m"].iloc[0]
    assert first.name == ("309", 1)
    np.testing.assert_allclose(first.iloc[:3], [0.503644, 0.747193, 0.430175], atol=1e-6)


def test_beijing_is_twelve_stations_of_days() -> None:
    air = load_beijing_air().sources
    assert {station: len(table) for station, table in air.items()} == DAYS
    assert sum(DAYS.values()) == 16639
    for table in air.values():
        assert list(table.columns) == UNITS
        assert isinstance(table.index, pd.DatetimeIndex)
        assert table.index.is_monotonic_increasing
        assert table.index[0] >= pd.Timestamp("2013-03-01")
        assert table.index[-1] <= pd.Timestamp("2017-02-28")


def test_beijing_values_have_their_units() -> None:
    # summers are warm, winters cold and polluted: a wrong scale or a shifted day would show
    table = pd.concat(load_beijing_air().sources.values())
    months = pd.DatetimeIndex(table.index).month
    assert 24 < table["TEMP"][months == 7].mean() < 30
    assert -6 < table["TEMP"][months == 1].mean() < 1
    assert 1000 < table["PRES"].mean() < 1020
    assert table["PM2.5"][months == 12].mean() > 1.3 * table["PM2.5"][months == 8].mean()
    assert table["CO"].between(100, 10_000).all()
    assert (table.drop(columns=["TEMP", "DEWP"]) >= 0).all(axis=None)


def test_bundle_is_small() -> None:
    # what every installation carries; a data file added here should be a decision
    sizes = [len(entry.read_bytes()) for entry in FOLDER.iterdir() if entry.name.endswith(".npz")]
    assert len(sizes) == 3
    assert sum(sizes) < 600_000


@pytest.mark.real
def test_the_script_makes_the_bundled_files(shared_data: Path, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "experiments" / "bundle_data.py"
    make = runpy.run_path(str(script))
    make["bundle_mice"](shared_data / "mice-protein" / "mice_protein.npz", tmp_path / "mice.npz")
    make["bundle_beijing"](shared_data / "beijing-air" / "beijing_air.npz", tmp_path / "air.npz")
    for made, bundled in (("mice.npz", "mice_protein.npz"), ("air.npz", "beijing_air.npz")):
        with np.load(tmp_path / made) as one, np.load(str(FOLDER.joinpath(bundled))) as two:
            assert one.files == two.files
            for key in one.files:
                np.testing.assert_array_equal(one[key], two[key])


@pytest.mark.real
def test_bundled_days_are_the_means_of_the_raw_hours(shared_data: Path) -> None:
    with np.load(shared_data / "beijing-air" / "beijing_air.npz") as raw:
        hours = pd.DataFrame(
            raw["values"][9].astype(np.float64),
            index=pd.date_range("2013-03-01", periods=35064, freq="h"),
            columns=raw["variables"],
        )
    days = hours.resample("D").mean()[hours.resample("D").count().min(axis=1) >= 12]
    bundled = load_beijing_air().sources["Tiantan"]
    assert list(bundled.index) == list(days.index)
    steps = np.array([0.1, 0.1, 0.1, 0.1, 1, 0.1, 0.01, 0.1, 0.01, 0.001, 0.01])
    assert (np.abs(bundled.to_numpy() - days.to_numpy()) <= 0.501 * steps).all()
