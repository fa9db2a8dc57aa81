"""RatingModel beside other packages that predict ratings; writes ``results/recommenders.md``.

``python benchmarks/recommenders.py --help`` lists the options. Packages that cannot live in one
environment are run with a Python of their own: ``--python surprise /path/to/python``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from measure import THREAD_SETTINGS, describe_machine
from report import Bound, Table, write

from heterofactor.datasets import load_movielens_100k, make_ratings

HERE = Path(__file__).parent
# Users, items, ratings: the shape of MovieLens 1M.
SHAPE = (6_040, 3_706, 1_000_000)
MOVIELENS, MADE = "MovieLens 100K", "a million made ratings"
# als beside Surprise's SVD, on a million ratings; CPU seconds of als on MovieLens 100K.
FASTER, QUICK = 20.0, 1.0
# A load of more than the two threads of the job before is that of others.
QUIET = 2.5
# Seconds of fits of which the best counts, where the least work is looked for.
STEP = 0.5
# Slow enough to be timed once, and with one thread only.
SLOW = ("surprise SVDpp", "RatingModel gibbs, ratings alone", "RatingModel gibbs")


@dataclass(frozen=True)
class Job:
    """What is fitted, to which data, and how."""

    name: str
    package: str
    settings: dict[str, Any] = field(default_factory=dict)
    data: str = ""
    threads: int = 1
    seconds: float = 0.0
    without: list[str] = field(default_factory=list)
    fresh: bool = False  # nothing compiled before


ALONE, GROUPS = {"groups": False}, {"groups": True}
OURS = [
    Job("RatingModel als, ratings alone", "heterofactor", ALONE),
    Job("RatingModel als", "heterofactor", GROUPS),
    Job("RatingModel als, one fit", "heterofactor", GROUPS | {"n_fits": 1}),
    Job(
        "RatingModel gibbs, ratings alone",
        "heterofactor",
        ALONE | {"solver": "gibbs", "implicit": False},
    ),
    Job("RatingModel gibbs", "heterofactor", GROUPS | {"solver": "gibbs"}),
]
PEERS = [
    Job("surprise BaselineOnly", "surprise", {"algorithm": "BaselineOnly"}),
    Job("surprise SVD", "surprise", {"algorithm": "SVD"}),
    Job("surprise SVDpp", "surprise", {"algorithm": "SVDpp"}),
    Job("cmfrec CMF", "cmfrec"),
    Job("lenskit BiasedMFScorer", "lenskit"),
]
# Tried on a tenth of the training ratings; the best ones are rows of their own.
GRIDS: dict[str, list[dict[str, Any]]] = {
    "surprise SVD": [{"reg_all": ridge, "lr_all": 0.01} for ridge in (0.05, 0.1)],
    "cmfrec CMF": [{"k": k, "lambda_": ridge} for k in (20, 40) for ridge in (5.0, 10.0)],
    "lenskit BiasedMFScorer": [
        {"embedding_size": k, "regularization": ridge} for k in (25, 50) for ridge in (0.03, 0.1)
    ],
}
# The work that leads to less and less error, up to what the defaults do: of each, the least that is
# enough is timed.
ALS_LADDER = [
    {"n_fits": fits, "n_rounds": rounds}
    for fits, rounds in ((1, 3), (1, 5), (2, 5), (4, 5), (8, 5))
]
LADDERS: dict[str, list[dict[str, Any]]] = {
    "RatingModel als": ALS_LADDER,
    "RatingModel als, ratings alone": ALS_LADDER,
    "RatingModel gibbs, ratings alone": [{"n_rounds": number} for number in (20, 40, 80, 150)],
    "surprise SVD": [{"n_epochs": number} for number in (5, 10)],
    "cmfrec CMF": [{"niter": number} for number in (1, 3, 5)],
    "lenskit BiasedMFScorer": [{"epochs": number} for number in (1, 3, 5)],
}


class Bench:
    """Runs jobs, each in a process of its own, and remembers what they gave.

    Parameters
    ----------
    pythons : dict
        The interpreter of a package that is not installed beside this one.
    remembered : Path
        Of what was measured before, a line for each job.
    idle : bool
        Run nothing: only what is remembered is there.
    """

    def __init__(self, pythons: dict[str, str], remembered: Path, idle: bool = False) -> None:
        self.pythons, self.remembered, self.idle = pythons, remembered, idle
        self.missing: set[str] = set()
        self.answers: dict[str, dict[str, Any]] = {}

    def run(self, job: Job) -> dict[str, Any] | None:
        """Return what a job took; None if its package is missing, or it was not measured."""
        if job.package in self.missing:
            return None
        key = json.dumps(asdict(replace(job, name="", data=Path(job.data).name)), sort_keys=True)
        if key not in self.answers:
            self._remember()
        if key not in self.answers and self.idle:
            return None
        if key not in self.answers:
            load = os.getloadavg()[0]
            answer = self._measured(job)
            if answer is None:
                self.missing.add(job.package)
                print(f"{job.package} is not installed: skipped", flush=True)
                return None
            answer["load"] = load
            print(job.name, job.settings, job.threads, answer, flush=True)
            with self.remembered.open("a") as file:
                file.write(json.dumps({"job": key, "answer": answer}) + "\n")
            self._remember()
        return self.answers[key]

    def _remember(self) -> None:
        lines = self.remembered.read_text().splitlines() if self.remembered.exists() else []
        self.answers = {line["job"]: line["answer"] for line in map(json.loads, lines)}

    def _measured(self, job: Job) -> dict[str, Any] | None:
        python = self.pythons.get(job.package, sys.executable)
        names = (*THREAD_SETTINGS, "LK_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, str(job.threads))
        installed = [python, "-c", f"import {job.package}"]
        if subprocess.run(installed, env=environment, capture_output=True).returncode:
            return None
        given = asdict(job)
        fresh = given.pop("fresh")
        given.pop("name")
        program = [python, "-c", "from recommender_peers import main; main()", json.dumps(given)]
        with tempfile.TemporaryDirectory() as folder:
            if fresh:
                environment["NUMBA_CACHE_DIR"] = folder
            done = subprocess.run(
                program, env=environment, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True
            )
        return dict(json.loads(done.stdout.splitlines()[-1]))


def packages(bench: Bench, data: str, train: str, which: str, seconds: float) -> Table:
    """Fit every package as it comes, and as it does best on a tenth of the training ratings."""
    rows = []
    svd = bench.run(_timed(PEERS[1], data, seconds))
    # left out of a million: "implicit" compares all users with each other in every sweep
    ours = OURS if which == MOVIELENS else OURS[:-1]
    for job in [*ours, *PEERS, *chosen(bench, train)]:
        job = _timed(job, data, seconds)
        one = bench.run(job)
        if one is None:
            continue
        threaded = job.package != "surprise" and job.name not in SLOW
        two = bench.run(replace(job, threads=2)) if threaded else None
        ratio: Any = None if svd is None else svd["cpu"] / one["cpu"]
        cpu: Any = one["cpu"]
        promised = job.name in ("RatingModel als", "RatingModel als, one fit") and which == MADE
        if promised and ratio is not None:
            ratio = Bound(ratio, at_least=FASTER)
        if job.name == "RatingModel als" and which == MOVIELENS:
            cpu = Bound(cpu, QUICK)
        rows.append(
            {
                "what": job.name,
                "version": one["version"],
                "test RMSE": f"{one['rmse']:.4f}",
                "CPU s": cpu,
                "wall s": _wall(one),
                "wall s, two threads": None if two is None else _wall(two),
                "peak MB": one["bytes"] / 1e6,
                "times as fast as SVD": ratio,
            }
        )
    return Table(
        "packages, " + which,
        f"Every package, {which}",
        "Each fit in a fresh process, after a fit to 2,000 ratings that is not counted; from a "
        "table of ratings to a model; the best of some seconds' worth of fits. One thread unless "
        "said. Where others were at work on the machine no wall time is given, and CPU seconds may "
        "be up to a third more than in quiet. The peak is what the first fit needs at most beyond "
        "the table. Settings are the packages' own unless a row names them: those are the best of "
        "some on a held-out tenth of the training ratings. RatingModel has the groups of items, "
        "except where it says `ratings alone`. `implicit` is left out: it models who rates what, "
        "not how.",
        rows,
    )


def chosen(bench: Bench, train: str) -> Iterable[Job]:
    """Return each peer with its best settings, by a held-out tenth of the training ratings."""
    for peer in PEERS:
        found = []
        for settings in GRIDS.get(peer.name, []):
            job = replace(peer, settings=peer.settings | settings, data=train)
            if (answer := bench.run(job)) is not None:
                found.append((answer["rmse"], len(found), settings, job))
        if found and len(found) == len(GRIDS[peer.name]):
            _, _, settings, job = min(found)
            words = ", ".join(f"{name}={value}" for name, value in settings.items())
            yield replace(job, name=f"{peer.name}, {words}")


def _wall(answer: dict[str, Any]) -> float | None:
    """Return wall time, unless others were at work on the machine."""
    return answer["wall"] if answer["load"] <= QUIET else None


def _timed(job: Job, data: str, seconds: float) -> Job:
    return replace(job, data=data, seconds=0.0 if job.name in SLOW else seconds)


def same_error(bench: Bench, data: str, which: str, seconds: float) -> Table:
    """Find for each package the least work to the error of the slowest peer, and time it."""
    peers = [(job, bench.run(_timed(job, data, seconds))) for job in PEERS]
    taken = [(answer["cpu"], job, answer) for job, answer in peers if answer is not None]
    rows = []
    if taken:
        _, slowest, target = max(taken, key=lambda one: one[0])
        rows.append(_row(slowest.name, {}, target, target))
        for job in [*OURS, *PEERS]:
            if (ladder := LADDERS.get(job.name)) is None:
                continue
            for work in [*ladder, {}]:
                step = replace(job, settings=job.settings | work, data=data, seconds=STEP)
                answer = bench.run(step if work else _timed(job, data, seconds))
                if answer is None or answer["rmse"] <= target["rmse"]:
                    break
            if answer is not None:
                rows.append(_row(job.name, work, answer, target))
    return Table(
        "same error, " + which,
        f"To the error of the slowest peer, {which}",
        "The least work of a few steps that reaches that error, where there is one; one thread. "
        "What has no row was not measured to the end.",
        rows,
    )


def _row(
    name: str, work: dict[str, Any], answer: dict[str, Any], target: dict[str, Any]
) -> dict[str, Any]:
    reached = answer["rmse"] <= target["rmse"]
    return {
        "what": name,
        "work": ", ".join(f"{key}={value}" for key, value in work.items()) or "as it comes",
        "test RMSE": f"{answer['rmse']:.4f}",
        "CPU s": answer["cpu"] if reached else f"not reached in {answer['cpu']:.3g}",
        "times as fast": target["cpu"] / answer["cpu"] if reached else None,
    }


def compiled(bench: Bench, data: str, which: str, seconds: float) -> Table:
    """Fit with and without compiled loops, and time the compilation."""
    rows = []
    # in plain NumPy, one fit to a million ratings is enough to wait for
    for job in OURS[1:3] if which == MOVIELENS else OURS[2:3]:
        answer = bench.run(_timed(job, data, seconds))
        plain = bench.run(replace(job, data=data, without=["numba"]))
        first = bench.run(replace(job, data=data, fresh=True))
        if answer is None or plain is None or first is None:
            continue
        rows.append(
            {
                "what": job.name,
                "CPU s": answer["cpu"],
                "CPU s without numba": plain["cpu"],
                "wall s, first fit ever (2,000 ratings)": first["first"],
                "wall s, first fit of a process (2,000 ratings)": answer["first"],
            }
        )
    return Table(
        "compiled, " + which,
        f"With and without numba, {which}",
        "The very first fit compiles the loops, which are then kept on disk.",
        rows,
    )


def write_movielens(folder: Path | None, path: Path) -> None:
    """Store split 0 of the experiments."""
    movies = load_movielens_100k(folder)
    order = np.random.RandomState(0).permutation(len(movies.ratings))
    test = np.zeros(len(order), dtype=bool)
    test[order[:10_000]] = True
    columns = {name: movies.ratings[name].to_numpy() for name in ("user", "item", "rating")}
    columns["item"] = columns["item"] - 1  # rows of the flags
    _store(path, columns, test, flags=movies.item_flags.to_numpy(dtype=float))


def write_made(path: Path) -> None:
    """Store made ratings, a tenth of them for the test."""
    n_users, n_items, n_ratings = SHAPE
    made = make_ratings(n_users, n_items, n_ratings=n_ratings, random_state=0)
    columns = {
        "user": made.user_offsets.index.get_indexer(made.ratings["user"]),
        "item": made.item_offsets.index.get_indexer(made.ratings["item"]),
        "rating": made.ratings["rating"].to_numpy(),
    }
    test = np.random.default_rng(1).random(n_ratings) < 0.1
    _store(path, columns, test, groups=made.item_groups.to_numpy(dtype=str))


def _store(path: Path, columns: dict[str, np.ndarray], test: np.ndarray, **beside: Any) -> None:
    """Store all for the measurement, and of the training ratings a tenth as test for choices."""
    train = {name: column[~test] for name, column in columns.items()}
    np.savez(path, **train, **_named({k: v[test] for k, v in columns.items()}), **beside)
    held = np.random.default_rng(2).random(len(train["rating"])) < 0.1
    parts = {k: v[~held] for k, v in train.items()}
    inner = path.with_name(f"inner_{path.name}")
    np.savez(inner, **parts, **_named({k: v[held] for k, v in train.items()}), **beside)


def _named(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"test_{name}": column for name, column in columns.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="of MovieLens 100K, which is skipped without")
    parser.add_argument("--only", choices=["movielens", "made"], help="one of the data")
    parser.add_argument("--seconds", type=float, default=5, help="of fits that are timed together")
    parser.add_argument("--python", nargs=2, action="append", metavar=("PACKAGE", "PYTHON"))
    parser.add_argument("--remember", type=Path, help="a file of jobs that need not run again")
    parser.add_argument("--idle", action="store_true", help="run nothing: write what is remembered")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()

    machine, tables = describe_machine(), []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        remembered = options.remember or folder / "remembered"
        bench = Bench(dict(options.python or []), remembered, options.idle)
        makers = {}
        if options.only != "made" and options.folder is not None:
            makers[MOVIELENS] = lambda path: write_movielens(options.folder, path)
        if options.only != "movielens":
            makers[MADE] = write_made
        for which, make in makers.items():
            start = time.perf_counter()
            data = folder / f"{which.replace(' ', '_')}.npz"
            make(data)
            train = str(data.with_name(f"inner_{data.name}"))
            how = which, options.seconds
            for table in (
                packages(bench, str(data), train, *how),
                same_error(bench, str(data), *how),
                compiled(bench, str(data), *how),
            ):
                if table.rows:
                    print(table.markdown(), flush=True)
                    tables.append(table)
            print(f"({which}: {time.perf_counter() - start:.0f} s)\n", flush=True)
    if options.folder is None:
        print("MovieLens 100K is skipped: say with --folder where it is")
    write(options.output, "recommenders", "Recommenders", machine, tables)


if __name__ == "__main__":
    main()
