"""Choose the settings of RatingModel on held-out training ratings of MovieLens 100K.

    OMP_NUM_THREADS=1 python experiments/search_ratings.py [--folder ml-100k]

Five folds of the training part of split 0, whose test part plays no role. One setting after the
other is varied, twice over, for the shared taste alone and then with unique tastes for ten clusters
of genres. Writes ``results/search_ratings.csv`` and ``.md``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd
from movielens import inner_folds
from record import RESULTS, markdown, page
from threadpoolctl import threadpool_limits

from heterofactor import RatingModel
from heterofactor.datasets import MovieLens, load_movielens_100k

FOLDS = 5
PASSES = 2
Settings = dict[str, Any]
START: Settings = {
    "n_shared": 10,
    "n_unique": 2,
    "shared_ridge": 8.0,
    "unique_ridge": 7.0,
    "user_ridge": 2.0,
    "item_ridge": 2.0,
    "n_rounds": 6,
    "n_fits": 8,
}
VALUES: dict[str, tuple[Any, ...]] = {
    "n_shared": (6, 10, 14, 20),
    "shared_ridge": (6.0, 7.0, 8.0, 9.0, 10.0, 12.0),
    "n_rounds": (4, 5, 6, 8),
    "user_ridge": (1.0, 2.0, 4.0),
    "item_ridge": (1.0, 2.0, 4.0),
}
OF_UNIQUE: dict[str, tuple[Any, ...]] = {
    "n_unique": (1, 2, 3),
    "unique_ridge": (5.0, 6.0, 7.0, 8.0, 9.0),
}
FITS = (1, 2, 4, 8, 12, 16)


class Search:
    """Every setting is tried once."""

    def __init__(self, movies: MovieLens) -> None:
        self.movies = movies
        self.folds = list(inner_folds(movies, FOLDS))
        self.tried: dict[tuple[Any, ...], dict[str, Any]] = {}

    def error(self, settings: Settings, grouped: bool) -> float:
        """Return the mean error over the folds."""
        key = (grouped, *settings.values())
        if key not in self.tried:
            begin = time.process_time()
            errors = [-self.fit(train, settings, grouped).score(held) for train, held in self.folds]
            seconds = (time.process_time() - begin) / FOLDS
            row = {"groups": "genres" if grouped else "none"} | settings
            self.tried[key] = row | {"rmse": float(np.mean(errors)), "cpu seconds": seconds}
            print(self.tried[key], flush=True)
        return self.tried[key]["rmse"]

    def fit(self, train: pd.DataFrame, settings: Settings, grouped: bool) -> RatingModel:
        model = RatingModel(
            settings["n_shared"],
            settings["n_unique"],
            ridge=(settings["shared_ridge"], settings["unique_ridge"]),
            offset_ridge=(settings["user_ridge"], settings["item_ridge"]),
            n_rounds=settings["n_rounds"],
            n_fits=settings["n_fits"],
            random_state=0,
        )
        return model.fit(train, item_groups=self.movies.item_flags if grouped else None)

    def descend(self, settings: Settings, values: dict[str, Any], grouped: bool) -> Settings:
        """Vary one setting after the other, and keep the best."""
        for _ in range(PASSES):
            for name, choices in values.items():
                errors = [self.error({**settings, name: value}, grouped) for value in choices]
                settings = {**settings, name: choices[int(np.argmin(errors))]}
        return settings


def describe(table: pd.DataFrame, chosen: list[Settings]) -> str:
    def shown(rows: pd.DataFrame) -> str:
        kept = rows.assign(rmse=rows["rmse"].map("{:.4f}".format))
        return markdown(kept.assign(**{"cpu seconds": rows["cpu seconds"].map("{:.2f}".format)}))

    parts = []
    for grouped, settings in zip(("none", "genres"), chosen, strict=True):
        rows = table[table["groups"] == grouped].sort_values("rmse")
        same = np.logical_and.reduce(
            [rows[name] == value for name, value in settings.items() if name != "n_fits"]
        )
        parts += [
            f"## Groups: {grouped}",
            f"{len(rows)} settings; the ten best, of eight fits averaged:",
            shown(rows[rows["n_fits"] == START["n_fits"]].head(10)),
            "The chosen one, by the number of fits:",
            shown(rows[same].sort_values("n_fits")),
        ]
    return page(
        "Settings of RatingModel for MovieLens 100K",
        f"Mean RMSE over {FOLDS} folds (81,000 ratings to fit, 9,000 held out) of the training "
        "part of split 0. No test rating of split 0 was seen. Differences below "
        "0.0005 mean nothing.",
        *parts,
        "Command: `OMP_NUM_THREADS=1 python experiments/search_ratings.py`",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="of MovieLens 100K")
    options = parser.parse_args()
    search = Search(load_movielens_100k(options.folder))
    with threadpool_limits(1):
        shared = search.descend({**START, "n_unique": 0}, VALUES, grouped=False)
        both = search.descend(
            {**shared, "n_unique": START["n_unique"]}, OF_UNIQUE | VALUES, grouped=True
        )
        for fits in FITS:
            search.error({**shared, "n_fits": fits}, grouped=False)
            search.error({**both, "n_fits": fits}, grouped=True)
    table = pd.DataFrame(search.tried.values())
    RESULTS.mkdir(exist_ok=True)
    table.to_csv(RESULTS / "search_ratings.csv", index=False, float_format="%.6g")
    text = describe(table, [shared, both])
    (RESULTS / "search_ratings.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
