"""Pictures of a fit: how much is shared, what the components are made of, how the rounds went."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from heterofactor.hmf import HMF
from heterofactor.loadings import foremost, loadings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's blue and orange, told apart by everyone, and a light grey.
COLOURS = {
    "shared": "#0072B2",
    "unique": "#E69F00",
    "outliers": "#CC79A7",
    "residual": "#D9D9D9",
}
INK = {"shared": "white", "unique": "black", "outliers": "black", "residual": "black"}
# With more sources than this, bars are too thin to label, and their distribution says more.
MOST_BARS = 40
# A label needs about this share of the width of the bars.
ROOM = 0.055
# Panels of components beside the shared one, if the sources are not chosen.
MOST_PANELS = 11
# Where a gradient of zero is drawn.
FLOOR = 1e-17


def plot_variance(model: HMF, ax: Axes | None = None) -> Axes:
    """Show what shared part, unique part and residual make up of each source.

    One bar for each source, in their order; for more than 40 sources, the distribution of the
    shares over the sources. Outliers, where the loss takes them out, are a part of their own.

    Parameters
    ----------
    model : HMF
        A fitted model.
    ax : matplotlib Axes, optional
        Where to draw; a new figure of fitting size if left out.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import make_heterogeneous
    >>> from heterofactor.plots import plot_variance
    >>> model = HMF(3, 3).fit(make_heterogeneous(5, noise=0.1, random_state=0).sources)
    >>> plot_variance(model).get_xlabel()
    'share of the variance of each source (%)'
    """
    check_is_fitted(model)
    shares = model.explained_variance_ratio_
    few = len(shares) <= MOST_BARS
    if ax is None:
        longest = max(len(str(name)) for name in shares.index) if few else 8
        height = 1.3 + 0.3 * len(shares) if few else 3.2
        ax = _pyplot().subplots(
            figsize=(6.4 + 0.075 * min(longest, 40), height), layout="constrained"
        )[1]
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 100)
    (_draw_bars if few else _draw_distribution)(ax, shares)
    return ax


def _draw_bars(ax: Axes, shares: pd.DataFrame) -> None:
    places = list(range(len(shares)))
    left = np.zeros(len(shares))
    for part in shares.columns:
        colour = COLOURS[part]
        # rounding can leave a residual of -1e-16
        width = 100 * np.clip(shares[part].to_numpy(), 0, None)
        ax.barh(places, width, left=left, height=0.8, color=colour, label=part)
        for place, start, size in zip(places, left, width, strict=True):
            if size >= 100 * ROOM:
                ax.text(
                    start + size / 2,
                    place,
                    f"{size:.0f}",
                    ha="center",
                    va="center",
                    color=INK[part],
                    fontsize=9,
                )
        left += width
    ax.set_yticks(places, [_short(name, 40) for name in shares.index])
    ax.set_ylim(len(shares) - 0.4, -0.6)  # the first source on top
    ax.set_xlabel("share of the variance of each source (%)")
    ax.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, borderaxespad=0.2,
        handlelength=1, handleheight=1, columnspacing=1.5,
    )  # fmt: skip


def _draw_distribution(ax: Axes, shares: pd.DataFrame) -> None:
    rng = np.random.default_rng(0)  # where the dots lie across the row means nothing
    for place, part in enumerate(shares.columns):
        colour = COLOURS[part]
        percent = 100 * np.clip(shares[part].to_numpy(), 0, None)
        ink = "#8C8C8C" if part == "residual" else colour
        across = place + 0.12 + 0.22 * rng.random(len(percent))
        ax.scatter(percent, across, s=9, color=ink, alpha=0.5, linewidths=0)
        low, middle, high = np.percentile(percent, [25, 50, 75])
        box = {"facecolor": colour, "edgecolor": "black", "linewidth": 0.8}
        ax.boxplot(
            percent, positions=[place - 0.08], orientation="horizontal", widths=0.26,
            patch_artist=True, showfliers=False, boxprops=box, medianprops={"color": "black"},
            whis=(0, 100), manage_ticks=False,
        )  # fmt: skip
        says = (
            f"{part}: half of the sources between {low:.0f} and {high:.0f} %, median {middle:.0f} %"
        )
        ax.text(0, place - 0.3, says, va="bottom", fontsize=9)
    ax.set_yticks([])
    ax.set_ylim(shares.shape[1] - 0.5, -0.62)
    ax.set_xlabel(f"share of the variance of each of {len(shares)} sources (%)")


def plot_components(
    model: HMF, top: int = 12, *, sources: Sequence[Hashable] | None = None
) -> Figure:
    """Show the features with the largest loadings, shared and unique to each source.

    Where the features are shared, one panel for the shared components and one for each source's
    unique ones. Where the samples are shared, every source has features of its own: one panel for
    each source, with the loadings of its features as parts of the source's norm, so that their
    squares add up to the share of variance that a component explains.

    Parameters
    ----------
    model : HMF
        A fitted model.
    top : int
        Number of features in each panel: those with the largest loadings on its components, as many
        for each of them.
    sources : sequence, optional
        Names of the sources to show; the first eleven if left out.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import load_mice_protein
    >>> from heterofactor.plots import plot_components
    >>> model = HMF(3, 2, random_state=0).fit(load_mice_protein().sources)
    >>> figure = plot_components(model, top=8, sources=["c-CS-m", "t-CS-m"])
    >>> [ax.get_title() for ax in figure.axes[:3]]
    ['shared', 'unique to c-CS-m', 'unique to t-CS-m']
    """
    check_is_fitted(model)
    known = model.source_names_
    chosen = known[:MOST_PANELS] if sources is None else list(sources)
    panels = loadings(model, chosen).items()
    tables = [(title, foremost(table, top)) for title, table in panels if table.shape[1]]
    if not tables:
        raise ValueError("There is nothing to show: no component is shared, and none is unique.")
    limit = max(float(table.abs().to_numpy().max()) for _, table in tables) or 1.0

    count = len(tables)
    columns = count if count <= 4 else min((4, 5, 3), key=lambda width: -count % width)
    rows = -(-count // columns)
    letters = max(len(_short(feature)) for _, table in tables for feature in table.index)
    cells = max(table.shape[1] for _, table in tables)
    width = max(0.075 * letters + 0.36 * cells + 0.35, 1.9)
    height = 0.19 * max(len(table) for _, table in tables) + 0.62
    tall = height * rows + 0.6
    figure: Figure
    figure, axes = _pyplot().subplots(
        rows, columns, squeeze=False, layout="constrained",
        figsize=(max(width * columns, 3.2), tall),
    )  # fmt: skip
    for ax, (title, table) in zip(axes.flat, tables, strict=False):
        image = ax.imshow(table, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
        ax.set_title(_short(title, 30), fontsize=10)
        ax.set_yticks(range(len(table)), [_short(feature) for feature in table.index], fontsize=8)
        ax.set_xticks(range(table.shape[1]), map(_tick, table.columns), fontsize=8)
        ax.tick_params(length=0)
        ax.set_xticks(np.arange(1, table.shape[1]) - 0.5, minor=True)
        ax.set_yticks(np.arange(1, len(table)) - 0.5, minor=True)
        ax.grid(which="minor", color="white", linewidth=1)
        ax.tick_params(which="minor", length=0)
        ax.spines[:].set_visible(False)
    for ax in axes.flat[count:]:
        ax.remove()
    figure.colorbar(
        image, ax=figure.axes, location="bottom", label="loading", shrink=min(1, 3 / columns),
        fraction=0.15 / tall, pad=0.08 / tall, aspect=25,
    )  # fmt: skip
    if len(chosen) < len(known) and sources is None:
        figure.suptitle(f"the first {len(chosen)} of {len(known)} sources", fontsize=10)
    return figure


def plot_history(model: HMF, ax: Axes | None = None) -> Axes:
    """Show the relative gradient of every round, on a logarithmic scale.

    Parameters
    ----------
    model : HMF
        A fitted model.
    ax : matplotlib Axes, optional
        Where to draw; a new figure if left out.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import make_heterogeneous
    >>> from heterofactor.plots import plot_history
    >>> model = HMF(3, 3).fit(make_heterogeneous(5, noise=0.1, random_state=0).sources)
    >>> plot_history(model).get_ylabel()
    'relative gradient'
    """
    check_is_fitted(model)
    if ax is None:
        ax = _pyplot().subplots(figsize=(6, 3.6), layout="constrained")[1]
    best = model.diagnostics_.start
    runs = dict(list(model.history_.groupby("start", sort=False)["gradient"]))
    others = [name for name in runs if name != best]
    for name in [*others, best]:
        # a gradient of exactly zero has no logarithm
        gradient = np.clip(runs[name].to_numpy(), FLOOR, None)
        rounds = np.arange(1, len(gradient) + 1)
        look: dict[str, Any] = {"color": "#B0B0B0", "linewidth": 1}
        if name == best:
            look = {
                "color": COLOURS["shared"],
                "linewidth": 1.8,
                "label": f"{name} start{', kept' * bool(others)}",
            }
            look |= {"marker": "o", "markersize": 4} if len(gradient) <= 60 else {}
        elif name == others[0]:
            look["label"] = f"{len(others)} other start" + "s" * (len(others) > 1)
        ax.semilogy(rounds, gradient, **look)
    ax.axhline(float(model.tol), color="black", linewidth=0.8, linestyle="--", label="tol")
    ax.set_xlabel("round")
    ax.set_ylabel("relative gradient")
    ax.locator_params(axis="x", integer=True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.legend(frameon=False)
    return ax


def _tick(component: str) -> str:
    """Shorten shared0 to s0, since columns are narrow."""
    return component.replace("shared", "s").replace("unique", "u")


def _short(name: Any, most: int = 24) -> str:
    text = str(name)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('Pictures need matplotlib: pip install "heterofactor[plots]"') from error
    return plt
