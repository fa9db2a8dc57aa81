"""What features tell of items and users without ratings: a tenth of them held out.

    python experiments/cold_start.py RAW_FOLDER [--seeds N]

RAW_FOLDER is that of MovieLens 100K. All is done within the training part of split 0 (and on made
ratings): of a tenth of the items, then of the users, every rating is held out, and predicted from
features alone (`add_items`, `add_users`). Beside it what is expected where nothing is known: the
mean and the offset of the other one. Writes results/cold_start.csv and .md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from movielens import rmse, side_information, split

from heterofactor import RatingModel
from heterofactor.datasets import load_movielens_100k, make_ratings

RESULTS = Path(__file__).parent / "results"
SETTINGS: dict[str, dict[str, Any]] = {
    "als": {"solver": "als"},
    "gibbs": {"solver": "gibbs", "n_rounds": 150},
}


def sets(folder: Path) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """Yield ratings with groups and features."""
    movies = load_movielens_100k(folder)
    users, items = side_information(movies)
    train, _ = split(movies, 0)
    yield (
        "MovieLens 100K",
        train,
        {"item_groups": movies.item_flags, "user_features": users, "item_features": items},
    )
    made = make_ratings(400, 300, n_ratings=20_000, random_state=0)
    yield (
        "made",
        made.ratings,
        {
            "item_groups": made.item_groups,
            "user_features": made.user_features,
            "item_features": made.item_features,
        },
    )


def cold(ratings: pd.DataFrame, side: str, seed: int) -> np.ndarray:
    """Return which ratings are held out: all of a tenth of the users, or items."""
    ids = np.unique(ratings[side])
    held = np.random.RandomState(seed).choice(ids, len(ids) // 10, replace=False)
    return ratings[side].isin(held).to_numpy()


def measured(
    ratings: pd.DataFrame, given: dict[str, Any], side: str, seed: int, solver: str
) -> dict[str, float]:
    """Fit once, and compare what is expected with and without features."""
    held = cold(ratings, side, seed)
    train, test = ratings[~held], ratings[held]
    name = f"{side}_features"
    known = given[name].index.isin(train[side])
    fitted = given | {name: given[name][known]}
    model = RatingModel(random_state=0, **SETTINGS[solver]).fit(train, **fitted)
    late = given[name][~known]
    if side == "item":
        model.add_items(late, groups=given["item_groups"])
    else:
        model.add_users(late)
    nothing = test.assign(**{side: "nobody"})
    row = {
        "nothing": rmse(model.predict(nothing), test),
        "features": rmse(model.predict(test), test),
    }
    if solver == "gibbs":
        for name, pairs in (("nothing", nothing), ("features", test)):
            bounds = model.predict_interval(pairs, 0.9)
            inside = (bounds["lower"] <= test["rating"]) & (test["rating"] <= bounds["upper"])
            row |= {f"inside, {name}": float(inside.mean())}
            row |= {f"width, {name}": float((bounds["upper"] - bounds["lower"]).mean())}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    rows = []
    for name, ratings, given in sets(asked.folder):
        for side in ("item", "user"):
            for solver in SETTINGS:
                for seed in range(asked.seeds):
                    row = measured(ratings, given, side, seed, solver)
                    rows.append(
                        {"ratings": name, "cold": side, "solver": solver, "seed": seed} | row
                    )
                    print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(RESULTS / "cold_start.csv", index=False, float_format="%.4f")
    means = table.groupby(["ratings", "cold", "solver"], sort=False).mean().drop(columns="seed")
    gain = table.assign(gain=table["nothing"] - table["features"])
    by = gain.groupby(["ratings", "cold", "solver"], sort=False)["gain"]
    means["gain"], means["its standard error"] = by.mean(), by.sem()
    lines = [
        "# Of whom there are no ratings",
        "",
        f"Root mean squared errors of ratings by a tenth of the users, or of a tenth of the items, "
        f"of which all ratings were held out; means over {asked.seeds} choices "
        "(`experiments/cold_start.py`; MovieLens: within the training part of split 0). *nothing*: "
        "the mean and the offset of the other one; *features*: age, gender and occupation of a "
        "user, genres and decade of a film. *inside* and *width* are of 90 % intervals. "
        "Where nothing is known, `gibbs` expects the average item, and `als` that of the average "
        "rating: few items have most of the ratings, and they are better ones.",
        "",
        "| " + " | ".join([*means.index.names, *means.columns]) + " |",
        "|" + " --- |" * (len(means.index.names) + len(means.columns)),
    ]
    for index, row in means.iterrows():
        cells = ["" if np.isnan(value) else f"{value:.4f}" for value in row]
        lines.append("| " + " | ".join([*map(str, index), *cells]) + " |")
    (RESULTS / "cold_start.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
