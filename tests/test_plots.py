"""Pictures show the numbers of the fit, and nothing overlaps."""

import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest

from heterofactor import HMF
from heterofactor.datasets import load_beijing_air, load_mice_protein, make_heterogeneous
from heterofactor.loadings import foremost, loadings
from heterofactor.plots import plot_components, plot_history, plot_variance

matplotlib.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def mice() -> HMF:
    return HMF(3, 2, random_state=0).fit(load_mice_protein().sources)


def noisy(n_sources: int) -> HMF:
    sources = make_heterogeneous(
        n_sources, n_samples=15, n_features=20, noise=0.2, random_state=0
    ).sources
    return HMF(3, 2, tol=1e-2).fit(list(sources.values()))


def test_bars_are_as_wide_as_the_table_says(mice):
    ax = plot_variance(mice)
    shares = 100 * mice.explained_variance_ratio_
    left = np.zeros(len(shares))
    assert [bars.get_label() for bars in ax.containers] == ["shared", "unique", "residual"]
    for bars, part in zip(ax.containers, shares.columns, strict=True):
        assert np.allclose([bar.get_width() for bar in bars], shares[part])
        assert np.allclose([bar.get_x() for bar in bars], left)
        left = left + shares[part].to_numpy()
    assert np.allclose(left, 100)


def test_sources_are_labelled_in_their_order_from_the_top(mice):
    ax = plot_variance(mice)
    assert [label.get_text() for label in ax.get_yticklabels()] == mice.source_names_
    low, high = ax.get_ylim()
    assert low > high
    first = ax.containers[0][0]
    assert first.get_y() < 0.5 < ax.containers[0][1].get_y() + 0.5


def test_bars_are_labelled_with_their_percentage_where_it_fits():
    ax = plot_variance(HMF(3, 3).fit(make_heterogeneous(3, noise=0.1, random_state=0).sources))
    bars = [bar for bars in ax.containers for bar in bars]
    wide = sorted(f"{bar.get_width():.0f}" for bar in bars if bar.get_width() >= 5.5)
    assert sorted(text.get_text() for text in ax.texts) == wide
    assert len(wide) < len(bars)


@pytest.mark.parametrize("n_sources", [1, 8, 40])
def test_no_labels_of_bars_overlap(n_sources):
    ax = plot_variance(noisy(n_sources))
    ax.figure.canvas.draw()
    for labels in (ax.texts, ax.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels]
        assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])


@pytest.mark.parametrize("n_sources", [4, 41])
def test_outliers_and_holes_are_shown_as_well(n_sources):
    tables = make_heterogeneous(
        n_sources, n_samples=20, n_features=15, n_shared=1, n_unique=1, noise=0.1, random_state=0
    ).sources
    for table in tables.values():
        table[0, 0], table[1, 2:5] = 9.0, np.nan
    model = HMF(1, 1, loss="trimmed", tol=1e-3, random_state=0).fit(tables)
    ax = plot_variance(model)
    if n_sources == 4:
        labels = [bars.get_label() for bars in ax.containers]
        assert labels == ["shared", "unique", "outliers", "residual"]
        assert sum(bars[0].get_width() for bars in ax.containers) == pytest.approx(100)
    else:
        assert any(text.get_text().startswith("outliers: ") for text in ax.texts)
    assert plot_components(model) is not None
    assert plot_history(model) is not None


def test_very_many_sources_are_shown_as_a_distribution():
    model = noisy(41)
    ax = plot_variance(model)
    shares = 100 * model.explained_variance_ratio_
    assert len(ax.containers) == 0
    for dots, text, part in zip(ax.collections, ax.texts, shares.columns, strict=True):
        assert np.allclose(dots.get_offsets()[:, 0], shares[part])
        assert text.get_text().startswith(f"{part}: ")
        assert f"median {shares[part].median():.0f} %" in text.get_text()
    assert "41 sources" in ax.get_xlabel()


def test_given_axes_are_used(mice):
    ax = plt.subplots()[1]
    assert plot_variance(mice, ax) is ax
    ax = plt.subplots()[1]
    assert plot_history(mice, ax) is ax


def test_panels_show_the_largest_loadings_under_their_names(mice):
    figure = plot_components(mice, top=5)
    tables = loadings(mice)
    panels = {ax.get_title(): ax for ax in figure.axes if ax.images}
    assert list(panels) == ["shared", *(f"unique to {name}" for name in mice.source_names_)]
    for title, ax in panels.items():
        expected = foremost(tables[title], 5)
        assert np.allclose(ax.images[0].get_array(), expected)
        assert [label.get_text() for label in ax.get_yticklabels()] == list(expected.index)
        low, high = ax.images[0].get_clim()
        assert low == -high
    largest = max(np.abs(ax.images[0].get_array()).max() for ax in panels.values())
    assert largest == pytest.approx(panels["shared"].images[0].get_clim()[1])


def test_no_names_of_features_overlap(mice):
    figure = plot_components(mice)
    figure.canvas.draw()
    labels = [label for ax in figure.axes[:9] for label in [*ax.get_yticklabels(), ax.title]]
    boxes = [label.get_window_extent() for label in labels]
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    panels = [ax.get_window_extent() for ax in figure.axes[:9]]
    assert not any(a.overlaps(b) for a in boxes for b in panels)


def test_each_component_gets_its_features():
    table = pd.DataFrame(
        {"shared0": [0.9, 0.8, 0.7, 0.0, 0.1], "shared1": [0, 0.1, 0.0, -0.3, 0.2]},
        index=list("abcde"),
    )
    assert list(foremost(table, 4).index) == ["a", "b", "e", "d"]


def test_loadings_are_the_components(mice):
    tables = loadings(mice)
    assert np.array_equal(tables["shared"].T, mice.shared_components_)
    for name in mice.source_names_:
        assert np.array_equal(tables[f"unique to {name}"].T, mice.unique_components_[name])


def test_loadings_of_shared_samples_add_up_to_the_variance():
    air = load_beijing_air().sources
    sources = {name: air[name].iloc[:900].reset_index(drop=True) for name in list(air)[:3]}
    model = HMF(2, 1, shared_axis="samples", scale="source").fit(sources)
    for name, table in loadings(model).items():
        assert list(table.index) == list(sources[name].columns)
        explained = model.explained_variance_ratio_.loc[name]
        squares = (table**2).sum()
        assert squares[:2].sum() == pytest.approx(explained["shared"])
        assert squares["unique0"] == pytest.approx(explained["unique"])
    figure = plot_components(model, top=4)
    assert [ax.get_title() for ax in figure.axes[:3]] == list(sources)


def test_more_sources_than_panels_are_said_to_be_left_out():
    figure = plot_components(noisy(13))
    assert figure.get_suptitle() == "the first 11 of 13 sources"
    assert len([ax for ax in figure.axes if ax.images]) == 12


def test_parts_without_components_have_no_panel():
    model = HMF(1, [0, 2]).fit(list(np.random.default_rng(0).normal(size=(2, 9, 6))))
    titles = [ax.get_title() for ax in plot_components(model).axes if ax.images]
    assert titles == ["shared", "unique to 1"]


def test_what_cannot_be_shown_is_said(mice):
    empty = HMF(0, 0).fit(list(np.random.default_rng(0).normal(size=(2, 9, 6))))
    with pytest.raises(ValueError, match="nothing to show"):
        plot_components(empty)
    with pytest.raises(ValueError, match=r"no source 'nobody': the sources are 'c-CS-m'"):
        plot_components(mice, sources=["nobody"])
    with pytest.raises(ValueError, match="top is 0"):
        plot_components(mice, top=0)


def test_history_shows_every_round_of_every_start():
    sources = make_heterogeneous(3, n_samples=15, n_features=20, noise=0.5, random_state=0).sources
    model = HMF(2, 2, n_restarts=2, random_state=0).fit(sources)
    ax = plot_history(model)
    assert ax.get_yscale() == "log"
    *curves, tol = ax.lines
    drawn = sorted(tuple(curve.get_ydata()) for curve in curves)
    runs = model.history_.groupby("start")["gradient"]
    assert drawn == sorted(tuple(run) for _, run in runs)
    assert tol.get_ydata()[0] == model.tol
    kept = next(curve for curve in curves if "kept" in str(curve.get_label()))
    assert len(kept.get_ydata()) == model.n_rounds_


@pytest.mark.parametrize("plot", [plot_variance, plot_components, plot_history])
def test_without_matplotlib_one_line_says_what_to_install(mice, monkeypatch, plot):
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "heterofactor\[plots\]"$'):
        plot(mice)
