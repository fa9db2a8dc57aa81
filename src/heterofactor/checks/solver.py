"""What a solver promises: pure steps, sums for messages, and the answer of the problem itself.

The answer must not depend on how the sources are ordered or stacked, on the basis in which the
start is written, or on the units of the data where the solver says so.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heterofactor.checks.problem import N_ROWS, RANKS, STACKS, Problem, make_problem
from heterofactor.checks.requirement import (
    copied,
    require,
    require_close,
    require_flat,
    require_frozen,
    require_precision,
    require_same,
)
from heterofactor.engines import Serial
from heterofactor.linalg import Array, machine_epsilon, orthonormal
from heterofactor.losses import Loss, Squared
from heterofactor.metrics import subspace_error
from heterofactor.rounds import Message, Result, Solver, State, run
from heterofactor.sources import Dense, Source

# On these problems an angle is a few times the relative gradient that it leaves.
CONDITION = 100
ROUNDINGS = 1000
AUDITED_ROUNDS = 20
NOISE = 0.1


def check_solver(solver: Solver, *, max_rounds: int = 5000) -> None:
    """Check that a solver keeps its contract, under squared loss on small complete data.

    It is a frozen dataclass without state of its own; its answers are pure, flat dicts of arrays
    of the data's precision; messages have nothing to do but to be summed; the value never rises
    from round to round. Without noise it finds the truth, and with noise the optimum that a plain
    alternation finds. The answer is orthogonal, and the same for any order and stacking of the
    sources, for any basis of the space it starts from, and in any units if it is ``scale_free``.

    Parameters
    ----------
    solver : Solver
        Of 1 to 6 shared directions. Answers are compared as precisely as its relative gradient
        at the end says, so a small tolerance makes the check strict.
    max_rounds : int
        Within which it must finish.

    Raises
    ------
    AssertionError
        Says which property failed, and by how much.

    Examples
    --------
    >>> from heterofactor.checks import check_solver
    >>> from heterofactor.solvers import Grassmann
    >>> check_solver(Grassmann(n_shared=2))
    """
    require_frozen("a solver", solver)
    settings = repr(solver)
    noisy = make_problem(solver.n_shared, NOISE)
    audited = _check_purity(solver, noisy)
    _check_sums(solver, noisy)
    plain = _solve(solver, noisy, max_rounds)
    one, two = (np.array(of.history[: len(audited.history)]) for of in (plain.result, audited))
    require_same("the history of a second run", {"history": one}, {"history": two})
    _check_descent(plain.result)
    _check_orthogonality(plain)
    _check_optimum(plain)
    _check_truth(_solve(solver, make_problem(solver.n_shared, 0.0), max_rounds))

    reordered = _solve(solver, noisy, max_rounds, stacks=((3,), (1, 0), (2,)))
    _require_same_answer("the answer depends on the order of the sources", reordered, plain)
    single = _solve(solver, noisy, max_rounds, stacks=((0,), (1,), (2,), (3,)))
    _require_same_answer("the answer depends on how the sources are stacked", single, plain)
    turned = _solve(solver, noisy, max_rounds, turned=True)
    _require_same_answer("the answer depends on the basis of the start's span", turned, plain)
    if solver.scale_free:
        grown = _solve(solver, make_problem(solver.n_shared, NOISE, scale=1e3), max_rounds)
        _require_same_answer("the answer depends on the units of the data", grown, plain)
    _check_single_precision(solver, max_rounds, plain)
    require_frozen("a solver after its runs", solver)
    require(repr(solver) == settings, f"its runs changed {settings} to {solver!r}")


@dataclass(frozen=True, eq=False)
class Solved:
    """A run to the end, and how precise its answer should be: an angle."""

    problem: Problem
    start: Array
    result: Result
    unique: list[Array]
    accuracy: float


def _start(solver: Solver, problem: Problem, turned: bool = False) -> Array:
    """Begin as a search would: small and random, or with some idea of the truth."""
    rng = np.random.default_rng(1)
    drawn = rng.standard_normal((N_ROWS, solver.n_shared))
    basis = solver.spread * drawn
    if not solver.spread:
        basis = orthonormal(problem.basis + 0.3 * drawn)
    if turned:
        basis = basis @ orthonormal(rng.standard_normal((solver.n_shared, solver.n_shared)))
    return np.asarray(basis, dtype=problem.basis.dtype)


def _solve(
    solver: Solver,
    problem: Problem,
    max_rounds: int,
    *,
    stacks: Sequence[Sequence[int]] = STACKS,
    turned: bool = False,
) -> Solved:
    """Run to the end, which must come by itself."""
    start = _start(solver, problem, turned)
    engine = Serial(problem.sources(stacks), problem.locals(stacks))
    result = run(solver, engine, Squared(), solver.start(start), max_rounds=max_rounds)
    gradient = float(result.shared["gradient"])
    require(
        result.converged,
        f"not finished after {len(result.history)} rounds: the relative gradient is {gradient:.1e}",
    )
    unique: dict[int, Array] = {}
    for places, local in zip(stacks, engine.locals(), strict=True):
        unique |= dict(zip(places, local["unique"], strict=True))
    rounding = ROUNDINGS * machine_epsilon(problem.basis)
    accuracy = CONDITION * gradient + rounding
    return Solved(problem, start, result, [unique[k] for k in range(len(RANKS))], accuracy)


@dataclass(frozen=True)
class Audited:
    """A solver, every answer of which is asked for twice and looked at."""

    solver: Solver

    def init(self, source: Source, shared: State, local: State) -> State:
        """Ask for the private state, twice."""
        found = self._twice("init", source, shared, local)
        self._check_local(source, local, found)
        return found  # type: ignore[no-any-return]

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Ask for the step, twice."""
        new, message = self._twice("step", source, loss, shared, local)
        self._check_local(source, local, new)
        require_precision("message", message, shared["basis"].dtype)
        return new, message

    def merge(self, shared: State, total: Message) -> State:
        """Ask for the next shared state, twice."""
        found = self._twice("merge", shared, total)
        self.check_shared(found)
        return found  # type: ignore[no-any-return]

    def finished(self, shared: State) -> str:
        """Ask whether there is nothing left to do, twice."""
        found, again = self.solver.finished(shared), self.solver.finished(shared)
        require(isinstance(found, str), f"finished: {found!r}, expected a string")
        require(found == again, "finished: another answer when asked again")
        return found

    def check_shared(self, shared: State) -> None:
        """Look for what the loop and the search read from a shared state."""
        require_flat("the shared state", shared)
        for name in ("basis", "value", "gradient"):
            require(name in shared, f"the shared state has no {name!r}")
        found, expected = tuple(shared["basis"].shape), (N_ROWS, self.solver.n_shared)
        require(found == expected, f"the shared basis: shape {found}, expected {expected}")
        require_precision("the shared state", shared, shared["basis"].dtype)

    def _check_local(self, source: Source, before: State, local: State) -> None:
        require("unique" in local, "a private state has no 'unique'")
        found, expected = tuple(local["unique"].shape), tuple(before["unique"].shape)
        require(found == expected, f"a unique basis: shape {found}, expected {expected}")

    def _twice(self, name: str, *arguments: Any) -> Any:
        """Call a method on the arguments and on copies of them."""
        states = [a if isinstance(a, dict) else {} for a in arguments]
        before = [copied(state) for state in states]
        apart = [
            copied(a) if isinstance(a, dict) else copy.deepcopy(a) if hasattr(a, "matrix") else a
            for a in arguments
        ]
        found = getattr(self.solver, name)(*arguments)
        for state, old in zip(states, before, strict=True):
            require_same(f"an argument of {name} after the call", state, old)
        again = getattr(self.solver, name)(*apart)
        pairs = zip(found, again, strict=True) if isinstance(found, tuple) else [(found, again)]
        for one, other in pairs:
            require_flat(f"the answer of {name}", one)
            require_same(f"the answer of {name} when asked again", one, other)
        return found


def _check_purity(solver: Solver, problem: Problem) -> Result:
    """Ask for everything twice; nothing may change but what is returned."""
    audited, sources = Audited(solver), problem.sources()
    matrices = {str(k): source.matrix for k, source in enumerate(sources)}
    before, start = copied(matrices), _start(solver, problem)
    shared, again = solver.start(start), solver.start(start.copy())
    audited.check_shared(shared)
    require_same("the answer of start when asked again", shared, again)
    engine = Serial(sources, problem.locals())
    result = run(audited, engine, Squared(), shared, max_rounds=AUDITED_ROUNDS)
    require_same("the data after a run", matrices, before)
    return result


def _check_sums(solver: Solver, problem: Problem) -> None:
    """Compare the message of a stack of twins with twice the message of one of them.

    Of twins, because an inner iteration may stop for all members of a stack at once, and stop
    elsewhere for one that is alone.
    """
    single, loss = problem.sources()[1], Squared()
    twins = Dense(np.concatenate([single.matrix] * 2))
    shared = solver.start(_start(solver, problem))
    local = solver.init(single, shared, problem.locals()[1])
    for number in range(1, AUDITED_ROUNDS):
        # every array of a private state has the stack as its first axis
        doubled = {n: np.concatenate([v] * 2) if v.ndim else v for n, v in local.items()}
        local, alone = solver.step(single, loss, shared, local)
        both = solver.step(twins, loss, shared, doubled)[1]
        for name, value in both.items():
            one = alone[name]
            require(
                np.shape(one) == np.shape(value),
                f"message[{name!r}]: shape {np.shape(value)} for two sources, {np.shape(one)} for "
                "one; messages of all sources must add up",
            )
            size = float(np.max(np.abs(one), where=np.isfinite(one), initial=0))
            within = ROUNDINGS * machine_epsilon(problem.basis) * size
            what = f"message[{name!r}] of round {number}: that of twins is not twice that of one"
            require_close(what, value, 2 * one, within)
        shared = solver.merge(shared, alone)
        if solver.finished(shared):
            break


def _check_descent(result: Result) -> None:
    """Let the value rise by no more than rounding."""
    values = np.array([value for value, _ in result.history])
    values = values[np.isfinite(values)]
    rises = np.diff(values, prepend=values[:1])
    allowed = ROUNDINGS * machine_epsilon(values) * float(np.max(np.abs(values)))
    require_close(
        "the value rises from a round to the next", np.maximum(rises, 0), rises * 0, allowed
    )


def _check_orthogonality(solved: Solved) -> None:
    basis = solved.result.shared["basis"]
    for unique in solved.unique:
        cosines = orthonormal(basis).T @ orthonormal(unique)
        what = "a unique basis is not orthogonal to the shared one"
        require_close(what, cosines, cosines * 0, solved.accuracy)


def _check_optimum(solved: Solved) -> None:
    """Compare what is left of the data with what the best bases leave: off by squared angles."""
    problem, basis = solved.problem, solved.result.shared["basis"]
    best = problem.best_residual(orthonormal(problem.basis))
    found = problem.residual(basis, solved.unique)
    require_close(
        "what the fit leaves of the data is not what the best fit leaves",
        found / problem.energy,
        best / problem.energy,
        solved.accuracy**2 + ROUNDINGS * machine_epsilon(problem.basis),
    )


def _check_truth(solved: Solved) -> None:
    error = subspace_error(solved.result.shared["basis"], solved.problem.basis) ** 0.5
    require_close("the truth is missed without noise", error, 0.0, solved.accuracy)


def _require_same_answer(what: str, one: Solved, other: Solved) -> None:
    within = one.accuracy + other.accuracy
    basis, expected = one.result.shared["basis"], other.result.shared["basis"]
    require_close(what, subspace_error(basis, expected) ** 0.5, 0.0, within)
    for unique, same in zip(one.unique, other.unique, strict=True):
        require_close(what, subspace_error(unique, same) ** 0.5, 0.0, within)


def _check_single_precision(solver: Solver, max_rounds: int, plain: Solved) -> None:
    single = make_problem(solver.n_shared, NOISE, dtype=np.float32)
    engine = Serial(single.sources(), single.locals())
    result = run(
        Audited(solver), engine, Squared(), solver.start(_start(solver, single)), max_rounds=3
    )
    for state in (result.shared, *engine.locals()):
        require_precision("a state in single precision", state, np.float32)
    found = _solve(solver, single, max_rounds)
    _require_same_answer("the answer in single precision is another one", found, plain)
