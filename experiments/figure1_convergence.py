"""The convergence figure of the paper: error against rounds, Algorithm 1 and the default solver.

    OMP_NUM_THREADS=1 python experiments/figure1_convergence.py

100 sources of n1 x 100 without noise, ranks 3 + 3, all singular values 1, n1 = 30, 60, 120. Every
round records the shared and the mean unique subspace error. Writes
``results/figure1_convergence.csv``, ``.md`` and ``.png``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from record import RESULTS, markdown, page
from threadpoolctl import threadpool_limits

from heterofactor import HMF
from heterofactor.datasets import HeterogeneousData, make_heterogeneous
from heterofactor.engines import Serial
from heterofactor.linalg import Array, complement, orthonormal
from heterofactor.losses import Loss, Squared
from heterofactor.metrics import subspace_error
from heterofactor.rounds import Message, Solver, Stage, State, run
from heterofactor.solvers import Averaging, Grassmann
from heterofactor.sources import Dense, weigh
from heterofactor.start import random_start, spectral_start

N, N2, RANK = 100, 100, 3
SIZES = (30, 60, 120)
MAX_ROUNDS = 600
LEVELS = (1e-4, 1e-9, 1e-20)
FLOOR = 1e-24
# Errors between these make the tail of Algorithm 1: past its first rounds, above the rounding.
TAIL = (1e-22, 1e-9)
PRECISE = 1e-15  # below what double precision can resolve: solvers stop at their own limit


@dataclass(frozen=True)
class Contestant:
    """A solver and its start; and how its curve is drawn and labelled."""

    name: str
    solver: Solver
    start: str
    style: dict[str, str]
    label: str
    label_at: float
    side: int = 1


ALGORITHM1 = "#D55E00"
DEFAULT = "#0072B2"
CONTESTANTS = (
    Contestant(
        "Algorithm 1, step 0.1",
        Averaging(RANK, step_size=0.1, tol=PRECISE),
        "random",
        {"color": ALGORITHM1, "linestyle": ":"},
        "step 0.1",
        1e-12,
    ),
    Contestant(
        "Algorithm 1, step 0.2",
        Averaging(RANK, step_size=0.2, tol=PRECISE),
        "random",
        {"color": ALGORITHM1, "linestyle": "--"},
        "step 0.2",
        1e-26,
    ),
    Contestant(
        "Algorithm 1, own step",
        Averaging(RANK, tol=PRECISE),
        "random",
        {"color": ALGORITHM1, "linestyle": "-"},
        "own step",
        1e-15,
        -1,
    ),
    Contestant(
        "default, random start",
        Grassmann(RANK, tol=PRECISE),
        "random",
        {"color": DEFAULT, "linestyle": "--"},
        "random\nstart",
        1e-11,
    ),
    Contestant(
        "default, spectral start",
        Grassmann(RANK, tol=PRECISE),
        "spectral",
        {"color": DEFAULT, "linestyle": "-"},
        "spectral\nstart",
        1e-23,
        -1,
    ),
)


class Counting(Serial):
    """The serial engine, which also counts: the rounds of a spectral start are rounds, too."""

    rounds = 0

    def round(self, stage: Stage, loss: Loss, shared: State) -> Message:
        self.rounds += 1
        return super().round(stage, loss, shared)


def make_data(n1: int) -> HeterogeneousData:
    return make_heterogeneous(
        N, n_samples=N2, n_features=n1, scores="orthonormal", noise=0, random_state=0
    )


def stack_errors(estimates: Array, truths: Array) -> Array:
    """`subspace_error` for a stack of orthonormal bases."""
    pairs = ((estimates, truths), (truths, estimates))
    return sum(np.sum((A - B @ (B.mT @ A)) ** 2, axis=(-2, -1)) for A, B in pairs)


def follow(contestant: Contestant, data: HeterogeneousData) -> pd.DataFrame:
    """Run a solver as `HMF.fit` does, and measure both errors after every round."""
    begin = time.perf_counter()
    matrices = np.stack([table.T for table in data.sources.values()])
    truths = np.stack(list(data.unique_bases.values()))
    n1, solver = matrices.shape[1], contestant.solver
    stacks = [Dense(matrices)]
    if solver.scale_free:
        stacks, _ = weigh(stacks, [range(N)], list(data.sources), each=False)
    engine = Counting(stacks, [{"unique": np.zeros((N, n1, RANK)), "seed": np.array(1)}])
    rng = np.random.default_rng(1)  # not 0: the truth was drawn from that
    if contestant.start == "spectral":
        basis = spectral_start(engine, Squared(), RANK, RANK, matrices[0], rng).basis
    else:
        # the same directions for all: as they are for Algorithm 1, orthonormal for the default
        basis = random_start(RANK, matrices[0], rng, 1, spread=0.01).basis
        basis = basis if isinstance(solver, Averaging) else orthonormal(basis)
    rows, measuring = [], 0.0

    def watch(number: int, value: float, shared: State) -> None:
        nonlocal measuring
        now = time.perf_counter()
        U = orthonormal(shared["basis"])
        unique = complement(U, engine.locals()[0]["unique"])  # the gauge of the model
        rows.append(
            {
                "n1": n1,
                "solver": contestant.name,
                "round": engine.rounds,
                "shared_error": subspace_error(U, data.shared_basis),
                "unique_error": stack_errors(unique, truths).mean(),
                "seconds": now - begin - measuring,
            }
        )
        measuring += time.perf_counter() - now

    run(solver, engine, Squared(), solver.start(basis), max_rounds=MAX_ROUNDS, watch=watch)
    return pd.DataFrame(rows)


def tail(curve: pd.DataFrame, column: str) -> tuple[float, float]:
    """Fit a line to the logarithm of the error: decades a round, and the largest deviation."""
    within = curve[curve[column].between(*TAIL)]
    logs = np.log10(within[column])
    slope, height = np.polyfit(within["round"], logs, 1)
    return float(slope), float(np.abs(logs - slope * within["round"] - height).max())


def convergence_table(curves: pd.DataFrame) -> str:
    """Summarise each curve: rounds to each level, where it ends, and its time."""
    rows = []
    for (n1, name), curve in curves.groupby(["n1", "solver"], sort=False):
        larger = curve[["shared_error", "unique_error"]].max(axis=1)
        reached = {level: int(np.argmax(larger <= level)) for level in LEVELS}
        last = curve.iloc[-1]
        rows.append(
            {"n1": n1, "solver": name}
            | {f"to {level:.0e}": curve["round"].iloc[at] for level, at in reached.items()}
            | {"final shared error": f"{last['shared_error']:.0e}"}
            | {"final unique error": f"{last['unique_error']:.0e}"}
            | {"seconds to 1e-9": f"{curve['seconds'].iloc[reached[1e-9]]:.2f}"}
            | {"ms a round": f"{1000 * np.diff(curve['seconds']).mean():.1f}"}
        )
    return markdown(pd.DataFrame(rows))


def rate_table(curves: pd.DataFrame) -> str:
    """Say how straight the tails of Algorithm 1 are, and how steep."""
    rows = []
    for (n1, name), curve in curves.groupby(["n1", "solver"], sort=False):
        if not name.startswith("Algorithm 1"):
            continue
        row = {"n1": n1, "solver": name}
        for part in ("shared", "unique"):
            slope, off = tail(curve, f"{part}_error")
            row[f"{part}: factor per 100 rounds"] = f"{10 ** (100 * slope):.0e}"
            row[f"{part}: per round"] = f"{10**slope:.3f}"
            row[f"{part}: decades off the line"] = f"{off:.1f}"
        rows.append(row)
    return markdown(pd.DataFrame(rows))


def model_table(all_data: dict[int, HeterogeneousData]) -> str:
    """Call the library as a user does."""
    rows = []
    for n1, data in all_data.items():
        for tol in (1e-8, 1e-13):
            begin = time.perf_counter()
            model = HMF(RANK, RANK, centre=None, tol=tol, random_state=0).fit(data.sources)
            seconds = time.perf_counter() - begin
            unique = [
                subspace_error(components.T, data.unique_bases[name])
                for name, components in model.unique_components_.items()
            ]
            shared = subspace_error(model.shared_components_.T, data.shared_basis)
            rows.append(
                {
                    "n1": n1,
                    "tol": f"{tol:.0e}",
                    "rounds": model.n_rounds_,
                    "shared error": f"{shared:.0e}",
                    "unique error": f"{np.mean(unique):.0e}",
                    "seconds": f"{seconds:.2f}",
                }
            )
    return markdown(pd.DataFrame(rows))


def describe(curves: pd.DataFrame, model: str) -> str:
    default = curves[curves["solver"] == "default, spectral start"]
    ends = (
        curves[curves["solver"].str.startswith("default")].groupby(["n1", "solver"])["round"].max()
    )
    worst = default.groupby("n1")[["shared_error", "unique_error"]].last().to_numpy().max()
    return page(
        "Figure 1: convergence on the noise-free synthetic data of the paper",
        f"{N} sources of n1 x {N2}, ranks {RANK} + {RANK}, orthonormal bases and scores: all "
        "singular values are 1. The errors are the paper's, squared distances of projections: of "
        "the shared subspace, and of the unique ones in the mean over the sources.",
        "**The paper shows** linear convergence of both errors in all three settings, after a "
        "first phase near the starting error. It gives no table of numbers for this figure that "
        "we know of, so there is no column of theirs here. **Ours**: the same for Algorithm 1 "
        "(straight lines in the right part of each panel); the default solver reaches rounding "
        f"in {ends.min()} to {ends.max()} rounds, from the spectral start as from a random one.",
        "![Shared and unique subspace error against rounds](figure1_convergence.png)",
        f"Floor: a squared subspace error of the default of at most {FLOOR:.0e}, for all n1. "
        f"Found: **{worst:.0e}, {'met' if worst <= FLOOR else 'MISSED'}**, with the tolerance "
        "at the limit of double precision; for the library's default tolerance see the last "
        "table.",
        "## Rounds",
        "Rounds until both errors are below a level, where they end, and what it took. All solvers "
        f"go on to the limit of double precision, or for {MAX_ROUNDS} rounds. Algorithm 1 starts "
        "at small Gaussian matrices (deviation 0.01), with beta 0.1. Its published program takes "
        "the step 0.1 on the sum of squares; on the paper's half sum of squares that is the step "
        "0.2, and 0.1 is half as long. `own step` is the library's: 0.5 on data in units of their "
        "spectral norm. The default solver starts from the same "
        "random directions, or from the spectral start, whose own rounds are counted "
        "too. Seconds are of one thread on a shared machine, without the measuring.",
        convergence_table(curves),
        "## Rate of Algorithm 1",
        f"A line fitted to the logarithm of the error, where that is between {TAIL[1]:.0e} and "
        f"{TAIL[0]:.0e}: the factor by which the error changes, and the largest deviation from the "
        "line. The unique error bends where n1 is small: it falls at a faster rate of its own "
        "until it is as small as what the shared error leaves in it.",
        rate_table(curves),
        "## The library as it is called",
        "`HMF(3, 3, centre=None, tol=tol)` with the default tolerance 1e-8, and a tight one. The "
        "rounds here are the solver's alone. The default tolerance ends at errors of about its "
        "square.",
        model,
        "Command: `OMP_NUM_THREADS=1 python experiments/figure1_convergence.py`",
    )


# Where the rounds' axis changes its scale, and how many rounds of the later, narrower scale take
# the place of one of the earlier.
BREAK, SQUEEZE = 20, 25
BOTTOM, ROUNDING = 1e-31, 3e-28


def squeeze(rounds: Array) -> Array:
    rounds = np.asarray(rounds, dtype=float)
    return np.where(rounds <= BREAK, rounds, BREAK + (rounds - BREAK) / SQUEEZE)


def stretch(places: Array) -> Array:
    places = np.asarray(places, dtype=float)
    return np.where(places <= BREAK, places, BREAK + (places - BREAK) * SQUEEZE)


def draw(curves: pd.DataFrame) -> None:
    """Draw shared and unique errors of all solvers, one column of panels for each n1."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(
        2, len(SIZES), figsize=(13, 7.4), sharex=True, sharey=True, layout="constrained"
    )
    parts = (("shared_error", "shared"), ("unique_error", "unique, mean over sources"))
    for row, (column, part) in zip(axes, parts, strict=True):
        for ax, n1 in zip(row, SIZES, strict=True):
            _panel(ax, curves[curves["n1"] == n1], column)
        row[0].set_ylabel(f"squared subspace error\n{part}")
    for ax, n1 in zip(axes[0], SIZES, strict=True):
        ax.set_title(f"n1 = {n1}", fontweight="bold")
    for ax in axes[-1]:
        ax.set_xlabel(f"round (the first {BREAK}, in grey, drawn {SQUEEZE} times as wide)")
    figure.suptitle("Noise-free synthetic data of the paper: 100 sources, ranks 3 + 3")
    figure.savefig(RESULTS / "figure1_convergence.png", dpi=110)


def _panel(ax: Axes, curves: pd.DataFrame, column: str) -> None:
    ax.set_xscale("function", functions=(squeeze, stretch))
    ax.set_yscale("log")
    ax.set_xlim(0, MAX_ROUNDS)
    ax.set_ylim(BOTTOM, 1e2)
    ax.set_xticks([1, 5, 10, 15, BREAK, 100, 200, 300, 400, 500])
    ax.set_yticks([10.0**k for k in range(-30, 1, 5)])
    ax.minorticks_off()
    ax.axvspan(0, BREAK, color="#F2F2F2", linewidth=0)
    for contestant in CONTESTANTS:
        curve = curves[curves["solver"] == contestant.name]
        rounds, errors = curve["round"].to_numpy(), curve[column].to_numpy()
        # what follows the first error of the size of rounding only wriggles
        end = np.argmax(errors <= ROUNDING) + 1 if errors.min() <= ROUNDING else len(errors)
        ax.plot(rounds[:end], errors[:end], linewidth=1.8, **contestant.style)
        crossing = np.argmax(errors <= contestant.label_at)
        near = slice(crossing, crossing - 2, -1)
        place = np.interp(np.log(contestant.label_at), np.log(errors[near]), rounds[near])
        ax.annotate(
            contestant.label,
            (place, contestant.label_at),
            xytext=(5 * contestant.side, 0),
            textcoords="offset points",
            ha="left" if contestant.side > 0 else "right",
            va="bottom" if contestant.side > 0 else "top",  # away from a falling curve
            color=contestant.style["color"],
            fontsize=9.5,
        )
    where = {"transform": ax.transAxes, "fontweight": "bold"}
    ax.text(0.02, 0.03, "Default", color=DEFAULT, **where)
    ax.text(0.98, 0.87, "Algorithm 1", color=ALGORITHM1, ha="right", **where)
    ax.text(0.98, 0.82, "random start", color=ALGORITHM1, ha="right", transform=ax.transAxes)


def main() -> None:
    matplotlib.use("Agg")
    RESULTS.mkdir(exist_ok=True)
    with threadpool_limits(1):
        all_data = {n1: make_data(n1) for n1 in SIZES}
        found = [follow(one, data) for data in all_data.values() for one in CONTESTANTS]
        curves = pd.concat(found, ignore_index=True)
        model = model_table(all_data)
    rounds = curves.drop(columns="seconds")  # so that another run changes nothing here
    rounds.to_csv(RESULTS / "figure1_convergence.csv", index=False, float_format="%.4g")
    draw(curves)
    text = describe(curves, model)
    (RESULTS / "figure1_convergence.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
