"""Why means of groups of users do not reach the error that is reported of GHRS.

    OMP_NUM_THREADS=1 python experiments/ghrs_evaluation.py --folder ml-100k [--splits 20]

First what GHRS predicts of ratings it has not seen, and what other groups would; then, from the
same groups, ways to evaluate that nobody should use, to see which of them give the reported error.
Writes ``results/ghrs_evaluation.csv`` and ``.md``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from movielens import inner_folds, rmse, split
from record import RESULTS, markdown, page
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from heterofactor import RatingModel
from heterofactor.datasets import MovieLens, load_movielens_100k
from heterofactor.ratings.face import STAND_IN
from heterofactor.ratings.ghrs import GHRS, group_means
from heterofactor.ratings.offsets import fit_offsets
from heterofactor.ratings.reading import Array, Codes, Columns, Ratings, read_ratings

REPORTED = 0.887
# How many clusters the elbow gave to the authors.
ELBOW = 8
SIMILAR = 10
AGES = [0, 10, 20, 30, 40, 50, 100]
# 24 is there because the error that is reported lies between those of 16 and 32.
MANY = (16, 24, 32, 64)
SHARES = (0.005, 0.01, 0.02, 0.03)
CLUSTERS = (1, 2, 4, 8, 16)
FOLDS = 3

# Not an error: a share, for the text.
BETWEEN = "users' offsets between groups"
FAIR = {
    "mean of the movie (one group)": "",
    "8 random groups": "the groups of GHRS, shuffled among users",
    "GHRS, 8 clusters": "**as published**; our choices where the text leaves them open",
    "GHRS, clusters by silhouette": "",
    "GHRS, 8 clusters, graph alone": "",
    "GHRS, 8 clusters, features alone": "",
    "8 groups by mean rating": "users sorted by their mean training rating",
    "8 groups by predicted tastes": "k-means of what `RatingModel` expects of users",
    "offsets": "mean + user + movie",
    "offsets + GHRS, 8 clusters": "group means of what offsets leave",
}
WRONG = {
    "rated by the group": "only test ratings of movies that the user's group rated in training",
    "rounded": "predictions rounded to whole ratings",
    "mean over users": "mean of each user's own error",
    "mean over movies": "mean of each movie's own error",
    "mean over groups": "mean of each group's own error",
    "absolute": "mean absolute error",
    "means of means": "group means against the group means of the test ratings",
    "training": "error of the ratings that were fitted",
    "test in the graph": "graph of all ratings, means of training ratings",
    "test in the means": "graph of training ratings, means of all ratings",
    "test in both": "graph and means of all ratings",
    **{f"test in both, {k} clusters": f"the same, {k} clusters" for k in MANY},
}


def features(movies: MovieLens) -> pd.DataFrame:
    """Return categories of users, with the ages cut as the authors' program cuts them."""
    age = pd.cut(movies.users["age"], AGES).astype(str)
    return movies.users[["gender", "occupation"]].assign(age=age)


def looked_up(known: Ratings, group: Codes, pairs: pd.DataFrame) -> Array:
    """Return the means of the users' groups for pairs; for an unknown movie, the mean of all."""
    table = group_means(known, group, SIMILAR)
    user, item = places(known, pairs)
    return np.where(item < 0, known.values.mean(), table[group[user], item])


def places(known: Ratings, pairs: pd.DataFrame) -> tuple[Codes, Codes]:
    return known.users.get_indexer(pairs["user"]), known.items.get_indexer(pairs["item"])


def by_mean_rating(known: Ratings) -> Codes:
    mean = np.bincount(known.user, known.values) / np.bincount(known.user)
    return pd.qcut(mean, ELBOW, labels=False)


def by_predicted_tastes(train: pd.DataFrame, seed: int) -> Codes:
    expected = RatingModel(random_state=seed).fit(train).predict_table()
    return KMeans(ELBOW, n_init=4, random_state=seed).fit(expected).labels_


def fair(
    movies: MovieLens, train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> tuple[dict[str, float], GHRS]:
    """Measure predictions of ratings that were not seen, and return GHRS as published."""
    known, seen = read_ratings(train, Columns()), features(movies)

    def ghrs(number: int | str = ELBOW, **settings: float) -> GHRS:
        return GHRS(number, n_similar=SIMILAR, random_state=seed, **settings)

    model = ghrs().fit(train, seen)
    group = model.user_groups_.to_numpy()
    offsets = fit_offsets(known, STAND_IN)
    rest = replace(known, values=known.values - offsets.at(known.user, known.item))
    user, item = places(known, test)
    base = offsets.mean + offsets.user[user] + np.where(item < 0, 0, offsets.item[item])
    found = {
        "mean of the movie (one group)": ghrs(1).fit(train).predict(test),
        "8 random groups": looked_up(known, np.random.RandomState(seed).permutation(group), test),
        "GHRS, 8 clusters": model.predict(test),
        "GHRS, clusters by silhouette": ghrs("auto").fit(train, seen).predict(test),
        "GHRS, 8 clusters, graph alone": ghrs().fit(train).predict(test),
        # nobody gives the same rating to all items, so that there is no link
        "GHRS, 8 clusters, features alone": ghrs(share=1.0).fit(train, seen).predict(test),
        "8 groups by mean rating": looked_up(known, by_mean_rating(known), test),
        "8 groups by predicted tastes": looked_up(known, by_predicted_tastes(train, seed), test),
        "offsets": base,
        "offsets + GHRS, 8 clusters": base + looked_up(rest, group, test),
    }
    errors = {name: rmse(np.clip(p, 1, 5), test) for name, p in found.items()}
    return errors | {BETWEEN: between(offsets.user, group)}, model


def between(values: Array, group: Codes) -> float:
    """Return the share of a variance that is between groups."""
    of_group = pd.Series(values).groupby(group).transform("mean")
    return float(of_group.var() / values.var())


def wrong(
    movies: MovieLens, train: pd.DataFrame, test: pd.DataFrame, model: GHRS, seed: int
) -> dict[str, float]:
    """Evaluate the same groups in ways that do not say how well unseen ratings are predicted."""
    predicted, seen = model.predict(test), features(movies)
    every = pd.concat([train, test])
    known, both = read_ratings(train, Columns()), read_ratings(every, Columns())
    group = model.user_groups_.reindex(both.users).to_numpy()
    squared = pd.DataFrame({"error": (predicted - test["rating"].to_numpy()) ** 2})
    squared = squared.assign(user=test["user"].to_numpy(), movie=test["item"].to_numpy())
    squared["group"] = model.user_groups_[squared["user"]].to_numpy()

    of_group = pd.DataFrame({"group": model.user_groups_.to_numpy()[known.user], "at": known.item})
    _, at = places(known, test)
    cells = pd.MultiIndex.from_arrays([squared["group"], at])
    rated = cells.isin(pd.MultiIndex.from_frame(of_group))
    means = pd.DataFrame({"found": predicted, "given": test["rating"].to_numpy()})
    means = means.groupby([squared["group"].to_numpy(), squared["movie"].to_numpy()]).mean()

    whole = {
        number: GHRS(number, n_similar=SIMILAR, random_state=seed).fit(every, seen)
        for number in (ELBOW, *MANY)
    }
    with_test = whole[ELBOW].user_groups_.reindex(known.users).to_numpy()
    return {
        "rated by the group": rmse(predicted[rated], test[rated]),
        "rounded": rmse(np.round(predicted), test),
        "mean over users": _mean_of_roots(squared, "user"),
        "mean over movies": _mean_of_roots(squared, "movie"),
        "mean over groups": _mean_of_roots(squared, "group"),
        "absolute": float(np.sqrt(squared["error"]).mean()),
        "means of means": float(np.sqrt(((means["found"] - means["given"]) ** 2).mean())),
        "training": rmse(model.predict(train), train),
        "test in the graph": rmse(looked_up(known, with_test, test), test),
        "test in the means": rmse(looked_up(both, group, test), test),
        "test in both": rmse(whole[ELBOW].predict(test), test),
        **{f"test in both, {k} clusters": rmse(whole[k].predict(test), test) for k in MANY},
    }


def _mean_of_roots(squared: pd.DataFrame, by: str) -> float:
    return float(np.sqrt(squared.groupby(by)["error"].mean()).mean())


def parts(
    movies: MovieLens, folder: Path, n_splits: int
) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Yield random splits, and the five published folds."""
    for number in range(n_splits):
        yield str(number), *split(movies, number)
    pairs = pd.MultiIndex.from_frame(movies.ratings[["user", "item"]])
    for fold in range(1, 6):
        held = pd.read_csv(folder / f"u{fold}.test", sep="\t", header=None)
        tested = pairs.isin(pd.MultiIndex.from_frame(held[[0, 1]]))
        yield f"u{fold}", movies.ratings[~tested], movies.ratings[tested]


def search(movies: MovieLens) -> pd.DataFrame:
    """Measure settings on training ratings of split 0."""
    rows = [
        {"share": share, "clusters": number, "fold": fold, "rmse": -model.score(held)}
        for fold, (train, held) in enumerate(inner_folds(movies, FOLDS))
        for share in SHARES
        for number in CLUSTERS
        for model in [GHRS(number, share=share, random_state=fold).fit(train, features(movies))]
    ]
    return pd.DataFrame(rows)


def measure(movies: MovieLens, folder: Path, n_splits: int) -> pd.DataFrame:
    rows = []
    for number, (name, train, test) in enumerate(parts(movies, folder, n_splits)):
        begin = time.process_time()
        honest, model = fair(movies, train, test, number)
        errors = honest | wrong(movies, train, test, model, number)
        rows += [{"part": name, "row": row, "error": error} for row, error in errors.items()]
        print(name, f"{time.process_time() - begin:.0f} s", errors, flush=True)
        pd.DataFrame(rows).to_csv(RESULTS / "ghrs_evaluation.csv", index=False, float_format="%.6g")
    return pd.DataFrame(rows)


def shown(table: pd.DataFrame, rows: dict[str, str]) -> pd.DataFrame:
    wide = table.pivot(index="part", columns="row", values="error")
    published = wide.index.str.startswith("u")
    cells = []
    for name, what in rows.items():
        error = wide.loc[~published, name]
        spread = error.std(ddof=1) / np.sqrt(len(error))
        cells.append(
            {
                "what": name,
                "error": f"{error.mean():.4f} ± {spread:.4f}",
                f"above {REPORTED}": f"{error.mean() - REPORTED:+.3f}",
                "u1": f"{wide.loc['u1', name]:.3f}",
                "u1 to u5": f"{wide.loc[published, name].mean():.3f}",
                "how": what,
            }
        )
    return pd.DataFrame(cells)


def describe(table: pd.DataFrame, searched: pd.DataFrame) -> str:
    wide = table.pivot(index="part", columns="row", values="error")
    n = int((~wide.index.str.startswith("u")).sum())
    tried = searched.pivot_table(index="share", columns="clusters", values="rmse")
    grid = tried.map("{:.4f}".format).rename(columns="{} clusters".format).reset_index()
    mean = wide[~wide.index.str.startswith("u")].mean()
    movie, shuffled, ghrs = (mean[name] for name in list(FAIR)[:3])
    return page(
        "GHRS on MovieLens 100K",
        f"Reported: {REPORTED}, in five folds. Here: mean over {n} random 90/10 splits, plus or "
        "minus its standard error, and the five published 80/20 folds, the first one by itself. "
        "Errors are root mean squares unless said; predictions are kept between 1 and 5. A "
        "notebook of others (github.com/KondoriFtm/recommendation-system), with rules that differ "
        "a little, has 1.066 on u1.",
        "## Unseen ratings",
        markdown(shown(table, FAIR)),
        f"**Why.** Eight groups cost {shuffled - movie:.4f} if they are random, since the means "
        f"are then of fewer ratings. The groups of GHRS win {shuffled - ghrs:.4f} of that back, "
        f"and end {ghrs - movie:.4f} above the movie's mean over all users. Users differ most in "
        f"how high they rate in general, and only {mean[BETWEEN]:.0%} of the variance of that "
        "offset is between the groups: neither a job nor how central a user is tells it. Groups "
        "made from the ratings themselves do better, but no eight groups of whole users that we "
        "tried come near the offsets.",
        "## What not to do",
        "The groups of GHRS (8 clusters unless said), evaluated in ways that do not tell how well "
        "unseen ratings are predicted. None of this is a result.",
        markdown(shown(table, WRONG)),
        "How the authors evaluated is not known: their program makes the features, from one "
        "training part (ua.base) and not fold by fold, and ends there. Of the root mean squares in "
        "this table, only those of means that have the test ratings in them come down to the "
        "reported error, at about two dozen clusters (24 was added to bracket it, so that it "
        f"agrees proves nothing); with the {ELBOW} of the elbow they are near the error of the "
        "training ratings. Neither test ratings in the graph, nor rounding, nor leaving out what "
        "the group never rated, nor averaging errors in another way explains it.",
        "## Settings",
        f"Mean error over {FOLDS} folds of the training ratings of split 0: the fewer clusters the "
        "better, down to none.",
        markdown(grid),
        "Command: `OMP_NUM_THREADS=1 python experiments/ghrs_evaluation.py --folder ml-100k`",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="of MovieLens 100K")
    parser.add_argument("--splits", type=int, default=20, help="how many")
    options = parser.parse_args()
    movies = load_movielens_100k(options.folder)
    RESULTS.mkdir(exist_ok=True)
    with threadpool_limits(1):
        text = describe(measure(movies, options.folder, options.splits), search(movies))
    (RESULTS / "ghrs_evaluation.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
