"""The MovieLens table of the paper, on splits that can be made again.

    OMP_NUM_THREADS=1 python experiments/table4_movielens.py [--folder ml-100k] [--splits 20]

Split s tests on the first 10,000 of ``RandomState(s).permutation(100000)``. Predictions are kept
between 1 and 5. Writes ``results/table4_movielens.csv`` and ``.md``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from multiprocessing import Pool
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from movielens import rmse, side_information, split
from record import RESULTS, markdown, page
from threadpoolctl import threadpool_limits

from heterofactor import HMF, RatingModel
from heterofactor.datasets import MovieLens, load_movielens_100k

# As the paper ran them, but for ranks and stopping, which it does not state.
PLAIN = {
    "pooled, raw, rank 2": (2, 0, "alternating", 200),
    "pooled, raw, rank 4": (4, 0, "alternating", 200),
    "pooled, raw, rank 5": (5, 0, "alternating", 200),
    "pooled, raw, rank 5, Algorithm 1": (5, 0, "averaging", 1000),
    "HMF, raw, ranks 1 + 1": (1, 1, "alternating", 50),
    "HMF, raw, ranks 2 + 1, Algorithm 1": (2, 1, "averaging", 1000),
}
LEVEL = 0.9
Predict = Callable[[MovieLens, pd.DataFrame, pd.DataFrame, int], Any]


def offsets_only(
    movies: MovieLens, train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> np.ndarray:
    return RatingModel(0, 0, n_fits=1, n_rounds=15).fit(train).predict(test)


def shared_only(
    movies: MovieLens, train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> np.ndarray:
    return RatingModel(random_state=seed).fit(train).predict(test)


def shared_and_unique(
    movies: MovieLens, train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> np.ndarray:
    return RatingModel(random_state=seed).fit(train, item_groups=movies.item_flags).predict(test)


def random_groups(
    movies: MovieLens, train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> np.ndarray:
    """Give every movie the genres of another."""
    flags = movies.item_flags
    order = np.random.RandomState(seed).permutation(len(flags))
    shuffled = flags.iloc[order].set_index(flags.index)
    return RatingModel(random_state=seed).fit(train, item_groups=shuffled).predict(test)


def gibbs(**settings: Any) -> Predict:
    """Return a fit by draws, which predicts intervals as well."""

    def predict(
        movies: MovieLens, train: pd.DataFrame, test: pd.DataFrame, seed: int
    ) -> tuple[np.ndarray, pd.DataFrame]:
        users, items = side_information(movies)
        given = {"item_groups": movies.item_flags}
        if settings.get("implicit", True):
            given |= {"item_features": items, "user_features": users}
        model = RatingModel(solver="gibbs", random_state=seed, **settings).fit(train, **given)
        return model.predict(test), model.predict_interval(test, LEVEL)

    return predict


def plain(n_shared: int, n_unique: int, solver: str, rounds: int) -> Predict:
    """Return a fit of HMF as the paper writes it: raw ratings, no offsets, no ridge."""

    def predict(
        movies: MovieLens, train: pd.DataFrame, test: pd.DataFrame, seed: int
    ) -> np.ndarray:
        group = np.zeros(len(movies.items), dtype=int)
        if n_unique:
            model = RatingModel(0, 0, n_fits=1, random_state=seed)
            labels = model.fit(train, item_groups=movies.item_flags).item_groups_
            rated = movies.items.index.get_indexer(labels.index)
            group[rated] = labels.factorize()[0]
        users = movies.users.index.get_indexer(train["user"])
        items = movies.items.index.get_indexer(train["item"])
        shape = (len(movies.users), len(movies.items))
        whole = scipy.sparse.csc_array((train["rating"].to_numpy(), (users, items)), shape)
        columns = [np.flatnonzero(group == g) for g in range(group.max() + 1)]
        model = HMF(
            n_shared,
            n_unique,
            shared_axis="samples",
            centre=None,
            missing="absent",
            solver=solver,
            tol=1e-4,
            max_rounds=rounds,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of movies that were never rated, and of patience
            model.fit([whole[:, at].tocsr() for at in columns])
        expected = np.zeros(shape)
        for name, at in zip(model.source_names_, columns, strict=True):
            expected[:, at] = model.reconstruct(name)
        at = (
            movies.users.index.get_indexer(test["user"]),
            movies.items.index.get_indexer(test["item"]),
        )
        return np.clip(expected[at], 1, 5)

    return predict


ROWS: dict[str, tuple[Predict, float | None]] = {
    **{name: (plain(*how), 0.977 if how[1] else 0.981) for name, how in PLAIN.items()},
    "offsets": (offsets_only, None),
    "RatingModel als, shared only": (shared_only, None),
    "RatingModel als, shared + unique, random groups": (random_groups, None),
    "RatingModel als, shared + unique": (shared_and_unique, None),
    "RatingModel gibbs, ratings alone": (gibbs(implicit=False), None),
    "RatingModel gibbs, features and implicit": (gibbs(), None),
}
REFERENCE = "RatingModel als, shared only"


def run(job: tuple[MovieLens, int]) -> list[dict[str, Any]]:
    """Measure every row on one split."""
    movies, number = job
    train, test = split(movies, number)
    rows = []
    for name, (predict, _) in ROWS.items():
        begin = time.process_time()
        predicted = predict(movies, train, test, number)
        row: dict[str, Any] = {"split": number, "row": name}
        row["cpu seconds"] = time.process_time() - begin
        if isinstance(predicted, tuple):
            predicted, bounds = predicted
            row["coverage"] = test["rating"].between(bounds["lower"], bounds["upper"]).mean()
        rows.append(row | {"rmse": rmse(predicted, test)})
    return rows


def run_all(movies: MovieLens, n_splits: int) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    with Pool(2, initializer=threadpool_limits, initargs=(1,)) as pool:
        for found in pool.imap(run, [(movies, number) for number in range(n_splits)]):
            rows += found
            print(pd.DataFrame(found).to_string(index=False), flush=True)
    return pd.DataFrame(rows)


def describe(table: pd.DataFrame) -> str:
    errors = table.pivot(index="split", columns="row", values="rmse")
    seconds = table.groupby("row")["cpu seconds"].median()
    covers = table.groupby("row")["coverage"].mean()
    n = len(errors)
    shown = []
    for name, (_, reported) in ROWS.items():
        error, against = errors[name], errors[name] - errors[REFERENCE]
        difference = "" if name == REFERENCE else _with_error(against, n, "{:+.4f}")
        shown.append(
            {
                "row": name,
                "the paper": "" if reported is None else f"{reported:.3f}",
                "RMSE": _with_error(error, n, "{:.4f}"),
                "against shared only": difference,
                "90 % intervals cover": "" if np.isnan(covers[name]) else f"{covers[name]:.1%}",
                "CPU s": f"{seconds[name]:.2f}",
            }
        )
    best = errors["RatingModel als, shared + unique"]
    gain = errors[REFERENCE] - best
    ratio = gain.mean() / (gain.std(ddof=1) / np.sqrt(n))
    return page(
        "MovieLens 100K, random 90/10 splits",
        f"Mean test RMSE over {n} splits, plus or minus its standard error; paired differences "
        f"likewise. Settings were chosen on training ratings of split 0 "
        "([search_ratings.md](search_ratings.md)).",
        markdown(pd.DataFrame(shown)),
        "Rows marked `raw` are fitted to the ratings as they are, without offsets or ridge, for up "
        "to 200 rounds (pooled), 50 (HMF) or 1000 (Algorithm 1). The paper states neither ranks "
        "nor stopping; its 0.981 is where the pooled model is at rank 4 to 5. Ten k-means clusters "
        "of the movies' genre flags are the groups; `random groups` gives every movie another "
        "one's genres.",
        f"Unique tastes for clusters of genres take {gain.mean():.4f} off the error of shared ones "
        f"alone, {ratio:.1f} standard errors.",
        "Command: `OMP_NUM_THREADS=1 python experiments/table4_movielens.py`",
    )


def _with_error(values: pd.Series, n: int, form: str) -> str:
    return f"{form.format(values.mean())} ± {values.std(ddof=1) / np.sqrt(n):.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="of MovieLens 100K")
    parser.add_argument("--splits", type=int, default=20, help="how many")
    options = parser.parse_args()
    table = run_all(load_movielens_100k(options.folder), options.splits)
    RESULTS.mkdir(exist_ok=True)
    table.to_csv(RESULTS / "table4_movielens.csv", index=False, float_format="%.6g")
    text = describe(table)
    (RESULTS / "table4_movielens.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
