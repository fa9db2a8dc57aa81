"""Auto-encoders on MovieLens-100K: the search for their settings, and SparseFC beside HAE.

``search`` compares settings on held-out *training* ratings: five folds of what split 0 trains on.
``test`` fits what was chosen on splits 0, 1, ..., each with one tenth of all ratings held out, as
``numpy.random.RandomState(split).permutation`` has them. Both take up where they were stopped.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from record import RESULTS, markdown, page

from heterofactor.ratings.hae_ratings import RatingHAE
from heterofactor.ratings.sparsefc import SparseFC

DATA = Path(os.environ.get("HETEROFACTOR_DATA") or Path(__file__).parents[2] / "shared" / "data")
FOLDS = 3
Groups = Any  # "genre", "random" or "one"

# What is compared: a name, the model, what is changed, and the groups of the items.
SEARCH: list[tuple[str, type, dict[str, Any], Groups]] = [
    ("SparseFC", SparseFC, {}, None),
    ("HAE", RatingHAE, {}, "genre"),
    ("HAE, random groups", RatingHAE, {}, "random"),
    ("HAE, one group", RatingHAE, {}, "one"),
    ("HAE, five folds of scores", RatingHAE, {"n_folds": 5}, "genre"),
    ("HAE, no dropout", RatingHAE, {"dropout": (0.0, 0.0, 0.0), "ridge": (30, 500)}, "genre"),
]
CHOSEN = ("SparseFC", "HAE", "HAE, one group")


def load() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the ratings, and the genres of every film."""
    folder = DATA / "ml-100k"
    if not folder.is_dir():
        raise SystemExit(f"There is no folder {folder}: set HETEROFACTOR_DATA.")
    names = ["user", "item", "rating", "time"]
    ratings = pd.read_csv(folder / "u.data", sep="\t", header=None, names=names)
    films = pd.read_csv(
        folder / "u.item", sep="|", header=None, encoding="latin-1", index_col=0
    ).iloc[:, 4:]
    return ratings, films


def split(count: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the training and of the test ratings of a split."""
    order = np.random.RandomState(number).permutation(count)
    return order[count // 10 :], order[: count // 10]


def inner(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield folds of the training ratings of split 0; each holds out a tenth of them."""
    train, _ = split(count, 0)
    order = np.random.RandomState(1000).permutation(len(train))
    for fold in range(FOLDS):
        held = order[fold * len(train) // 10 : (fold + 1) * len(train) // 10]
        yield np.delete(train, held), train[held]


def grouped(films: pd.DataFrame, groups: Groups, seed: int) -> Any:
    """Return what the items are grouped by."""
    if groups == "one":
        return pd.Series(0, index=films.index)
    if groups == "random":  # clusters of the same sizes, dealt out at random
        order = np.random.RandomState(seed).permutation(len(films))
        return films.iloc[order].set_axis(films.index)
    return films


def run(
    kind: type, changed: dict[str, Any], groups: Groups, data: Any, parts: Any, seed: int
) -> tuple[float, float]:
    """Return the root mean square error on held-out ratings, and the seconds of the fit."""
    ratings, films = data
    train, held = (ratings.iloc[places] for places in parts)
    start = time.process_time()
    model = kind(random_state=seed, **changed)
    extra = () if groups is None else (grouped(films, groups, seed),)
    model.fit(train, *extra)
    seconds = time.process_time() - start
    return float(np.sqrt(np.mean((model.predict(held) - held["rating"]) ** 2))), seconds


def record(path: Path, todo: list[tuple[Any, ...]], data: Any) -> pd.DataFrame:
    """Run what is not in the file yet, and append it there."""
    done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["model", "part"])
    have = set(zip(done["model"], done["part"], strict=True))
    for name, kind, changed, groups, part, places in todo:
        if (name, part) in have:
            continue
        error, seconds = run(kind, changed, groups, data, places, part)
        row = pd.DataFrame([{"model": name, "part": part, "rmse": error, "seconds": seconds}])
        row.to_csv(path, mode="a", header=not path.exists(), index=False, float_format="%.5f")
        print(f"{name}, {part}: {error:.4f} ({seconds:.1f} s)", flush=True)
    return pd.read_csv(path)


def summary(table: pd.DataFrame, order: list[str]) -> str:
    """Return means, and paired differences to SparseFC, with standard errors."""
    wide = table.pivot(index="part", columns="model", values="rmse")
    seconds = table.groupby("model")["seconds"].mean()
    rows = []
    for name in order:
        apart = (wide[name] - wide["SparseFC"]).dropna()
        error, off = (x.std() / len(apart) ** 0.5 for x in (wide[name].dropna(), apart))
        rows.append(
            {
                "model": name,
                "RMSE": f"{wide[name].mean():.4f} ± {error:.4f}",
                "minus SparseFC, paired": f"{apart.mean():+.4f} ± {off:.4f}",
                "parts": len(apart),
                "CPU s": f"{seconds[name]:.1f}",
            }
        )
    return markdown(pd.DataFrame(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["search", "test"])
    parser.add_argument("--splits", type=int, default=20, help="how many splits to test on")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load()
    count = len(data[0])
    if options.what == "search":
        parts = list(enumerate(inner(count)))
        chosen = SEARCH
    else:
        parts = [(number, split(count, number)) for number in range(options.splits)]
        chosen = [one for one in SEARCH if one[0] in CHOSEN]
    todo = [(*one, part, places) for part, places in parts for one in chosen]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"hae_movielens_{options.what}.csv"
    table = record(path, todo, data)
    where = {
        "search": f"{FOLDS} folds of the training ratings of split 0, a tenth of them held out",
        "test": f"{options.splits} random splits, 90 % for training",
    }[options.what]
    settings = [f"- {name}: `{kind.__name__}`, {changed or 'as it comes'}"
                + (f", groups: {groups}" if groups else "")
                for name, kind, changed, groups in chosen]  # fmt: skip
    caution = (
        "The defaults were tried out by hand on the same folds, mostly on the first: what they "
        "gain here is more than what they gain on other ratings."
    )
    text = page(
        f"Auto-encoders on MovieLens-100K: {options.what}",
        f"Mean over {where}; single fits, whose seed is the number of the part.",
        summary(table, [one[0] for one in chosen]),
        "\n".join(settings),
        *([caution] if options.what == "search" else []),
        f"Command: `OMP_NUM_THREADS=1 python experiments/hae_movielens.py {options.what}`",
    )
    path.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
