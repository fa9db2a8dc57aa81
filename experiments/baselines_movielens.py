"""AutoSVD++, AutoSVD and GraphRec on MovieLens 100K, beside what their papers report.

    OMP_NUM_THREADS=1 python experiments/baselines_movielens.py [--folder ml-100k] [--splits 20]

Split s tests on the first 10,000 of ``RandomState(s).permutation(100000)``. Settings are those of
`search_baselines.py`. What was measured is in ``results/baselines_movielens.csv`` and is not
measured again; ``.md`` shows it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from movielens import rmse, side_information, split
from record import RESULTS, markdown, page
from threadpoolctl import threadpool_limits

from heterofactor.datasets import MovieLens, load_movielens_100k
from heterofactor.ratings.autosvd import AutoSVD
from heterofactor.ratings.graphrec import GraphRec

OUT = RESULTS / "baselines_movielens.csv"
PUBLISHED: dict[str, Any] = {"n_components": 10, "feature_weight": 0.1, "contraction": 0.1}
PUBLISHED_PLUS = PUBLISHED | {
    "learning_rate": 0.007, "max_rounds": 20, "ridge": 0.015, "ridge_offsets": 0.005,
}  # fmt: skip
PUBLISHED_PLAIN = PUBLISHED | {
    "learning_rate": 0.01, "max_rounds": 40, "ridge": 0.1, "ridge_offsets": 0.1,
}  # fmt: skip
REPORTED = {"AutoSVD++": 0.904, "AutoSVD": 0.901, "GraphRec": 0.883}
# The chosen settings of AutoSVD++ are its defaults.
CHOSEN_PLAIN: dict[str, Any] = {
    "contraction": 0.1, "learning_rate": 0.01, "max_rounds": 40, "ridge": 0.1, "ridge_offsets": 0.1,
}  # fmt: skip


def autosvd(featured: bool = True, **settings: Any) -> Callable[..., np.ndarray]:
    def predict(
        movies: MovieLens, train: pd.DataFrame, test: pd.DataFrame, seed: int
    ) -> np.ndarray:
        items = side_information(movies)[1] if featured else None
        return AutoSVD(random_state=seed, **settings).fit(train, items).predict(test)

    return predict


def graphrec(featured: bool = True) -> Callable[..., np.ndarray]:
    def predict(
        movies: MovieLens, train: pd.DataFrame, test: pd.DataFrame, seed: int
    ) -> np.ndarray:
        users, items = side_information(movies) if featured else (None, None)
        return GraphRec(random_state=seed).fit(train, items, users).predict(test)

    return predict


ROWS = {
    "AutoSVD++": autosvd(),
    "AutoSVD++, published settings": autosvd(**PUBLISHED_PLUS),
    "AutoSVD++, no features": autosvd(featured=False),
    "AutoSVD": autosvd(implicit=False, **CHOSEN_PLAIN),
    "AutoSVD, published settings": autosvd(implicit=False, **PUBLISHED_PLAIN),
    "AutoSVD, no features": autosvd(featured=False, implicit=False, **CHOSEN_PLAIN),
    "GraphRec": graphrec(),
    "GraphRec, no features": graphrec(featured=False),
}


def measured(movies: MovieLens, splits: int) -> pd.DataFrame:
    """Return the error of every row on every split."""
    columns = ["split", "row", "rmse", "cpu seconds"]
    found = pd.read_csv(OUT) if OUT.exists() else pd.DataFrame(columns=columns)
    there = set(zip(found["split"], found["row"], strict=True))
    for number in range(splits):
        train, test = split(movies, number)
        for row, predict in ROWS.items():
            if (number, row) in there:
                continue
            begin = time.process_time()
            predicted = predict(movies, train, test, number)
            seconds = time.process_time() - begin
            found.loc[len(found)] = [number, row, rmse(predicted, test), seconds]
            found.to_csv(OUT, index=False, float_format="%.6g")
            print(number, row, f"{found['rmse'].iloc[-1]:.4f} {seconds:.1f} s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="of MovieLens 100K")
    parser.add_argument("--splits", type=int, default=20)
    given = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    with threadpool_limits(1):
        rows = measured(load_movielens_100k(given.folder), given.splits).groupby("row")
    mean, spread = rows["rmse"].mean(), rows["rmse"].sem()
    shown = pd.DataFrame(
        {
            "method": list(ROWS),
            "reported": [f"{REPORTED[name]:.3f}" if name in REPORTED else "" for name in ROWS],
            "RMSE": [f"{mean[name]:.4f} ± {spread[name]:.4f}" for name in ROWS],
            "CPU seconds": [f"{rows['cpu seconds'].mean()[name]:.1f}" for name in ROWS],
        }
    )
    text = page(
        "AutoSVD++, AutoSVD and GraphRec on MovieLens 100K",
        f"Mean over {given.splits} splits ± its standard error. Settings were chosen on training "
        "ratings of split 0 (`search_baselines.py`); the published ones are those of the authors' "
        "programs, whose features we do not have. Features are genres and decade, and for "
        "GraphRec age, gender and occupation of users. The first fit includes compiling.",
        markdown(shown),
        "Command: `OMP_NUM_THREADS=1 python experiments/baselines_movielens.py`",
    )
    (RESULTS / "baselines_movielens.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
