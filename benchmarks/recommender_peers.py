"""One recommender fitted in a process of its own: its error, its time, its memory.

`recommenders.py` starts these processes, each in the environment that has the package, so that
nothing but NumPy, pandas and the package itself is imported here. A fit is all that leads from a
table of ratings to a model.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from memory import resident

# Ratings of the first fit, which is not counted: it loads and compiles what is needed.
FEW = 2_000
LEAST, MOST = 1.0, 5.0

Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]


def main() -> None:
    """Do the job that the command line describes, and write what it took as JSON."""
    print(json.dumps(measured(**json.loads(sys.argv[1]))))


def measured(
    package: str,
    data: str,
    settings: dict[str, Any],
    threads: int,
    seconds: float,
    without: list[str],
) -> dict[str, Any]:
    """Fit once, and again until so many seconds are spent; the best fit counts."""
    sys.modules.update(dict.fromkeys(without))  # importing them fails
    fit = FITS[package]
    with np.load(data, allow_pickle=False) as file:
        arrays = dict(file)
    table = pd.DataFrame({name: arrays[name] for name in ("user", "item", "rating")})
    beside = {name: arrays[name] for name in ("groups", "flags") if name in arrays}
    few = table.sample(FEW, random_state=0)
    begin = time.perf_counter()
    fit(few.copy(), beside, threads, settings)
    first = time.perf_counter() - begin
    before = resident("VmRSS")
    taken: list[tuple[float, float]] = []
    while not taken or sum(wall for _, wall in taken) < seconds:
        cpu, wall = time.process_time(), time.perf_counter()
        predict = fit(table.copy(), beside, threads, settings)
        taken.append((time.process_time() - cpu, time.perf_counter() - wall))
        if len(taken) == 1:
            memory = resident("VmHWM") - before
    predicted = np.clip(predict(arrays["test_user"], arrays["test_item"]), LEAST, MOST)
    return {
        "version": version(DISTRIBUTIONS.get(package, package)),
        "rmse": float(np.sqrt(np.mean((predicted - arrays["test_rating"]) ** 2))),
        "cpu": min(cpu for cpu, _ in taken),
        "wall": min(wall for _, wall in taken),
        "fits": len(taken),
        "bytes": memory,
        "first": first,
    }


def fit_ours(
    table: pd.DataFrame, beside: dict[str, np.ndarray], threads: int, settings: dict[str, Any]
) -> Predict:
    from heterofactor import RatingModel

    settings, groups = dict(settings), None
    if settings.pop("groups"):
        groups = (
            pd.Series(beside["groups"]) if "groups" in beside else pd.DataFrame(beside["flags"])
        )
    model = RatingModel(random_state=0, **settings).fit(table, item_groups=groups)
    return lambda user, item: model.predict(pd.DataFrame({"user": user, "item": item}))


def fit_surprise(
    table: pd.DataFrame, beside: dict[str, np.ndarray], threads: int, settings: dict[str, Any]
) -> Predict:
    import surprise

    settings = dict(settings)
    kind = getattr(surprise, settings.pop("algorithm"))
    reader = surprise.Reader(rating_scale=(LEAST, MOST))
    ratings = surprise.Dataset.load_from_df(table[["user", "item", "rating"]], reader)
    seeded = {} if kind is surprise.BaselineOnly else {"random_state": 0}
    model = kind(verbose=False, **seeded, **settings).fit(ratings.build_full_trainset())
    return lambda user, item: np.array(
        [model.predict(u, i).est for u, i in zip(user, item, strict=True)]
    )


def fit_cmfrec(
    table: pd.DataFrame, beside: dict[str, np.ndarray], threads: int, settings: dict[str, Any]
) -> Predict:
    import cmfrec

    model = cmfrec.CMF(nthreads=threads, verbose=False, random_state=0, **settings)
    model.fit(table.set_axis(["UserId", "ItemId", "Rating"], axis=1))
    return lambda user, item: np.nan_to_num(model.predict(user, item), nan=model.glob_mean_)


def fit_lenskit(
    table: pd.DataFrame, beside: dict[str, np.ndarray], threads: int, settings: dict[str, Any]
) -> Predict:
    from lenskit.als import BiasedMFScorer
    from lenskit.data import from_interactions_df
    from lenskit.training import TrainingOptions

    ratings = from_interactions_df(table, user_col="user", item_col="item", rating_col="rating")
    model = BiasedMFScorer(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its advice about threads
        model.train(ratings, TrainingOptions(rng=0))

    def predict(user: np.ndarray, item: np.ndarray) -> np.ndarray:
        u = model.users.numbers(user, missing="negative")
        i = model.items.numbers(item, missing="negative")
        bias, known = model.bias, (u >= 0) & (i >= 0)
        taste = np.einsum("nk,nk->n", model.user_embeddings[u], model.item_embeddings[i])
        by_user, by_item = (
            np.where(at >= 0, offsets[at], 0)
            for at, offsets in ((u, bias.user_biases), (i, bias.item_biases))
        )
        return bias.global_bias + by_user + by_item + np.where(known, taste, 0)

    return predict


FITS = {
    "heterofactor": fit_ours,
    "surprise": fit_surprise,
    "cmfrec": fit_cmfrec,
    "lenskit": fit_lenskit,
}
# Whose name in the index is another.
DISTRIBUTIONS = {"surprise": "scikit-surprise"}
