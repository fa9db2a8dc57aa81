"""Auto-encoders on MovieLens 100K: the search for their settings, and SparseFC beside HAE.

    OMP_NUM_THREADS=1 python experiments/hae_movielens.py search|test [--parts 3] [--folder ml-100k]

``search`` compares settings, and what is left when one idea is taken away, on held-out *training*
ratings: folds of what split 0 trains on. ``test`` fits what was chosen on splits 0, 1, ... Both
take up where they were stopped; several can run side by side on other ``--models``. They write
``results/hae_movielens_search.csv`` and ``.md``, and the same of the test.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from movielens import inner_folds, rmse, split
from record import RESULTS, markdown, page

from heterofactor.datasets import MovieLens, load_movielens_100k
from heterofactor.ratings import RatingHAE, SparseFC, hae_ratings, unseen

# Constants of the library that the search varies, and where they are.
CONSTANTS = {"OFFSET_RIDGES": hae_ratings, "SLOW": unseen, "DAMPED": unseen}
# What is compared: a name, the model, what is changed, and the groups of the items.
Compared = tuple[str, type, dict[str, Any], str | None]
CHOSEN: list[Compared] = [
    ("SparseFC", SparseFC, {}, None),
    ("HAE", RatingHAE, {}, "genre"),
    ("HAE, random groups", RatingHAE, {}, "random"),
    ("HAE, one group", RatingHAE, {}, "one"),
]
SEARCH: list[Compared] = [
    *CHOSEN,
    ("HAE without offsets", RatingHAE, {"OFFSET_RIDGES": (math.inf, math.inf)}, "genre"),
    ("HAE, inputs not damped", RatingHAE, {"DAMPED": 0.0}, "genre"),
    ("HAE, nothing left out", RatingHAE, {"left_out": 0.0}, "genre"),
    ("HAE, users' items not seen", RatingHAE, {"SLOW": 0.0}, "genre"),
    ("HAE without any of the four", RatingHAE, {
        "OFFSET_RIDGES": (math.inf, math.inf), "DAMPED": 0.0, "left_out": 0.0, "SLOW": 0.0,
    }, "genre"),
    *[(f"SparseFC, {change}", SparseFC, change, None) for change in (
        {"learning_rate": 0.003, "ridge": 20.0},
        {"learning_rate": 0.003},
        {"ridge": 20.0},
    )],
    *[(f"HAE, {change}", RatingHAE, change, "genre") for change in (
        {"learning_rate": 0.003},
        {"ridge": (35.0, 400.0)},
        {"ridge_seen": 2.0},
        {"known_weight": 0.6},
        {"left_out": 0.5},
        {"n_folds": 5},
        {"n_groups": 20},
        {"n_hidden_unique": 100},
        {"dropout": (0.0, 0.0)},
    )],
]  # fmt: skip


def grouped(movies: MovieLens, groups: str, seed: int) -> Any:
    """Return what the items are grouped by."""
    if groups == "one":
        return None
    flags = movies.item_flags
    if groups == "random":  # clusters of the same sizes, dealt out at random
        order = np.random.RandomState(seed).permutation(len(flags))
        return flags.iloc[order].set_axis(flags.index)
    return flags


def measured(
    movies: MovieLens, compared: Compared, train: pd.DataFrame, held: pd.DataFrame, seed: int
) -> dict[str, Any]:
    """Return the error on held-out ratings, and the seconds of the fit."""
    name, kind, changed, groups = compared
    kept = {constant: getattr(place, constant) for constant, place in CONSTANTS.items()}
    for constant, place in CONSTANTS.items():
        setattr(place, constant, changed.get(constant, kept[constant]))
    settings = {key: value for key, value in changed.items() if key not in CONSTANTS}
    extra = () if groups is None else (grouped(movies, groups, seed),)
    start = time.process_time()
    model = kind(random_state=seed, **settings).fit(train, *extra)
    seconds = time.process_time() - start
    for constant, place in CONSTANTS.items():
        setattr(place, constant, kept[constant])
    return {
        "model": name,
        "part": seed,
        "rmse": rmse(model.predict(held), held),
        "seconds": seconds,
    }


def missing(path: Path, compared: list[Compared], part: int) -> Iterator[Compared]:
    """Yield what the file does not have yet of one part."""
    for one in compared:
        done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["model", "part"])
        if not ((done["model"] == one[0]) & (done["part"] == part)).any():
            yield one


def parts(movies: MovieLens, what: str, count: int) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield what is trained on, and what is held out."""
    if what == "search":
        yield from inner_folds(movies, count)
    else:
        for number in range(count):
            yield split(movies, number)


def summary(table: pd.DataFrame, order: list[str]) -> str:
    """Return means, and paired differences to SparseFC and to HAE, with standard errors."""
    wide = table.pivot(index="part", columns="model", values="rmse")
    seconds = table.groupby("model")["seconds"].mean()
    rows = []
    for name in (name for name in order if name in wide):
        row = {"model": name, "RMSE": _mean(wide[name])}
        for other in (other for other in ("SparseFC", "HAE") if other in wide):
            row[f"minus {other}, paired"] = _mean(wide[name] - wide[other], "+")
        row["parts"] = int(wide[name].count())
        rows.append({**row, "CPU s": f"{seconds[name]:.1f}"})
    return markdown(pd.DataFrame(rows))


def _mean(numbers: pd.Series, sign: str = "") -> str:
    known = numbers.dropna()
    return f"{known.mean():{sign}.4f} ± {known.std() / len(known) ** 0.5:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["search", "test"])
    parser.add_argument("--folder", help="where ml-100k is; downloaded if left out")
    parser.add_argument("--parts", type=int, help="folds (3), or splits to test on (20)")
    parser.add_argument("--models", nargs="+", help="the names of some; all if left out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    movies = load_movielens_100k(options.folder)
    searching = options.what == "search"
    compared = SEARCH if searching else CHOSEN
    names = [one[0] for one in compared]
    wanted = [one for one in compared if one[0] in (options.models or names)]
    path = RESULTS / f"hae_movielens_{options.what}.csv"
    count = options.parts or (3 if searching else 20)
    for part, (train, held) in enumerate(parts(movies, options.what, count)):
        for one in missing(path, wanted, part):
            row = measured(movies, one, train, held, part)
            header = not path.exists()
            pd.DataFrame([row]).to_csv(
                path, mode="a", header=header, index=False, float_format="%.5f"
            )
            print(row, flush=True)
    where = {
        "search": f"{count} folds of the training ratings of split 0, a tenth of them held out",
        "test": f"{count} random splits, 90 % for training",
    }[options.what]
    caution = (
        "What the settings were chosen from, some forty of them, was tried on the first two of "
        "these folds with a draft of the program: what they gain there is more than what they "
        "gain on other ratings."
    )
    text = page(
        f"Auto-encoders on MovieLens 100K: {options.what}",
        f"Mean over {where}; single fits, whose seed is the number of the part.",
        summary(pd.read_csv(path), names),
        "Settings are the defaults, except those that are named. Groups are ten clusters of the "
        "movies' genres; `random groups` gives every movie another one's genres.",
        *([caution] if searching else []),
        f"Command: `OMP_NUM_THREADS=1 python experiments/hae_movielens.py {options.what}`",
    )
    path.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
