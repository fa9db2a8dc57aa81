"""The MovieLens table of the paper, on parts that can be made again, row by row.

    OMP_NUM_THREADS=1 python experiments/table4_movielens.py --folder ml-100k \
        [--splits 20] [--folds 5] [--rows NAME ...] [--describe]

Rows that are in ``results/table4_movielens.csv`` are not measured again; fits are kept in
``experiments/cache``, so that averages and combinations need no second one. Cheap rows are measured
on four times as many splits. Writes the csv and ``results/table4_movielens.md``.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from functools import partial
from itertools import chain
from multiprocessing import Pool
from typing import Any, Self

import numpy as np
import pandas as pd
from fits import LEVEL, TABLES, Fit, fitted
from movielens import rmse
from parts import HELD, part, parts
from record import RESULTS, markdown, page
from rows import FOLDED, REFERENCE, ROWS, Row
from threadpoolctl import threadpool_limits

from heterofactor.datasets import MovieLens, load_movielens_100k
from heterofactor.ratings.blend import combined
from heterofactor.ratings.drift import TimeDrift, fit_drift
from heterofactor.ratings.face import RatingFace
from heterofactor.ratings.ranking import ranking_quality

FILE = RESULTS / "table4_movielens.csv"
COLUMNS = ["part", "row", "rmse", "cpu seconds", "coverage", "ndcg", "recall", "weights"]
# What each row adds to another one.
PAIRS = (
    ("RatingModel als, shared + unique", "RatingModel als, shared only"),
    ("RatingModel als, shared + unique, random groups", "RatingModel als, shared only"),
    ("HAE", "HAE, one group"),
    ("HAE", "HAE, random groups"),
    ("HAE, three fits", "HAE"),
    ("HAE, three fits", "SparseFC, three fits"),
    ("RatingModel gibbs, features and implicit", "RatingModel gibbs, ratings alone"),
    ("best combination", "RatingModel gibbs, features and implicit"),
)
CHEAP = 4
N_FIRST = 10
BOUNDS = (1, 5)


class Stored(RatingFace):
    """A model whose table of users and items is there already."""

    user, item, rating = "user", "item", "rating"

    def fit(self, train: pd.DataFrame, table: np.ndarray) -> Self:
        self._read(train)
        self.table_ = table
        return self

    def _expected_table(self, user: Any) -> np.ndarray:
        unknown = self.table_.mean(axis=0)
        return np.where(user[:, None] < 0, unknown, self.table_[user])


def measure(movies: MovieLens, folder: str | None, name: str, part_name: str) -> dict[str, Any]:
    """Measure a row on a part."""
    row = ROWS[name]
    train, test = part(movies, part_name, folder)

    def averages(of: str) -> list[list[Fit]]:
        return [
            [fitted(movies, folder, model, of, seed) for seed in row.seeds] for model in row.models
        ]

    fits = averages(part_name)
    found: dict[str, Any] = {"part": part_name, "row": name}
    intercept, weights, every = 0.0, np.ones(1), list(chain(*fits))
    if len(row.models) > 1:
        held_fits = averages(part_name + HELD)
        _, held = part(movies, part_name + HELD, folder)
        intercept, weights = combined(together(held_fits, "test"), held["rating"].to_numpy())
        found["weights"] = json.dumps([round(float(w), 4) for w in weights])
        every += chain(*held_fits)
    expected = intercept + together(fits, "test") @ weights
    if row.drift:
        expected = expected + drift(train, test, intercept + together(fits, "train") @ weights)
    found["rmse"] = rmse(np.clip(expected, *BOUNDS), test)
    found["cpu seconds"] = sum(fit.seconds for fit in every)
    if len(every) == 1 and not row.drift:
        found["coverage"] = every[0].coverage
    if part_name in TABLES and not row.drift:
        table = intercept + together(fits, "table") @ weights
        found |= ranking_quality(Stored().fit(train, table), test, N_FIRST)[["ndcg", "recall"]]
    return found


def together(fits: list[list[Fit]], what: str) -> np.ndarray:
    """Return what models expect, averaged over their seeds; models are the last axis."""
    return np.stack(
        [np.mean([getattr(fit, what) for fit in seeds], axis=0) for seeds in fits], axis=-1
    )


def drift(train: pd.DataFrame, test: pd.DataFrame, expected: np.ndarray) -> np.ndarray:
    """Return what `TimeDrift` as it comes adds to a model that expects this of training ratings."""
    as_it_comes = TimeDrift(None)
    user, time = train["user"].to_numpy(), train["time"].to_numpy(dtype=float)
    left = train["rating"].to_numpy() - expected
    found = fit_drift(user, time, left, as_it_comes.scales, as_it_comes.strengths)
    return found.at(test["user"].to_numpy(), test["time"].to_numpy(dtype=float))


def measured() -> pd.DataFrame:
    """Return what was measured before."""
    if not FILE.exists():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(FILE)


def run(movies: MovieLens, folder: str | None, job: tuple[str, Sequence[str]]) -> None:
    """Measure some rows on one part, and write each down when it is done."""
    part_name, names = job
    for name in names:
        try:
            found = measure(movies, folder, name, part_name)
        except ModuleNotFoundError as missing:
            print(f"{name}: left out, there is no {missing.name}", flush=True)
            continue
        with open(FILE, "a", newline="") as file:
            csv.DictWriter(file, COLUMNS).writerow(found)
        print(part_name, name, f"{found['rmse']:.4f}", f"{found['cpu seconds']:.1f} s", flush=True)


def run_all(
    movies: MovieLens, folder: str | None, names: list[str], splits: int, folds: int
) -> None:
    """Measure what is not yet there, in two processes; a part is one's."""
    before = measured()
    done = set(zip(before["part"], before["row"], strict=True))
    wanted = [
        (part_name, name)
        for name in names
        for part_name in [
            *parts("split", splits * (CHEAP if ROWS[name].cheap else 1)),
            *(parts("u", folds) if name in FOLDED else ()),
        ]
    ]
    jobs: dict[str, list[str]] = {}
    for part_name, name in wanted:
        if (part_name, name) not in done:
            jobs.setdefault(part_name, []).append(name)
    if before.empty:
        FILE.write_text(",".join(COLUMNS) + "\n")
    with Pool(2, initializer=threadpool_limits, initargs=(1,)) as pool:
        for _ in pool.imap_unordered(partial(run, movies, folder), jobs.items()):
            pass
    order = {name: place for place, name in enumerate(ROWS)}
    table = measured()
    table = table.sort_values(["row", "part"], key=lambda c: c.map(order) if c.name == "row" else c)
    table.to_csv(FILE, index=False, float_format="%.6g")


def with_error(values: pd.Series, form: str = "{:.4f}") -> str:
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}" if len(values) > 1 else ""
    return form.format(values.mean()) + error


def described(table: pd.DataFrame, names: Sequence[str], *, reported: bool) -> pd.DataFrame:
    """Return a line for each row, as people read it."""
    errors = table.pivot(index="part", columns="row", values="rmse")
    lines = []
    for name in names:
        rows = table[table["row"] == name]
        if rows.empty:
            continue
        row: Row = ROWS[name]
        line = {"row": name}
        if reported:
            line["the paper"] = f"{row.paper:.4g}" if row.paper else ""
            line["reported"] = f"{row.reported:.4g}" if row.reported else ""
        line |= {"RMSE": with_error(rows["rmse"]), "parts": str(len(rows))}
        if REFERENCE in errors and name != REFERENCE:
            paired = (errors[name] - errors[REFERENCE]).dropna()
            line[f"minus {REFERENCE}"] = with_error(paired, "{:+.4f}") if len(paired) else ""
        if reported:
            for what in ("ndcg", "recall"):
                score = rows[what].dropna()
                line[f"{what}@{N_FIRST}"] = f"{score.mean():.3f}" if len(score) else ""
            covers = rows["coverage"].mean()
            line[f"{LEVEL:.0%} intervals cover"] = "" if np.isnan(covers) else f"{covers:.1%}"
        line["CPU s"] = f"{rows['cpu seconds'].median():.1f}"
        lines.append(line)
    return pd.DataFrame(lines).fillna("")


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return paired differences between rows, and how many standard errors they are."""
    errors = table.pivot(index="part", columns="row", values="rmse")
    lines = []
    for name, other in PAIRS:
        if name in errors and other in errors:
            paired = (errors[name] - errors[other]).dropna()
            ratio = abs(paired.mean()) / (paired.std(ddof=1) / np.sqrt(len(paired)))
            lines.append(
                {
                    "row": name,
                    "minus": other,
                    "RMSE": with_error(paired, "{:+.4f}"),
                    "standard errors": f"{ratio:.1f}",
                    "splits": str(len(paired)),
                }
            )
    return pd.DataFrame(lines)


def weights_of(table: pd.DataFrame) -> str:
    """Say what the models of combinations count."""
    sentences = []
    for name, row in ROWS.items():
        found = table.loc[table["row"] == name, "weights"].dropna()
        if len(row.models) > 1 and len(found):
            mean = np.mean([json.loads(one) for one in found], axis=0)
            parts_of = zip(row.models, mean, strict=True)
            sentences.append(f"- {name}: " + ", ".join(f"{m} {w:.2f}" for m, w in parts_of))
    return "\n".join(sentences)


def describe(table: pd.DataFrame) -> str:
    random, published = (table[table["part"].str.startswith(kind)] for kind in ("split", "u"))
    paragraphs = [
        "Root of the mean squared error on test ratings, kept between 1 and 5: mean over the "
        "first splits, plus or minus its standard error (the number of splits is beside it), and "
        f"paired differences to {REFERENCE} likewise. Split s tests on the first 10,000 of "
        "`RandomState(s).permutation(100000)`. Settings were chosen on training ratings of split 0 "
        "([als](search_ratings.md), [gibbs](search_gibbs.md), [combinations](search_blend.md)); "
        "of the auto-encoders and of other baselines see the pages of their own.",
        markdown(described(random, list(ROWS), reported=True)),
        "Paired differences between rows:",
        markdown(compared(random)),
        f"`ndcg@{N_FIRST}` and `recall@{N_FIRST}` are means over splits 0 to {len(TABLES) - 1}: "
        "all movies that a user has not rated in training are ranked by what is expected of them; "
        "those are relevant that the user's test ratings give 4 or 5. All other movies count as "
        "misses, rated or not, so that these numbers are low for every method that was made to "
        "predict ratings.",
        "Rows marked `raw` are fitted to the ratings as they are, without offsets or ridge, for up "
        "to 200 rounds (pooled), 50 (HMF) or 1000 (Algorithm 1). The paper states neither ranks "
        "nor stopping, which decide more than the method does: by Algorithm 1 its 0.981 is near "
        "rank 6, and its 0.977 near ranks 1 + 1. Ten k-means clusters of the "
        "movies' genre flags are the groups; `random "
        "groups` gives every movie another one's genres. `three fits` averages predictions of the "
        "seeds s, s + 100 and s + 200.",
        "Combinations are weighted sums (not negative), whose weights are found on a tenth of the "
        "split's training ratings that was held out for that; their CPU seconds are of the fits to "
        "both. Weights, means over splits:",
        weights_of(random),
        "Rows with `times` use the times at which ratings were given, also those of the test "
        "ratings: what is expected is corrected by what the user's other ratings of the same "
        "minutes are off by (`TimeDrift`), be they earlier or later. Most of that is told by "
        "ratings of the same second ([search_blend.md](search_blend.md)), so that these rows say "
        "how well a gap is filled, not how well the future is foreseen. No other row uses times, "
        "nor do those of the literature that are quoted here.",
    ]
    if len(published):
        paragraphs += [
            "## The published folds u1 to u5",
            "They train on 80,000 ratings instead of 90,000.",
            markdown(described(published, FOLDED, reported=False)),
        ]
    paragraphs.append(
        "Command: `OMP_NUM_THREADS=1 python experiments/table4_movielens.py --folder ml-100k`"
    )
    return page("MovieLens 100K: the table of the paper", *filter(None, paragraphs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="of MovieLens 100K; the published folds need it")
    parser.add_argument("--splits", type=int, default=20, help="how many (cheap rows: fourfold)")
    parser.add_argument("--folds", type=int, default=5, help="how many of the published ones")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="NAME")
    parser.add_argument("--describe", action="store_true", help="write the page, measure nothing")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if not options.describe:
        movies = load_movielens_100k(options.folder)
        folds = options.folds if options.folder else 0
        run_all(movies, options.folder, options.rows, options.splits, folds)
    text = describe(measured())
    (RESULTS / "table4_movielens.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
