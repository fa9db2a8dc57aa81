"""Choose the constants of RatingModel's draws on held-out training ratings of MovieLens 100K.

    OMP_NUM_THREADS=1 python experiments/search_gibbs.py [--folder ml-100k]

Two folds of the training part of split 0, one constant varied at a time around those of
`heterofactor.ratings.gibbs`. Writes ``results/search_gibbs.csv`` and ``.md``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd
from movielens import inner_folds, side_information
from record import RESULTS, markdown, page
from threadpoolctl import threadpool_limits

from heterofactor import RatingModel
from heterofactor.datasets import MovieLens, load_movielens_100k
from heterofactor.ratings import gibbs

FOLDS = 2
ROUNDS = 150
BASE = {
    "n_shared": 10,
    "n_unique": 2,
    "ON_FEATURES": gibbs.ON_FEATURES,
    "ON_SEEN": gibbs.ON_SEEN,
    "ALIKE": gibbs.ALIKE,
    "seed": 0,
}
VALUES: dict[str, tuple[Any, ...]] = {
    "n_shared": (6, 16),
    "n_unique": (0, 1, 4),
    "ON_FEATURES": (5.0, 60.0),
    "ON_SEEN": (0.5, 1.0, 4.0),
    "ALIKE": (10.0, 100.0, 1e6),  # the last one: the same noise for all
    "seed": (1, 2),
}


def error(movies: MovieLens, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the mean error over the folds; the constants stay as they are set."""
    for name in ("ON_FEATURES", "ON_SEEN", "ALIKE"):
        setattr(gibbs, name, settings[name])
    users, items = side_information(movies)
    begin, errors = time.process_time(), []
    for train, held in inner_folds(movies, FOLDS):
        model = RatingModel(
            settings["n_shared"],
            settings["n_unique"],
            solver="gibbs",
            n_rounds=ROUNDS,
            random_state=settings["seed"],
        )
        model.fit(train, item_groups=movies.item_flags, item_features=items, user_features=users)
        errors.append(-model.score(held))
    seconds = (time.process_time() - begin) / FOLDS
    return settings | {"rmse": float(np.mean(errors)), "cpu seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="of MovieLens 100K")
    movies = load_movielens_100k(parser.parse_args().folder)
    rows = []
    with threadpool_limits(1):
        varied = [{**BASE, name: value} for name, values in VALUES.items() for value in values]
        for settings in [BASE, *varied]:
            rows.append(error(movies, settings))
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    RESULTS.mkdir(exist_ok=True)
    table.to_csv(RESULTS / "search_gibbs.csv", index=False, float_format="%.6g")
    shown = table.assign(rmse=table["rmse"].map("{:.4f}".format))
    shown["cpu seconds"] = table["cpu seconds"].map("{:.1f}".format)
    text = page(
        "Constants of RatingModel's draws for MovieLens 100K",
        f"Mean RMSE over {FOLDS} folds of the training part of split 0, {ROUNDS} sweeps. The first "
        "row has the constants of the library; the others vary one of them. Rows with "
        "another seed show what chance does.",
        markdown(shown),
        "Command: `OMP_NUM_THREADS=1 python experiments/search_gibbs.py`",
    )
    (RESULTS / "search_gibbs.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
