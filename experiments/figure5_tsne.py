"""The t-SNE figure of the paper, and its claim in numbers: scores of films show their genres.

    OMP_NUM_THREADS=1 python experiments/figure5_tsne.py --folder ml-100k

Auto-encoders are fitted to all ratings of MovieLens 100K, five times each. How well the genre
cluster of a film is known from its scores is measured by the silhouette and by nearest neighbours.
Because HAE is told the clusters, it is also told random ones, to see what that puts in by itself.
Fits are kept in ``experiments/cache``. Writes ``results/figure5_tsne.csv``, ``.md`` and ``.png``.
"""

from __future__ import annotations

import argparse
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.sparse
from fits import CACHE, MODELS, settings_of
from record import RESULTS, markdown, page
from sklearn.decomposition import TruncatedSVD
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from threadpoolctl import threadpool_limits

from heterofactor.datasets import MovieLens, load_movielens_100k
from heterofactor.ratings.groups import read_groups

SEEDS = 5
LEAST = 20  # ratings of a film
NEIGHBOURS = 10
N_GROUPS = 10
# The ratings themselves, without any network, brought to so many dimensions.
RATINGS, DIMENSIONS = "ratings", 50
KINDS = ("genres", "random")
TOLD = {"HAE": "genres", "HAE, random": "random"}
SHOWN = {
    "SparseFC": "SparseFC, which is told nothing",
    "HAE, one group": "HAE with all films in one group",
    "HAE": "HAE with clusters of genres",
    "HAE, random": "HAE with random clusters, their colours",
}


def scores(movies: MovieLens, name: str, seed: int) -> pd.DataFrame:
    """Return what a network, fitted to all ratings, makes of each film."""
    if name == RATINGS:
        table = movies.ratings
        at = table["item"].to_numpy() - 1, table["user"].to_numpy() - 1
        whole = scipy.sparse.csr_array((table["rating"].to_numpy(), at))
        reduced = make_pipeline(Normalizer(), TruncatedSVD(DIMENSIONS, random_state=seed))
        return pd.DataFrame(reduced.fit_transform(whole), index=np.arange(whole.shape[0]) + 1)
    model, tables = MODELS[name](movies, seed)
    path = CACHE / f"scores, {name}, {seed}, {settings_of(model)}.npy"
    items = np.unique(movies.ratings["item"])
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        if name in TOLD:
            tables = {"item_groups": labels(movies, TOLD[name], seed)}
        fitted: Any = model.fit(movies.ratings, **tables)
        np.save(path, fitted.item_scores_)
    return pd.DataFrame(np.load(path), index=items)


def labels(movies: MovieLens, kind: str, seed: int) -> pd.Series:
    """Return the cluster of each film, by its genres or, at random, that of another film."""
    flags = movies.item_flags
    names, codes = read_groups(flags, flags.index, "item", N_GROUPS, seed)
    if kind == "random":
        codes = np.random.RandomState(seed).permutation(codes)
    return pd.Series(names[codes], index=flags.index)


def told(points: np.ndarray, label: pd.Series, seed: int) -> dict[str, float]:
    """Return how well points tell labels."""
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    near = KNeighborsClassifier(NEIGHBOURS)
    return {
        "silhouette": float(silhouette_score(points, label)),
        "k-NN accuracy": float(cross_val_score(near, points, label, cv=folds).mean()),
    }


def run(movies: MovieLens) -> tuple[pd.DataFrame, dict[str, tuple[np.ndarray, pd.Series]]]:
    counts = movies.ratings["item"].value_counts()
    films = counts.index[counts >= LEAST].sort_values()
    rows, drawn = [], {}
    for seed in range(SEEDS):
        clusters = {kind: labels(movies, kind, seed).loc[films] for kind in KINDS}
        for name in (RATINGS, *SHOWN):
            points = scores(movies, name, seed).loc[films].to_numpy(dtype=float)
            flat = TSNE(init="pca", random_state=seed).fit_transform(points)
            for kind, label in clusters.items():
                if kind == "random" and name not in ("SparseFC", "HAE, random"):
                    continue
                for where, at in (("scores", points), ("t-SNE", flat)):
                    row = {"seed": seed, "model": name, "label": kind, "in": where}
                    rows.append(row | told(at, label, seed))
                    print(rows[-1], flush=True)
            if seed == 0:
                drawn[name] = flat, clusters["random" if name == "HAE, random" else "genres"]
    most = max(clusters["genres"].value_counts(normalize=True))
    print(f"{len(films)} films; the largest cluster has {most:.1%}")
    table = pd.DataFrame(rows)
    table["films"], table["largest"] = len(films), most
    return table, drawn


def picture(drawn: dict[str, tuple[np.ndarray, pd.Series]]) -> None:
    plt.rcParams.update({"font.size": 9})
    figure, axes = plt.subplots(2, 2, figsize=(10, 9.5), constrained_layout=True)
    colours = plt.get_cmap("tab10")
    for axis, (name, title) in zip(axes.flat, SHOWN.items(), strict=True):
        points, label = drawn[name]
        for place, group in enumerate(sorted(label.unique())):
            at = (label == group).to_numpy()
            axis.scatter(*points[at].T, s=9, color=colours(place), label=group, linewidths=0)
        axis.set_title(title)
        axis.set_xticks([])
        axis.set_yticks([])
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncol=4, markerscale=3, frameon=False,
        title="clusters of genres, by the flags that most of their films have",
    )  # fmt: skip
    figure.savefig(RESULTS / "figure5_tsne.png", dpi=110)


def described(table: pd.DataFrame) -> pd.DataFrame:
    lines = []
    groups = table.groupby(["label", "model", "in"], sort=False)
    for (label, model, where), rows in groups:
        line = {"model": model, "label": f"{label.removesuffix('s')} clusters", "in": where}
        for what in ("silhouette", "k-NN accuracy"):
            error = rows[what].std(ddof=1) / np.sqrt(len(rows))
            line[what] = f"{rows[what].mean():.3f} ± {error:.3f}"
        lines.append(line)
    return pd.DataFrame(lines).sort_values("label", kind="stable")


def describe(table: pd.DataFrame) -> str:
    mean = table.groupby(["model", "label", "in"])["k-NN accuracy"].mean()
    plain, genre = mean["SparseFC", "genres", "scores"], mean["HAE", "genres", "scores"]
    one = mean["HAE, one group", "genres", "scores"]
    chance, random = mean["SparseFC", "random", "scores"], mean["HAE, random", "random", "scores"]
    films, most = table["films"].iloc[0], table["largest"].iloc[0]
    return page(
        "Scores of films, and their genres",
        f"Auto-encoders of all ratings of MovieLens 100K, {table['seed'].nunique()} fits each; "
        f"{films} films with at least {LEAST} ratings. The labels are the ten k-means clusters of "
        f"genre flags that HAE is given as groups ({most:.0%} of the films are in the largest). "
        f"k-NN accuracy: {NEIGHBOURS} neighbours, five folds. Means over fits, and their standard "
        f"errors. `ratings`: the films' ratings themselves, of one length, as {DIMENSIONS} "
        "principal directions.",
        "![Scores of films by t-SNE](figure5_tsne.png)",
        markdown(described(table)),
        f"The scores of HAE tell a film's cluster of genres to {genre:.0%} of films, those of "
        f"SparseFC to {plain:.0%}. But HAE is told the clusters: each has an encoder of its own. "
        f"With all films in one group, it tells genres to {one:.0%}; and told random clusters, its "
        f"scores tell these to {random:.0%}, where those of SparseFC tell them to {chance:.0%}, by "
        f"chance. So being told adds {100 * (genre - one):.0f} points to what ratings show of "
        f"genres, and {100 * (random - chance):.0f} to nothing at all: that much separation is put "
        "in by the encoders of the groups, whatever the groups are.",
        "Command: `OMP_NUM_THREADS=1 python experiments/figure5_tsne.py --folder ml-100k`",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="of MovieLens 100K")
    options = parser.parse_args()
    matplotlib.use("Agg")
    with threadpool_limits(1):
        table, drawn = run(load_movielens_100k(options.folder))
    RESULTS.mkdir(exist_ok=True)
    picture(drawn)
    table.to_csv(RESULTS / "figure5_tsne.csv", index=False, float_format="%.6g")
    text = describe(table)
    (RESULTS / "figure5_tsne.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
