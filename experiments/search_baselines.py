"""Choose the settings of AutoSVD++, AutoSVD and GraphRec on held-out training ratings.

    OMP_NUM_THREADS=1 python experiments/search_baselines.py [--folder ml-100k]

Three folds of the training part of split 0 of MovieLens 100K. From the published settings on, a few
settings at a time are varied together and the best ones kept, twice around. What was measured is in
``results/search_baselines.csv`` and is not measured again; ``.md`` shows it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from movielens import inner_folds, side_information
from record import RESULTS, markdown, page
from threadpoolctl import threadpool_limits

from heterofactor.datasets import MovieLens, load_movielens_100k
from heterofactor.ratings.autosvd import AutoSVD
from heterofactor.ratings.graphrec import GraphRec

FOLDS = 3
AROUND = 2
SHOWN = 12
OUT = RESULTS / "search_baselines.csv"
Settings = dict[str, Any]
Make = Callable[..., Any]

# How each is made, the settings to begin with, and what is varied together. Published ones are the
# beginning, but for rate and rounds of GraphRec, which are for 90 steps a round and ours for one:
# these were found by hand on the first fold.
METHODS: dict[str, tuple[Make, Settings, list[dict[str, tuple[Any, ...]]]]] = {
    "AutoSVD++": (
        AutoSVD,
        {"n_components": 10, "learning_rate": 0.007, "max_rounds": 20, "ridge": 0.015,
         "ridge_offsets": 0.005, "feature_weight": 0.1, "contraction": 0.1},
        [
            {"learning_rate": (0.005, 0.01, 0.02), "max_rounds": (10, 15, 20, 30, 40)},
            {"ridge": (0.015, 0.03, 0.05, 0.07, 0.1, 0.15), "ridge_offsets": (0.005, 0.03, 0.1)},
            {"feature_weight": (0.1, 0.2, 0.4, 0.8), "contraction": (0.01, 0.1, 1.0)},
            {"n_components": (5, 10, 20, 40), "max_rounds": (10, 15, 20, 30, 40)},
        ],
    ),
    "GraphRec": (
        GraphRec,
        {"n_components": 50, "learning_rate": 0.001, "max_rounds": 400, "ridge": [0.05, 0.02]},
        [
            {"max_rounds": (250, 300, 350, 400)},
            {"ridge": ([0.02, 0.02], [0.05, 0.05], [0.08, 0.02], [0.08, 0.06])},
            {"n_components": (25, 50)},
        ],
    ),
    "AutoSVD": (
        partial(AutoSVD, implicit=False),
        {"n_components": 10, "learning_rate": 0.01, "max_rounds": 40, "ridge": 0.1,
         "ridge_offsets": 0.1, "feature_weight": 0.1, "contraction": 0.1},
        [
            {"ridge": (0.03, 0.05, 0.07, 0.1), "max_rounds": (20, 30, 40)},
            {"feature_weight": (0.1, 0.2, 0.4), "contraction": (0.01, 0.1)},
            {"n_components": (10, 20, 40)},
        ],
    ),
}  # fmt: skip


def measured(movies: MovieLens, make: Make, settings: Settings) -> tuple[float, float]:
    """Return the mean error over the folds, and the CPU seconds of a fit."""
    users, items = side_information(movies)
    features = {"item_features": items}
    if make is GraphRec:
        features["user_features"] = users
    begin, errors = time.process_time(), []
    for train, held in inner_folds(movies, FOLDS):
        errors.append(-make(random_state=0, **settings).fit(train, **features).score(held))
    return float(np.mean(errors)), (time.process_time() - begin) / FOLDS


class Record:
    """What was measured, kept on disk."""

    def __init__(self, movies: MovieLens) -> None:
        self.movies = movies
        columns = ["method", "settings", "rmse", "cpu seconds"]
        self.rows = pd.read_csv(OUT) if OUT.exists() else pd.DataFrame(columns=columns)

    def error(self, method: str, settings: Settings) -> float:
        name = json.dumps(settings, sort_keys=True)
        there = self.rows[(self.rows["method"] == method) & (self.rows["settings"] == name)]
        if len(there):
            return float(there["rmse"].iloc[0])
        rmse, seconds = measured(self.movies, METHODS[method][0], settings)
        self.rows.loc[len(self.rows)] = [method, name, rmse, seconds]
        self.rows.to_csv(OUT, index=False, float_format="%.6g")
        print(method, name, f"{rmse:.4f} {seconds:.1f} s", flush=True)
        return rmse


def searched(record: Record, method: str) -> Settings:
    _, best, groups = METHODS[method]
    for group in groups * AROUND:
        values = itertools.product(*group.values())
        tried = [best, *(best | dict(zip(group, some, strict=True)) for some in values)]
        best = min(tried, key=partial(record.error, method))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="of MovieLens 100K")
    movies = load_movielens_100k(parser.parse_args().folder)
    RESULTS.mkdir(exist_ok=True)
    record, found = Record(movies), []
    with threadpool_limits(1):
        for method, (_, begun, _) in METHODS.items():
            best = searched(record, method)
            first, last = record.error(method, begun), record.error(method, best)
            rows = record.rows[record.rows["method"] == method].sort_values("rmse").head(SHOWN)
            rows = rows.assign(rmse=rows["rmse"].map("{:.4f}".format))
            rows["cpu seconds"] = rows["cpu seconds"].map("{:.1f}".format)
            found += [
                f"## {method}",
                f"The first settings {first:.4f}, those chosen {last:.4f}: `{json.dumps(best)}`. "
                f"The best ones of {(record.rows['method'] == method).sum()}:",
                markdown(rows.drop(columns="method")),
            ]
    text = page(
        "Settings of AutoSVD++, AutoSVD and GraphRec for MovieLens 100K",
        f"Mean RMSE over {FOLDS} folds of the training part of split 0. Its test part was not "
        "seen. The first settings are the published ones; those of GraphRec, for 196 rounds of 90 "
        "steps each, have no counterpart in steps on all ratings, and its rate and rounds were "
        "found by hand on the first fold.",
        *found,
        "Command: `OMP_NUM_THREADS=1 python experiments/search_baselines.py`",
    )
    (RESULTS / "search_baselines.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
