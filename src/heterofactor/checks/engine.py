"""What an engine promises: the same sums and the same private states as `Serial`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heterofactor.checks.problem import make_problem
from heterofactor.checks.requirement import copied, require, require_close, require_same
from heterofactor.engines import Serial
from heterofactor.linalg import Array
from heterofactor.losses import Loss, Squared
from heterofactor.rounds import Engine, MakeEngine, Message, Stage, State
from heterofactor.solvers import Grassmann
from heterofactor.sources import Dense, Source

# BLAS may round otherwise when it runs on another number of threads, on another machine.
ROUNDING = 1e-12
MARKS = 40


@dataclass(frozen=True)
class Tally:
    """A stage whose numbers tell who was asked, how often, with what, and in which order.

    The marks of the sources are of so different sizes that summing them in another order rounds
    some of them otherwise. No product of matrices: every engine can be exact.
    """

    def init(self, source: Source, shared: State, local: State) -> State:
        """Count how often the source was told to begin."""
        begun = local.get("begun", np.zeros(1)) + shared["value"]
        return local | {"begun": begun, "steps": np.zeros(1)}

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Count the steps; answer with what only this source knows."""
        steps = local["steps"] + 1
        marked = local["mark"] * steps
        message = {
            "count": steps / steps,
            "begun": local["begun"],
            "mark": marked,
            "energy": marked * float(source.energy[0]),
            "loss": loss.value(local["mark"], shared["basis"]),
        }
        return local | {"steps": steps}, message

    def merge(self, shared: State, total: Message) -> State:
        """Put the sum into what is sent out next."""
        return shared | {"basis": total["mark"] / total["count"]}

    def finished(self, shared: State) -> str:
        """Never finish."""
        return ""


@dataclass(frozen=True)
class Failing(Tally):
    """A stage that fails at one of its sources."""

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Fail at the source of the number that is asked for."""
        if int(local["number"]) == int(shared["failing"]):
            raise ArithmeticError("a step that fails on purpose")
        return super().step(source, loss, shared, local)


def check_engine(make_engine: MakeEngine, *, exact: bool = True) -> None:
    """Check that an engine keeps its contract.

    For any number of sources, over several rounds and two stages one after the other, its sums and
    private states are those of `Serial`. What a step raises reaches the caller. Sources and
    private states that were given stay as they were; it can be closed twice.

    Parameters
    ----------
    make_engine : callable
        Makes an engine of a sequence of sources, and one of private states.
    exact : bool
        Whether it sums in the order of the sources, so that sums are the same bit for bit. Else
        to rounding.

    Raises
    ------
    AssertionError
        Says which property failed, and by how much.

    Examples
    --------
    >>> from heterofactor.checks import check_engine
    >>> from heterofactor.engines import Threads
    >>> check_engine(Threads)
    >>> check_engine(lambda sources, local: Threads(sources, local, n_threads=2))
    """
    for n_sources in (1, 2, 7):
        _check_tally(make_engine, n_sources, exact)
    _check_solver_steps(make_engine)
    for failing in (0, 4):
        _check_failure(make_engine, failing)


def _many(n_sources: int) -> tuple[list[Source], list[State]]:
    rng = np.random.default_rng(n_sources)
    sources: list[Source] = [
        Dense(rng.standard_normal((1 + k % 2, 3, 4 + k))) for k in range(n_sources)
    ]
    states: list[State] = [
        {
            "unique": np.zeros((1 + k % 2, 3, 1)),
            "number": np.asarray(k),
            "mark": rng.standard_normal(MARKS) * 10.0 ** rng.uniform(-6, 6, MARKS),
        }
        for k in range(n_sources)
    ]
    return sources, states


def _check_tally(make_engine: MakeEngine, n_sources: int, exact: bool) -> None:
    sources, states = _many(n_sources)
    before = [copied(state) for state in states]
    serial, engine = Serial(*_many(n_sources)), make_engine(sources, states)
    stage, loss = Tally(), Squared()
    shared: State = {"basis": np.linspace(0, 1, MARKS)}
    where = f"{n_sources} source{'s' if n_sources > 1 else ''}"
    try:
        for begun in (1.0, 10.0):
            shared = shared | {"value": np.asarray(begun), "gradient": np.asarray(1.0)}
            _compare_stage(where, engine, serial, stage, loss, shared, exact)
        for k, (state, old) in enumerate(zip(states, before, strict=True)):
            require_same(f"the private state given for source {k} of {where}", state, old)
    finally:
        engine.close()
    engine.close()


def _compare_stage(
    where: str,
    engine: Engine,
    serial: Engine,
    stage: Stage,
    loss: Loss,
    shared: State,
    exact: bool,
) -> None:
    """Take three rounds on both, from one shared state."""
    engine.begin(stage, shared)
    serial.begin(stage, shared)
    for number in range(1, 4):
        found, expected = engine.round(stage, loss, shared), serial.round(stage, loss, shared)
        _require_equal(f"the sum of round {number} over {where}", found, expected, exact)
        shared = stage.merge(shared, expected)
        _require_locals(f"after round {number} over {where}", engine, serial.locals(), exact)


def _require_locals(when: str, engine: Engine, expected: Sequence[State], exact: bool) -> None:
    found = engine.locals()
    n_found, n_expected = len(found), len(expected)
    require(n_found == n_expected, f"{n_found} private states {when}, expected {n_expected}")
    for k, (one, other) in enumerate(zip(found, expected, strict=True)):
        _require_equal(f"the private state of source {k} {when}", one, other, exact)


def _require_equal(what: str, found: State, expected: State, exact: bool) -> None:
    if exact:
        return require_same(what, found, expected)
    require(found.keys() == expected.keys(), f"{what}: {sorted(found)}, not {sorted(expected)}")
    for name, value in expected.items():
        within = ROUNDING * _largest(value)
        require_close(f"{what}[{name!r}]", found[name], value, within)


def _largest(array: Array) -> float:
    return float(np.max(np.abs(array), initial=0))


def _check_solver_steps(make_engine: MakeEngine) -> None:
    """Take the steps of a true solver, whose matrix products may be rounded otherwise."""
    problem, solver = make_problem(2, 0.1), Grassmann(2)
    engine = make_engine(problem.sources(), problem.locals())
    serial = Serial(problem.sources(), problem.locals())
    where = "the sources of a fit"
    try:
        shared = solver.start(problem.basis)
        _compare_stage(where, engine, serial, solver, Squared(), shared, exact=False)
    finally:
        engine.close()


def _check_failure(make_engine: MakeEngine, failing: int) -> None:
    sources, states = _many(5)
    engine, stage = make_engine(sources, states), Failing()
    shared = {
        "basis": np.zeros(MARKS),
        "value": np.asarray(1.0),
        "gradient": np.asarray(1.0),
        "failing": np.asarray(failing),
    }
    try:
        engine.begin(stage, shared)
        engine.round(stage, Squared(), shared)
    except ArithmeticError:
        return
    finally:
        engine.close()
    raise AssertionError(f"the error of a step at source {failing} of 5 did not reach the caller")
