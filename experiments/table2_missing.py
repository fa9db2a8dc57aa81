"""The paper's table of recovery with missing entries, and harder cases.

    OMP_NUM_THREADS=1 python experiments/table2_missing.py [--seeds 3] [--published PATH]

The paper's synthetic data without noise (sources of 120 features and 100 samples, ranks 3 + 3),
from which entries are taken away at random. With a copy of github.com/UMDataScienceLab/hmf, and
torch, the published program is timed as well. Writes ``results/table2_missing.csv`` and ``.md``.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from record import RESULTS, markdown, page
from threadpoolctl import threadpool_limits

from heterofactor import HMF
from heterofactor.datasets import HeterogeneousData, make_heterogeneous
from heterofactor.engines import Serial
from heterofactor.linalg import complement, orthonormal
from heterofactor.losses import Squared
from heterofactor.masked import Masked
from heterofactor.metrics import subspace_error
from heterofactor.rounds import State, run
from heterofactor.solvers import Averaging
from heterofactor.start import random_start

RANK = 3
PAPER = {0.5: 4.5e-2, 0.1: 2.0e-6, 0.05: 7.3e-7, 0.01: 3.4e-8}
TOL, MAX_ROUNDS = 1e-13, 1000
HARD_SEEDS = 10
# What the times are for: an error that is nearly exact, and one that Algorithm 1 is stopped at.
NEAR, FAR = 1e-12, 1e-5
# Fixed steps of Algorithm 1, in the units of the data; longer ones diverge.
STEPS = (0.005, 0.01, 0.02, 0.03, 0.04)
GIVEN_UP = 5000
# Steps of the published program, 0.01 being its own; its epochs at most.
PUBLISHED_STEPS = (0.01, 0.1, 0.3)
EPOCHS = 6000


class Case(NamedTuple):
    """A row of the table; `floor` is the error that no seed (but one in ten, if hard) exceeds."""

    missing: float
    spread: float
    n_sources: int
    floor: float
    hard: bool = False

    @property
    def name(self) -> str:
        spread = "" if self.spread == 1 else f", strengths spread {self.spread:g}x"
        return f"{100 * self.missing:g} %{spread}"


CASES = (
    [Case(missing, 1.0, n, 1e-20) for n in (10, 100) for missing in PAPER]
    + [Case(0.7, 1.0, 10, 1e-16), Case(0.8, 1.0, 10, 1e-16), Case(0.5, 10.0, 10, 1e-16)]
    + [Case(0.7, 10.0, 10, 1e-12, hard=True)]
)


def make(
    case: Case, seed: int, scores: Literal["gaussian", "orthonormal"] = "gaussian"
) -> tuple[HeterogeneousData, dict[str, Any]]:
    """Make the data, and the tables with NaN where nothing was observed."""
    data = make_heterogeneous(case.n_sources, spread=case.spread, scores=scores, random_state=seed)
    rng = np.random.default_rng([seed, 1])  # the generator's own stream made the parts
    return data, {
        name: np.where(rng.random(table.shape) < case.missing, np.nan, table)
        for name, table in data.sources.items()
    }


def total_error(shared: Any, unique: dict[str, Any], data: HeterogeneousData) -> float:
    """Add the squared subspace errors: of the shared one, and the mean of the unique ones."""
    own = [subspace_error(basis, data.unique_bases[name]) for name, basis in unique.items()]
    return subspace_error(shared, data.shared_basis) + float(np.mean(own))


def fit(case: Case, seed: int, tol: float = TOL) -> dict[str, Any]:
    data, tables = make(case, seed)
    begin = time.process_time()
    model = HMF(RANK, RANK, centre=None, tol=tol, max_rounds=MAX_ROUNDS, random_state=0)
    model.fit(tables)
    seconds = time.process_time() - begin
    unique = {name: part.T for name, part in model.unique_components_.items()}
    return {
        "missing": case.missing,
        "spread": case.spread,
        "n_sources": case.n_sources,
        "seed": seed,
        "tol": tol,
        "error": total_error(model.shared_components_.T, unique, data),
        "rounds": len(model.history_),
        "start": model.diagnostics_.start,
        "seconds": seconds,
    }


class Reached(Exception):
    """The error is small enough."""


def algorithm1(step: float | None, seed: int) -> tuple[float, int, float]:
    """Run Algorithm 1 until its error is `FAR`; return the error, the rounds and the seconds."""
    data, tables = make(Case(0.5, 1.0, 10, 0), seed)
    names = list(tables)
    seen = np.stack([~np.isnan(table.T) for table in tables.values()]).astype(float)
    matrices = np.stack([np.nan_to_num(table.T) for table in tables.values()])
    states = [{"unique": np.zeros((10, matrices.shape[1], RANK)), "seed": np.array(1)}]
    engine, solver = Serial([Masked(matrices, seen)], states), Averaging(RANK, step_size=step)
    basis = random_start(RANK, matrices[0], np.random.default_rng(1), 1, solver.spread).basis
    begin, measuring, last = time.process_time(), 0.0, (np.inf, 0, 0.0)

    def watch(number: int, value: float, shared: State) -> None:
        nonlocal measuring, last
        now = time.process_time()
        if number % 5 == 0:
            U = orthonormal(shared["basis"])
            unique = complement(U, engine.locals()[0]["unique"])
            error = total_error(U, dict(zip(names, unique, strict=True)), data)
            last = error, number, now - begin - measuring
            if error <= FAR:
                raise Reached
        measuring += time.process_time() - now

    with suppress(Reached):
        run(solver, engine, Squared(), solver.start(basis), max_rounds=GIVEN_UP, watch=watch)
    return last


def published(folder: Path, step: float, seed: int) -> tuple[float, int, float]:
    """Run the published program until its error is `FAR`; return what `algorithm1` does."""
    import torch

    spec = importlib.util.spec_from_file_location("published", folder / "solver.py")
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    data, tables = make(Case(0.5, 1.0, 10, 0), seed, scores="orthonormal")
    arrays = [table.T for table in tables.values()]
    matrices = [torch.tensor(np.nan_to_num(a), dtype=torch.float32) for a in arrays]
    seen = [torch.tensor(~np.isnan(a), dtype=torch.float32) for a in arrays]
    begin, measuring, epochs, last = time.process_time(), 0.0, 0, (np.inf, 0, 0.0)
    basis: Any = None

    def keep(shared: Any) -> None:
        nonlocal basis, epochs
        basis, epochs = shared, epochs + 1

    def look(unique: Any) -> None:
        nonlocal measuring, last
        now = time.process_time()
        if epochs % 20 == 0:
            U = orthonormal(basis.detach().numpy().astype(float))
            own = {
                name: complement(U, part.detach().numpy().astype(float))
                for name, part in zip(tables, unique, strict=True)
            }
            last = total_error(U, own, data), epochs, now - begin - measuring
            if last[0] <= FAR:
                raise Reached
        measuring += time.process_time() - now

    settings = {"ngc": RANK, "nlc": RANK, "device": "cpu", "optim": "SGD", "verbose": 0}
    settings |= {"lr": step, "epochs": EPOCHS}
    # it asks for two errors, and adds them up: the shared one comes first
    settings |= {
        "global_subspace_err_metric": lambda U: keep(U) or 0.0,
        "local_subspace_err_metric": lambda parts: look(parts) or 0.0,
    }
    with suppress(Reached), redirect_stdout(None):
        program.heterogeneous_matrix_completion(matrices, seen, settings)
    return last


def recovery_table(found: pd.DataFrame) -> tuple[str, bool]:
    """Summarise each case over its seeds."""
    rows, all_met = [], True
    for case in CASES:
        of_case = [found[k] == getattr(case, k) for k in ("missing", "spread", "n_sources")]
        part = found[np.logical_and.reduce(of_case)]
        errors = part["error"]
        allowed = len(part) // 10 if case.hard else 0
        met = int((errors > case.floor).sum()) <= allowed
        all_met &= met
        rows.append(
            {
                "missing": case.name,
                "sources": case.n_sources,
                "paper": f"{PAPER[case.missing]:.1e}"
                if case.spread == 1 and case.missing in PAPER
                else "-",
                "ours, mean": f"{errors.mean():.0e}",
                "deviation": f"{errors.std():.0e}",
                "largest": f"{errors.max():.0e}",
                "floor": f"{case.floor:.0e}, {'met' if met else 'MISSED'}",
                "seeds": len(part),
                "rounds": f"{part['rounds'].min()}-{part['rounds'].max()}",
                "followed": f"{part['start'].str.contains('followed').sum()} of {len(part)}",
                "seconds": f"{part['seconds'].mean():.2f}",
            }
        )
    return markdown(pd.DataFrame(rows)), all_met


def time_table(folder: Path | None) -> tuple[str, float, float]:
    """Time the case of 50 % and 10 sources; return how far ahead ours is of Algorithm 1."""
    case = Case(0.5, 1.0, 10, 0)
    fit(case, 0)  # what is loaded at first use is no part of it
    tols = (1e-6, 1e-8, TOL)
    timed = [min((fit(case, 0, tol) for _ in range(5)), key=lambda f: f["seconds"]) for tol in tols]
    rows = [
        {
            "solver": f"HMF, tol {one['tol']:.0e}",
            "error": f"{one['error']:.0e}",
            "rounds": one["rounds"],
            "seconds": f"{one['seconds']:.3f}",
        }
        for one in timed
    ]
    ours = min(one["seconds"] for one in timed if one["error"] <= NEAR)
    given = {}
    with np.errstate(all="ignore"):  # a step that is too long
        runs = {step: algorithm1(step, 0) for step in (None, *STEPS)}
    for step, (error, rounds, seconds) in runs.items():
        name = "own step, data rescaled" if step is None else f"step {step:g}"
        reached = error <= FAR
        given[step] = seconds if reached else np.inf
        rows.append(
            {
                "solver": f"Algorithm 1, {name}",
                "error": f"{error:.0e}",
                "rounds": rounds if reached else f"{rounds}, given up",
                "seconds": f"{seconds:.3f}",
            }
        )
    for step in PUBLISHED_STEPS if folder else ():
        error, rounds, seconds = published(folder, step, 0)
        reached = error <= FAR
        rows.append(
            {
                "solver": f"published program, orthonormal scores, step {step:g}",
                "error": f"{error:.0e}",
                "rounds": rounds if reached else f"{rounds}, given up",
                "seconds": f"{seconds:.3f}",
            }
        )
    fixed = min(value for step, value in given.items() if step is not None)
    return markdown(pd.DataFrame(rows)), fixed / ours, given[None] / ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--published", type=Path, metavar="PATH")
    options = parser.parse_args()
    seeds = options.seeds
    RESULTS.mkdir(exist_ok=True)
    with threadpool_limits(1):
        rows = [
            fit(case, seed)
            for case in CASES
            for seed in range(max(seeds, HARD_SEEDS) if case.hard else seeds)
        ]
        times, ahead_of_fixed, ahead_of_own = time_table(options.published)
    found = pd.DataFrame(rows)
    kept = found.drop(columns="seconds")  # so that another run changes nothing here
    kept.to_csv(RESULTS / "table2_missing.csv", index=False, float_format="%.4g")
    table, met = recovery_table(found)
    text = page(
        "Table 2: recovery with missing entries",
        f"The paper's synthetic data without noise: sources of 120 x 100, ranks {RANK} + {RANK}, "
        "from which a share of the entries is taken away at random. The error is that of the "
        "paper, the squared distance of projections: of the shared subspace, and of the unique "
        "ones in the mean over the sources, added up. The paper's column is its HMF row; which "
        "number of sources that has we do not know, so it stands beside both.",
        f"All floors: **{'met' if met else 'MISSED'}**. No seed may exceed its floor; of 70 % "
        "missing with strengths spread 10x, one in ten may.",
        table,
        f"`HMF({RANK}, {RANK}, centre=None, tol={TOL:.0e})`. Rounds are those of the solver; "
        "`followed` counts the starts that were in doubt, and followed under a fading ridge "
        "before. Seconds are of the processor, for the whole fit.",
        "## Time, 50 % missing, 10 sources",
        f"Ours reaches {NEAR:.0e} **{ahead_of_fixed:.0f} times** as fast as Algorithm 1 with the "
        f"best of these fixed steps reaches {FAR:.0e}, and **{ahead_of_own:.1f} times** as fast as "
        "the library's own variant of it, which rescales the data and chooses its step. Aim: 10 "
        "times. HMF is timed with all that belongs to a fit (reading, start, scoring; best of five "
        "runs), Algorithm 1 and the published program (whose own step is 0.01, and whose data have "
        "orthonormal scores) in their rounds alone.",
        times,
        "Command: `OMP_NUM_THREADS=1 python experiments/table2_missing.py --published PATH`",
    )
    (RESULTS / "table2_missing.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
