"""Models of ratings fitted to parts of MovieLens 100K, each once: what they expect is kept.

The files lie in ``experiments/cache`` and are no part of the repository. A fit is found again by
its part, its settings and its seed, not by the library's code: remove the folder when that changes.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from movielens import side_information
from parts import number_of, part

from heterofactor import RatingModel
from heterofactor.datasets import MovieLens
from heterofactor.ratings.completion import MatrixCompletion
from heterofactor.ratings.face import RatingFace

CACHE = Path(__file__).parent / "cache"
LEVEL = 0.9
# Parts of which the whole table of users and items is kept, for rankings.
TABLES = tuple(f"split{number}" for number in range(5))
Tables = dict[str, Any]
Make = Callable[[MovieLens, int], tuple[RatingFace, Tables]]


@dataclass(frozen=True, eq=False)
class Fit:
    """What is expected of the pairs of a part, not kept within the scale, and what it took."""

    train: np.ndarray
    test: np.ndarray
    table: np.ndarray  # empty where it was not asked for
    seconds: float
    coverage: float  # of the intervals; NaN where there are none

    @classmethod
    def read(cls, path: Path) -> Self:
        with np.load(path) as found:
            arrays = {field.name: found[field.name] for field in fields(cls)}
        numbers = {name: float(arrays[name]) for name in ("seconds", "coverage")}
        return cls(**arrays | numbers)


def side(movies: MovieLens) -> Tables:
    users, items = side_information(movies)
    return {"item_features": items, "user_features": users}


def completion(*ranks: int, grouped: bool = False, **settings: Any) -> Make:
    return lambda movies, seed: (
        MatrixCompletion(*ranks, random_state=seed, **settings),
        {"item_groups": movies.item_flags} if grouped else {},
    )


def tastes(*ranks: int, groups: str | None = None, features: bool = False, **settings: Any) -> Make:
    def make(movies: MovieLens, seed: int) -> tuple[RatingFace, Tables]:
        tables = {"item_groups": GROUPS[groups](movies, seed)} if groups else {}
        model = RatingModel(*ranks, random_state=seed, **settings)
        return model, tables | (side(movies) if features else {})

    return make


def genres(movies: MovieLens, seed: int) -> pd.DataFrame:
    return movies.item_flags


def others_genres(movies: MovieLens, seed: int) -> pd.DataFrame:
    """Give every movie the genres of another."""
    flags = movies.item_flags
    order = np.random.RandomState(seed).permutation(len(flags))
    return flags.iloc[order].set_index(flags.index)


GROUPS: dict[str, Callable[[MovieLens, int], pd.DataFrame]] = {
    "genres": genres,
    "random": others_genres,
}


def sparse_fc(movies: MovieLens, seed: int) -> tuple[RatingFace, Tables]:
    from heterofactor.ratings.sparsefc import SparseFC

    return SparseFC(random_state=seed), {}


def hae(groups: str | None) -> Make:
    def make(movies: MovieLens, seed: int) -> tuple[RatingFace, Tables]:
        from heterofactor.ratings.hae_ratings import RatingHAE

        tables = {"item_groups": GROUPS[groups](movies, seed)} if groups else {}
        return RatingHAE(random_state=seed), tables

    return make


def auto_svd(**settings: Any) -> Make:
    def make(movies: MovieLens, seed: int) -> tuple[RatingFace, Tables]:
        from heterofactor.ratings.autosvd import AutoSVD

        model = AutoSVD(random_state=seed, **settings)
        return model, {"item_features": side(movies)["item_features"]}

    return make


def ghrs(movies: MovieLens, seed: int) -> tuple[RatingFace, Tables]:
    from heterofactor.ratings.ghrs import GHRS

    # as many clusters as the authors found by their elbow
    return GHRS(8, random_state=seed), {"user_features": side(movies)["user_features"]}


def graph_rec(movies: MovieLens, seed: int) -> tuple[RatingFace, Tables]:
    from heterofactor.ratings.graphrec import GraphRec

    return GraphRec(random_state=seed), side(movies)


def gibbs(n_shared: int = 10) -> Make:
    return tastes(n_shared, 2, groups="genres", features=True, solver="gibbs")


# As the paper ran the first ones, but for ranks and stopping, which it does not state.
MODELS: dict[str, Make] = {
    "pooled 2": completion(2, max_rounds=200),
    "pooled 4": completion(4, max_rounds=200),
    "pooled 5": completion(5, max_rounds=200),
    "pooled 5, Algorithm 1": completion(5, solver="averaging", max_rounds=1000),
    "pooled 6, Algorithm 1": completion(6, solver="averaging", max_rounds=1000),
    "HMF 1 + 1": completion(1, 1, grouped=True, max_rounds=50),
    "HMF 1 + 1, Algorithm 1": completion(1, 1, grouped=True, solver="averaging", max_rounds=1000),
    "HMF 2 + 1, Algorithm 1": completion(2, 1, grouped=True, solver="averaging", max_rounds=1000),
    "offsets": tastes(0, 0, n_fits=1, n_rounds=15),
    "als, shared": tastes(),
    "als, random": tastes(groups="random"),
    "als": tastes(groups="genres"),
    "gibbs, ratings alone": tastes(groups="genres", solver="gibbs", implicit=False),
    "gibbs": gibbs(),
    "gibbs 20": gibbs(20),
    "gibbs 32": gibbs(32),
    "SparseFC": sparse_fc,
    "HAE": hae("genres"),
    "HAE, random": hae("random"),
    "HAE, one group": hae(None),
    "AutoSVD": auto_svd(
        implicit=False, learning_rate=0.01, max_rounds=40, ridge=0.1, ridge_offsets=0.1
    ),
    "AutoSVD++": auto_svd(),
    "GHRS": ghrs,
    "GraphRec": graph_rec,
}


def fitted(
    movies: MovieLens, folder: str | Path | None, name: str, part_name: str, more: int = 0
) -> Fit:
    """Return a fit of a model to a part, from its file if there is one.

    The seed is the number of the part, and `more`.
    """
    seed = number_of(part_name) + more
    model, tables = MODELS[name](movies, seed)
    path = CACHE / f"{part_name}, {name}, {seed}, {settings_of(model)}.npz"
    if path.exists():
        return Fit.read(path)
    train, test = part(movies, part_name, folder)
    begin = time.process_time()
    with warnings.catch_warnings():
        # the raw fits say that they were stopped, and that some users rated nothing in a group
        warnings.simplefilter("ignore" if isinstance(model, MatrixCompletion) else "default")
        model.fit(train, **tables)
    taken = time.process_time() - begin
    coverage = np.nan
    if isinstance(model, RatingModel) and model.solver == "gibbs":
        bounds = model.predict_interval(test, LEVEL)
        coverage = float(test["rating"].between(bounds["lower"], bounds["upper"]).mean())
    model.set_params(clip=False) if "clip" in model.get_params() else setattr(model, "clip", False)
    table = pd.DataFrame()
    if part_name in TABLES:  # some models know users and items beside those that were rated
        rated = np.unique(train["user"]), np.unique(train["item"])
        table = model.predict_table(rated[0])[rated[1]].astype(np.float32)
    expected = model.predict(train), model.predict(test)
    found = Fit(*expected, table.to_numpy(), taken, coverage)
    CACHE.mkdir(exist_ok=True)
    with open(path, "wb") as file:
        np.savez(file, **{field.name: getattr(found, field.name) for field in fields(found)})
    return found


def settings_of(model: RatingFace) -> str:
    """Return a short name for the settings of a model, of which no two have the same."""
    what = f"{type(model).__name__} {sorted(model.get_params().items(), key=str)}"
    return hashlib.sha256(what.encode()).hexdigest()[:8]
