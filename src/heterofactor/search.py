"""From sources to scored factors: every start is followed down, the best is kept and scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from heterofactor.checkpoint import Attempt, Keeper, Kept
from heterofactor.engines import Serial
from heterofactor.factors import Scoring
from heterofactor.guess import guessed_start, pilot
from heterofactor.linalg import Array, like, orthonormal, zeros
from heterofactor.losses import Loss, Robust, Squared, is_open
from heterofactor.rounds import Engine, MakeEngine, Result, Solver, Stage, State, run
from heterofactor.solvers import Alternating, Grassmann
from heterofactor.sources import Source
from heterofactor.start import Start, random_start, spectral_start


@dataclass(frozen=True)
class Found:
    """The best fit of a search.

    Attributes
    ----------
    result : Result
        Of the run that won.
    start : Start
        Where that run began.
    shared : dict of arrays
        The scored shared state: the canonical basis, and how it was turned.
    locals : list of dict of arrays
        The scored private states.
    history : list of (start, value, gradient)
        One entry for every round of every run.
    loss : Loss
        With the threshold that was found, where it was left to the data.
    interrupted : bool
        Whether the search was stopped from the keyboard; the best so far stands.
    """

    result: Result
    start: Start
    shared: State
    locals: list[State]
    history: list[tuple[str, float, float]]
    loss: Loss
    interrupted: bool = False


def search(
    sources: Sequence[Source],
    ranks: Sequence[int],
    solver: Solver,
    make_engine: MakeEngine,
    loss: Loss,
    example: Array,
    *,
    max_rounds: int,
    n_restarts: int,
    seeds: np.random.SeedSequence,
    finish: Stage | None = None,
    raw_scale: float = 0.0,
    keeper: Keeper | None = None,
    verbose: int = 0,
) -> Found:
    """Fit the sources from every start, and score the best fit.

    Parameters
    ----------
    sources : sequence of Source
        Stacks of matrices.
    ranks : sequence of int
        The unique rank of each stack's matrices.
    solver, make_engine, loss
        How, where and to what end.
    example : array of shape (n1, ...)
        Any array of the length of the shared axis, and of the data's library and precision.
    max_rounds, n_restarts : int
        When to give up, and how many random starts to add.
    seeds : numpy SeedSequence
        For everything random.
    finish : Stage, optional
        The last round, that of complete data under squared loss unless given.
    raw_scale : float
        The size of the centred entries, where the loss has a threshold that is left to the data.
    keeper : Keeper, optional
        Keeps the state of the search in a file, and goes on from there if the file is there.
    verbose : int
        Show the progress of the rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.engines import Serial
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.search import search
    >>> from heterofactor.solvers import Grassmann
    >>> from heterofactor.sources import Dense
    >>> stack = np.random.default_rng(0).normal(size=(3, 5, 9))
    >>> found = search([Dense(stack)], [1], Grassmann(2), Serial, Squared(), stack[0],
    ...                max_rounds=99, n_restarts=1, seeds=np.random.SeedSequence(0))
    >>> found.result.converged, found.locals[0]["unique_scores"].shape
    (True, (3, 9, 1))
    """
    n1 = example.shape[0]
    states: list[State] = [
        {
            "unique": like(np.zeros((source.shape[0], n1, rank)), example),
            "seed": np.asarray(seed.generate_state(1)[0]),
        }
        for source, rank, seed in zip(sources, ranks, seeds.spawn(len(sources)), strict=True)
    ]
    chances = [np.random.default_rng(seed) for seed in (seeds, *seeds.spawn(n_restarts))]
    kept = None if keeper is None else keeper.read(example)
    best: Attempt | None = None
    history: list[tuple[str, float, float]] = []
    if kept is not None:
        best, history = kept.best, kept.history
        if is_open(loss):
            known: Any = loss
            loss = replace(known, threshold=kept.threshold)
    for number in range(0 if kept is None else kept.number, 1 + n_restarts):
        before = kept.now if kept is not None and number == kept.number else None
        engine = make_engine(sources, states if before is None else before.locals)
        try:
            if before is None:
                rng = chances[number]
                start = find_start(engine, loss, solver, max(ranks), example, rng, number)
                if is_open(loss):
                    start, loss = pilot(engine, loss, follower(solver), start, raw_scale)
            else:
                start = before.start
            # an interrupted start still needs one round to be an answer
            limit = 1 if start.interrupted else max_rounds
            write = _writer(keeper, engine, start, number, best, history, loss)
            now = _followed(engine, loss, solver, start, before, limit, write, verbose)
        finally:
            engine.close()
        history = history + [(start.name, *round_) for round_ in now.result.history]
        if best is None or float(now.result.shared["value"]) < float(best.result.shared["value"]):
            best = now
        if interrupted := start.interrupted or now.result.interrupted:
            break
    assert best is not None
    result = best.result
    engine = make_engine(sources, best.locals)
    try:
        shared = result.shared
        if finish is None:
            finish, shared = Scoring(), shared | {"basis": orthonormal(shared["basis"])}
        shared = run(finish, engine, loss, shared, max_rounds=1).shared
        found = Found(result, best.start, shared, engine.locals(), history, loss, interrupted)
    finally:
        engine.close()
    if keeper is not None and not interrupted:
        keeper.remove()
    return found


def _followed(
    engine: Engine,
    loss: Loss,
    solver: Solver,
    start: Start,
    before: Attempt | None,
    max_rounds: int,
    write: Callable[[Result, bool], None] | None,
    verbose: int,
) -> Attempt:
    """Run the solver from a start, or from where an attempt was left."""
    earlier = None if before is None else before.result
    rounds = [] if earlier is None else list(earlier.history)
    with tqdm(
        desc=f"{start.name} start", unit=" rounds", disable=not verbose, initial=len(rounds)
    ) as bar:

        def watch(number: int, value: float, shared: State) -> None:
            gradient = float(shared["gradient"])
            bar.set_postfix(gradient=f"{gradient:.1e}", refresh=False)
            bar.update()
            rounds.append((value, gradient))
            if write is not None:
                write(Result(shared, rounds), False)

        begin = solver.start(start.basis)
        result = run(
            solver, engine, loss, begin, max_rounds=max_rounds, watch=watch, before=earlier
        )
    if write is not None and result.interrupted:
        write(result, True)
    return Attempt(result, start, engine.locals())


def _writer(
    keeper: Keeper | None,
    engine: Engine,
    start: Start,
    number: int,
    best: Attempt | None,
    history: list[tuple[str, float, float]],
    loss: Loss,
) -> Callable[[Result, bool], None] | None:
    """Return what writes the state of a run to the checkpoint, now and then."""
    if keeper is None:
        return None

    def write(result: Result, at_once: bool) -> None:
        if at_once or keeper.is_due:
            threshold = loss.threshold if isinstance(loss, Robust) else None
            now = Attempt(result, start, engine.locals())
            keeper.write(Kept(number, now, best, history, threshold))

    return write


def find_start(
    engine: Engine,
    loss: Loss,
    solver: Solver,
    n_unique: int,
    example: Array,
    rng: np.random.Generator,
    attempt: int = 0,
) -> Start:
    """Begin where the solver's theory says: spectral first, then random.

    Parameters
    ----------
    engine, loss, solver
        Where, to what end and how the fit goes on.
    n_unique : int
        The largest unique rank.
    example : array of shape (n1, ...)
        Any array of the length of the shared axis, and of the data's library and precision.
    rng : numpy Generator
        For everything random.
    attempt : int
        Zero for the first start.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.engines import Serial
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.search import find_start
    >>> from heterofactor.solvers import Grassmann
    >>> from heterofactor.sources import Dense
    >>> stack = np.random.default_rng(0).normal(size=(3, 5, 9))
    >>> engine = Serial([Dense(stack)], [{"unique": np.zeros((3, 5, 1))}])
    >>> rng = np.random.default_rng(0)
    >>> find_start(engine, Squared(), Grassmann(2), 1, stack[0], rng).basis.shape
    (5, 2)
    """
    alternating = isinstance(solver, Alternating)
    if attempt or solver.spread or (solver.n_shared == 0 and not alternating):
        return random_start(solver.n_shared, example, rng, attempt, solver.spread)
    if isinstance(solver, Alternating):
        return guessed_start(engine, loss, solver, n_unique, example, rng)
    return spectral_start(engine, loss, solver.n_shared, n_unique, example, rng)


def follower(solver: Solver) -> Alternating:
    """Return the solver that fits roughly before another does: itself, if it can."""
    return solver if isinstance(solver, Alternating) else Alternating(solver.n_shared)


def newcomer(source: Source, rank: int, basis: Array, tol: float) -> State:
    """Find the unique basis of one source more, and its scores, for a shared basis that stays.

    Parameters
    ----------
    source : Source
        A stack of one matrix.
    rank : int
        Its unique rank.
    basis : array of shape (n1, n_shared)
        The shared basis.
    tol : float
        Relative residual at which its unique basis is good enough.
    """
    solver = Grassmann(basis.shape[1], tol=tol, max_inner=200)
    shared = solver.start(basis)
    shared["inner_tolerance"] = shared["inner_tolerance"] * 0 + tol
    engine = Serial([source], [{"unique": zeros(basis[None, ...], rank)}])
    engine.begin(solver, shared)
    engine.round(solver, Squared(), shared)
    engine.round(Scoring(), Squared(), shared)
    return engine.locals()[0]
