"""Choose what the best combination is made of, and how users drift, on training ratings alone.

    OMP_NUM_THREADS=1 python experiments/search_blend.py --folder ml-100k

Folds of the training part of split 0 (`inner_folds`). A combination's weights come from the other
folds. Fits are kept in ``experiments/cache``. Writes ``results/search_blend.csv`` and ``.md``.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
import pandas as pd
from fits import Fit, fitted
from movielens import rmse
from parts import part
from record import RESULTS, markdown, page
from threadpoolctl import threadpool_limits

from heterofactor.datasets import MovieLens, load_movielens_100k
from heterofactor.ratings.blend import combined
from heterofactor.ratings.drift import TimeDrift, fit_drift

FOLDS = 3
# A model of `fits.MODELS`, and how far its seed is from the number of the fold.
PIECES = (
    ("als", 0),
    ("gibbs", 0),
    ("gibbs", 100),
    ("gibbs 20", 0),
    ("gibbs 20", 100),
    ("gibbs 32", 0),
    ("gibbs, ratings alone", 0),
    ("SparseFC", 0),
    ("HAE", 0),
    ("HAE", 100),
)
BEGIN = ("gibbs 32", 0)
# Combinations grow as long as that takes so much off the error.
LEAST = 1e-4
# Of the plain smoother that asks which ratings tell: seconds, and ratings that say nothing.
NEAR, BESIDE = 120.0, 3.0
SCALES = ((300.0,), (3.0, 300.0), (10.0, 300.0), (10.0, 800.0), (30.0, 800.0), (10.0, 2000.0))
STRENGTHS = (0.05, 0.1, 0.15, 0.2)
Piece = tuple[str, int]
AS_IT_COMES = TimeDrift(None)


class Folds:
    """What every piece expects of every fold."""

    def __init__(self, movies: MovieLens, folder: str | None) -> None:
        names = [f"inner{k}" for k in range(FOLDS)]
        self.parts = [part(movies, name, folder) for name in names]
        self.fits: dict[Piece, list[Fit]] = {}
        for model, more in PIECES:
            self.fits[model, more] = [fitted(movies, folder, model, name, more) for name in names]

    def expected(
        self, pieces: tuple[Piece, ...], what: str, k: int, weights: np.ndarray
    ) -> np.ndarray:
        stacked = np.stack([getattr(self.fits[piece][k], what) for piece in pieces], axis=1)
        return weights[0] + stacked @ weights[1:]

    def weights(self, pieces: tuple[Piece, ...], k: int) -> np.ndarray:
        """Return intercept and weights, from all folds but one."""
        if len(pieces) == 1:
            return np.array([0.0, 1.0])
        others = [j for j in range(FOLDS) if j != k]
        stacked = [np.stack([self.fits[piece][j].test for piece in pieces], axis=1) for j in others]
        targets = [self.parts[j][1]["rating"].to_numpy() for j in others]
        intercept, weights = combined(np.concatenate(stacked), np.concatenate(targets))
        return np.append(intercept, weights)

    def error(self, pieces: tuple[Piece, ...], scales: tuple, strengths: tuple) -> float:
        """Return the mean error over the folds; without scales, times are not used."""
        errors = []
        for k, (train, test) in enumerate(self.parts):
            weights = self.weights(pieces, k)
            found = self.expected(pieces, "test", k, weights)
            if scales:
                left = train["rating"].to_numpy() - self.expected(pieces, "train", k, weights)
                times = [table["time"].to_numpy(dtype=float) for table in (train, test)]
                drift = fit_drift(train["user"].to_numpy(), times[0], left, scales, strengths)
                found = found + drift.at(test["user"].to_numpy(), times[1])
            errors.append(rmse(np.clip(found, 1, 5), test))
        return float(np.mean(errors))


def named(pieces: tuple[Piece, ...]) -> str:
    return " + ".join(name if not more else f"{name} ({more})" for name, more in pieces)


def combinations(folds: Folds) -> pd.DataFrame:
    """Try every piece alone, and let a combination grow by what helps most."""
    tried: dict[tuple[Piece, ...], float] = {}

    def error(pieces: tuple[Piece, ...]) -> float:
        if pieces not in tried:
            tried[pieces] = folds.error(pieces, (), ())
        return tried[pieces]

    for piece in PIECES:
        error((piece,))
    best: tuple[Piece, ...] = (BEGIN,)
    while len(best) < len(PIECES):
        grown = [(*best, piece) for piece in PIECES if piece not in best]
        found = min(grown, key=error)
        if error(found) > error(best) - LEAST:
            break
        best = found
    rows = []
    for pieces, value in tried.items():
        times = folds.error(pieces, AS_IT_COMES.scales, AS_IT_COMES.strengths)
        taken = np.mean(
            [sum(folds.fits[piece][k].seconds for piece in pieces) for k in range(FOLDS)]
        )
        row = {"what": named(pieces), "rmse": value}
        rows.append(row | {"with times": times, "cpu seconds": taken})
    return pd.DataFrame(rows)


def drifts(folds: Folds) -> pd.DataFrame:
    rows = []
    for scales in SCALES:
        for strengths in product(STRENGTHS, repeat=len(scales)):
            value = folds.error((BEGIN,), scales, strengths)
            row = {"what": named((BEGIN,)), "scales": str(scales), "strengths": str(strengths)}
            rows.append(row | {"with times": value})
    return pd.DataFrame(rows)


def when(folds: Folds) -> pd.DataFrame:
    """Correct by the same user's ratings of before, of the same second, or of after, alone."""
    sides = {
        "earlier": lambda gap: gap > 0,
        "the same second": lambda gap: gap == 0,
        "earlier and the same second": lambda gap: gap >= 0,
        "later": lambda gap: gap < 0,
        "all": np.isfinite,
    }
    rows = []
    for name, counts in sides.items():
        means, left = [], []
        for k, (train, test) in enumerate(folds.parts):
            fit = folds.fits[BEGIN][k]
            off = (train["rating"] - fit.train).groupby(train["user"])
            times = train["time"].groupby(train["user"])
            mean = np.zeros(len(test))
            for user, at in test.reset_index().groupby("user").indices.items():
                gap = test["time"].to_numpy()[at, None] - times.get_group(user).to_numpy()
                near = np.exp(-np.abs(gap) / NEAR) * counts(gap)
                mean[at] = near @ off.get_group(user).to_numpy() / (near.sum(axis=1) + BESIDE)
            means.append(mean)
            left.append(test["rating"].to_numpy() - fit.test)
        errors = []
        for k in range(FOLDS):
            x, y = (np.concatenate(one[:k] + one[k + 1 :]) for one in (means, left))
            errors.append(np.sqrt(np.mean((left[k] - x @ y / (x @ x) * means[k]) ** 2)))
        rows.append({"what": f"ratings of: {name}", "with times": float(np.mean(errors))})
    return pd.DataFrame(rows)


def describe(table: pd.DataFrame) -> str:
    def shown(rows: pd.DataFrame, columns: list[str]) -> str:
        rows = rows.sort_values(columns[-1] if "rmse" not in columns else "rmse")[columns]
        for name in ("rmse", "with times"):
            if name in rows:
                rows = rows.assign(**{name: rows[name].map("{:.5f}".format)})
        if "cpu seconds" in rows:
            rows["cpu seconds"] = rows["cpu seconds"].map("{:.1f}".format)
        return markdown(rows)

    drift = table["scales"].notna()
    sides = table["what"].str.startswith("ratings of")
    return page(
        "Combinations of models, and drift in time, for MovieLens 100K",
        f"Mean RMSE over {FOLDS} folds (81,000 ratings to fit, 9,000 held out) of the training "
        "part of split 0; no test rating of split 0 was seen. Weights of combinations (not "
        "negative, and an intercept) are of the other folds. `with times` corrects by "
        "`TimeDrift` as it comes.",
        shown(table[~drift & ~sides], ["what", "rmse", "with times", "cpu seconds"]),
        f"Drift of users beside {named((BEGIN,))}; the twelve best of {int(drift.sum())}, and the "
        "best with one scale:",
        shown(
            pd.concat(
                [
                    table[drift].nsmallest(12, "with times"),
                    table[
                        drift & table["scales"].isin([str(one) for one in SCALES if len(one) == 1])
                    ].nsmallest(1, "with times"),
                ]
            ),
            ["scales", "strengths", "with times"],
        ),
        f"Which ratings of the same user tell: their mean error, weighted by exp(-gap / {NEAR:.0f} "
        "s), where only those of some times count. Many ratings of MovieLens are of the same "
        "second, as if whole pages were sent at once, and these tell most; from earlier ones alone "
        "little is known.",
        shown(table[sides], ["what", "with times"]),
        "Command: `OMP_NUM_THREADS=1 python experiments/search_blend.py --folder ml-100k`",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="of MovieLens 100K")
    options = parser.parse_args()
    with threadpool_limits(1):
        folds = Folds(load_movielens_100k(options.folder), options.folder)
        table = pd.concat([combinations(folds), drifts(folds), when(folds)], ignore_index=True)
    table.to_csv(RESULTS / "search_blend.csv", index=False, float_format="%.6g")
    text = describe(table)
    (RESULTS / "search_blend.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
