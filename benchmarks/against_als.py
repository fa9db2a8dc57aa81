"""HMF on ratings beside the alternating least squares of `implicit` and `cmfrec`.

The ratings are made, with row and column counts that look like MovieLens': a taste that all groups
of items share, a taste of each group's own, offsets and noise.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from measure import peak_memory, race
from report import Bound, Table

from heterofactor import HMF

try:
    import implicit
except ImportError:
    implicit = None
try:
    import cmfrec
except ImportError:
    cmfrec = None

# Entries, users, items: MovieLens-1M, and MovieLens-20M for scale.
SMALL = (1_000_000, 6_040, 3_700)
LARGE = (20_000_000, 138_493, 26_744)
N_GROUPS = 18
# Shared and unique ranks; the others get both together.
RANKS = (20, 5)
# Each the best of five on held-out ratings: 5 to 20 with 10 to 40, and 5 to 30.
RIDGES = (10.0, 20.0)
THEIR_RIDGE = 15.0
# The tastes that are in the data.
TASTES = (8, 2)
NOISE = 0.8
SWEEPS = 10
# A sweep beside the faster one's, memory of 20 million ratings, time in their number.
LIMIT_TO_FASTER = 2.0
LIMIT_OF_MEMORY = 3e9
LIMIT_OF_GROWTH = 1.2

Groups = dict[str, scipy.sparse.csr_array]


@dataclass(frozen=True)
class Ratings:
    """Ratings of users (rows) by items (columns), and the group of each item."""

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    group: np.ndarray
    shape: tuple[int, int]

    def table(self, dtype: type = np.float64) -> scipy.sparse.csr_array:
        """Return one table of all."""
        return scipy.sparse.csr_array(
            (self.values.astype(dtype), (self.users, self.items)), self.shape
        )

    def groups(self, dtype: type = np.float64) -> Groups:
        """Return a table for each group of items."""
        by_item = self.table(dtype).tocsc()
        columns = {f"group {g}": np.flatnonzero(self.group == g) for g in range(N_GROUPS)}
        return {name: by_item[:, at].tocsr() for name, at in columns.items()}

    def part(self, which: np.ndarray) -> Ratings:
        """Return some of the ratings."""
        parts = (array[which] for array in (self.users, self.items, self.values))
        return Ratings(*parts, self.group, self.shape)


def make_ratings(entries: int, n_users: int, n_items: int, seed: int = 0) -> Ratings:
    """Draw who rates what, log-normally busy users and popular items, and what they say."""
    rng = np.random.default_rng(seed)
    busy, popular = (np.cumsum(rng.lognormal(0, s, n)) for s, n in ((1, n_users), (1.5, n_items)))
    pairs = np.zeros(0, np.int64)
    while len(pairs) < entries:
        more = int((entries - len(pairs)) * 1.3) + 1000
        users = np.searchsorted(busy / busy[-1], rng.random(more))
        items = np.searchsorted(popular / popular[-1], rng.random(more))
        pairs = np.unique(np.concatenate([pairs, users * n_items + items]))
    pairs = rng.permutation(pairs)[:entries]
    users, items = (pairs // n_items).astype(np.int32), (pairs % n_items).astype(np.int32)
    sizes = 0.8 ** np.arange(N_GROUPS)
    group = rng.choice(N_GROUPS, n_items, p=sizes / sizes.sum())
    values = 3.5 + 0.4 * rng.standard_normal(n_users)[users]
    values += 0.5 * rng.standard_normal(n_items)[items] + NOISE * rng.standard_normal(entries)
    taste = rng.standard_normal((n_users, TASTES[0])) / TASTES[0] ** 0.5
    appeal = 0.5 * rng.standard_normal((n_items, TASTES[0]))
    for k in range(TASTES[0]):  # column by column: 20 million ratings are large enough
        values += taste[users, k] * appeal[items, k]
    own = rng.standard_normal((n_users, N_GROUPS)) * 0.3
    values += own[users, group[items]] * rng.standard_normal(n_items)[items]
    return Ratings(
        users, items, np.clip(np.round(values * 2) / 2, 0.5, 5), group, (n_users, n_items)
    )


def fit_hmf(tables: Groups, rounds: int, ranks: tuple[int, int] = RANKS) -> HMF:
    model = HMF(
        *ranks,
        shared_axis="samples",
        missing="absent",
        ridge=RIDGES,
        max_rounds=rounds,
        tol=1e-12,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged, and who rated nothing
        return model.fit(tables)


def fit_implicit(table: Any, rounds: int, cg: bool) -> Any:
    model = implicit.als.AlternatingLeastSquares(
        factors=sum(RANKS),
        regularization=THEIR_RIDGE,
        iterations=rounds,
        use_cg=cg,
        dtype=table.dtype,
        num_threads=2,
        random_state=0,
        use_gpu=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its advice about the threads of BLAS
        model.fit(table, show_progress=False)
    return model


def fit_cmfrec(table: Any, rounds: int, cg: bool) -> Any:
    model = cmfrec.CMF(
        k=sum(RANKS),
        lambda_=THEIR_RIDGE,
        method="als",
        use_cg=cg,
        finalize_chol=False,
        niter=rounds,
        nthreads=2,
        use_float=table.dtype == np.float32,
        user_bias=False,
        item_bias=True,
        precompute_for_predictions=False,
        verbose=False,
        random_state=0,
    )
    return model.fit(table)


def sweeps(repeats: int) -> Table:
    """Time a sweep of each over a million ratings."""
    ratings = make_ratings(*SMALL)
    contestants: dict[str, Callable[[int], Any]] = {}
    for dtype in (np.float32, np.float64):
        kind, table = dtype.__name__, ratings.table(dtype)
        contestants[f"HMF{RANKS}, {kind}"] = partial(fit_hmf, ratings.groups(dtype))
        for cg in (True, False):
            how = f"{'conjugate gradients' if cg else 'exact'}, {kind}"
            if implicit is not None:
                old = scipy.sparse.csr_matrix(table)
                contestants[f"implicit, {how}"] = partial(fit_implicit, old, cg=cg)
            if cmfrec is not None:
                contestants[f"cmfrec, {how}"] = partial(fit_cmfrec, table.tocoo(), cg=cg)
    turns = {
        (name, rounds): partial(fit, rounds=rounds)
        for name, fit in contestants.items()
        for rounds in (1, 1 + SWEEPS)
    }
    taken = race(turns, repeats)
    a_sweep = {
        name: (taken[name, 1 + SWEEPS].best - taken[name, 1].best) / SWEEPS for name in contestants
    }
    peers = [seconds for name, seconds in a_sweep.items() if not name.startswith("HMF")]
    rows = []
    for name, seconds in a_sweep.items():
        ours = name.startswith("HMF")
        ratio = Bound(seconds / min(peers), LIMIT_TO_FASTER) if ours and peers else None
        rows.append({"what": name, "ms a sweep": 1000 * seconds, "times the fastest": ratio})
    return Table(
        "sweeps",
        "A sweep over a million ratings",
        f"{SMALL[1]:,} users, {SMALL[2]:,} items in {N_GROUPS} groups of unequal size; total "
        f"rank {sum(RANKS)}; two threads. Milliseconds: the best of fits of {1 + SWEEPS} sweeps "
        "less the best of fits of one. HMF's sweep is exact, for all groups' bases together, its "
        "value is computed, and sweeps are mixed; `implicit` solves another problem (every pair "
        "counts), and conjugate gradients are three steps towards a half's answer.",
        rows,
    )


def error(repeats: int) -> Table:
    """Time all to the same error of held-out ratings."""
    ratings = make_ratings(*SMALL)
    held = np.random.default_rng(1).random(len(ratings.values)) < 0.1
    train, test = ratings.part(~held), ratings.part(held)
    groups, table = train.groups(), train.table().tocoo()
    rows: list[dict[str, Any]] = []
    target = np.inf
    if cmfrec is not None:
        for cg in (True, False):
            how = "conjugate gradients" if cg else "exact"
            model = fit_cmfrec(table, 10, cg)
            predicted = model.predict(user=test.users, item=test.items)
            target = min(target, _rmse(predicted, test.values))
            seconds = race({how: partial(fit_cmfrec, table, 10, cg)}, repeats)[how].seconds
            found = _rmse(predicted, test.values)
            rows.append(
                {"what": f"cmfrec, {how}", "sweeps": 10, "seconds": seconds, "held-out RMSE": found}
            )
    for rounds in range(1, 40):
        found = _rmse(_predicted(fit_hmf(groups, rounds), test), test.values)
        if found <= target:
            break
    for number in sorted({rounds, 40}):
        seconds = race({"HMF": partial(fit_hmf, groups, number)}, repeats)["HMF"].seconds
        found = _rmse(_predicted(fit_hmf(groups, number), test), test.values)
        rows.append(
            {"what": f"HMF{RANKS}", "sweeps": number, "seconds": seconds, "held-out RMSE": found}
        )
    return Table(
        "error",
        "To the same error of held-out ratings",
        "A tenth of the million ratings is held out. Whole fits, start and all, until HMF is as "
        "good as the better fit of `cmfrec` (whose default is ten sweeps), and for 40 sweeps; "
        f"ridges {RIDGES[0]:g} and {RIDGES[1]:g}, and {THEIR_RIDGE:g}, the best of five each. The "
        f"noise alone has a standard deviation of {NOISE:g}.",
        rows,
    )


def growth(repeats: int) -> Table:
    """Time sweeps of more entries, and of other ranks; measure the memory of the most."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        per_entry = {}
        for name, size in (("1M", SMALL), ("20M", LARGE)):
            tables = make_ratings(*size).groups(np.float32)
            for place, part in enumerate(tables.values()):
                scipy.sparse.save_npz(Path(folder, f"{name}{place}.npz"), part, compressed=False)
            more = 1 + (SWEEPS if name == "1M" else 3)
            turns = {k: partial(fit_hmf, tables, k) for k in (1, more)}
            taken = race(turns, repeats if name == "1M" else 1)
            seconds = (taken[more].best - taken[1].best) / (more - 1)
            per_entry[name] = seconds / size[0]
            del tables, turns
            load = partial(_load, folder, name)
            peak = peak_memory(load, partial(_warm_up, folder), partial(fit_hmf, rounds=3))
            stored = sum(Path(folder, f"{name}{k}.npz").stat().st_size for k in range(N_GROUPS))
            rows.append(
                {
                    "entries, users, items": ", ".join(f"{n:,}" for n in size),
                    "ranks": f"{RANKS[0]} + {RANKS[1]}",
                    "seconds a sweep": seconds,
                    "ns an entry": 1e9 * per_entry[name],
                    "times that of 1M": None
                    if name == "1M"
                    else Bound(per_entry[name] / per_entry["1M"], LIMIT_OF_GROWTH),
                    "data (GB)": stored / 1e9,
                    "peak, data included (GB)": Bound((peak + stored) / 1e9, LIMIT_OF_MEMORY / 1e9),
                }
            )
    tables = make_ratings(*SMALL).groups(np.float32)
    for ranks in ((5, 2), (10, 3), (40, 5)):
        turns = {k: partial(fit_hmf, tables, k, ranks) for k in (1, 1 + SWEEPS)}
        taken = race(turns, repeats)
        seconds = (taken[1 + SWEEPS].best - taken[1].best) / SWEEPS
        rows.append(
            {
                "entries, users, items": ", ".join(f"{n:,}" for n in SMALL),
                "ranks": f"{ranks[0]} + {ranks[1]}",
                "seconds a sweep": seconds,
                "ns an entry": 1e9 * seconds / SMALL[0],
            }
        )
    return Table(
        "growth",
        "With more entries, and with other ranks",
        "Single precision. The peak is that of a fresh process during a fit, less what it held "
        "before the data were there.",
        rows,
    )


def _predicted(model: HMF, test: Ratings) -> np.ndarray:
    """Predict held-out ratings from the factors."""
    predicted = np.empty(len(test.values))
    place = np.empty(test.shape[1], dtype=int)
    for g in range(N_GROUPS):
        columns = np.flatnonzero(test.group == g)
        place[columns] = np.arange(len(columns))
    factors = model.factors_
    for g, name in enumerate(factors.names):
        at = np.flatnonzero(test.group[test.items] == g)
        users, items = test.users[at], place[test.items[at]]
        shared = factors.shared_basis[users] * factors.shared_scores[name][items]
        unique = factors.unique_bases[name][users] * factors.unique_scores[name][items]
        predicted[at] = shared.sum(axis=1) + unique.sum(axis=1) + model.centres_[name][items]
    return predicted


def _rmse(predicted: np.ndarray, values: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - values) ** 2)))


def _load(folder: str, name: str) -> Groups:
    files = [Path(folder, f"{name}{k}.npz") for k in range(N_GROUPS)]
    return {f"group {k}": scipy.sparse.load_npz(file) for k, file in enumerate(files)}


def _warm_up(folder: str) -> None:
    fit_hmf(_load(folder, "1M"), 2)
