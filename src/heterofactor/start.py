r"""Where to begin: the directions that the leading spaces of all sources have in common.

Each source finds the basis :math:`Q_i` of its leading directions. The shared basis starts as the
leading eigenvectors of the mean projection :math:`\frac1N \sum_i Q_i Q_i'`, found by subspace
iteration, so that sources answer with sums of thin matrices only. A direction that all sources
have has eigenvalue 1. Without noise this start is already the answer, as exactly as the iteration
is run; where the eigenvalues of the shared directions are well below 1, it may lie in the wrong
valley.

The solver is run on the sources' sketches first, which are as thin as the answer: that takes no
pass over the data, and leaves the solver proper with a few rounds less to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from heterofactor.linalg import (
    Array,
    leading,
    like,
    machine_epsilon,
    namespace,
    orthonormal,
    squared_norm,
    trace,
)
from heterofactor.losses import Loss
from heterofactor.rounds import Engine, Message, Result, State, run
from heterofactor.solvers.grassmann import Grassmann
from heterofactor.sources import Source

# Directions beyond those asked for, which make a subspace iteration converge in a few passes.
OVERSAMPLING = 2
# A leading space is good enough to start from when this share of its image lies outside it.
SKETCH_TOLERANCE = 0.03
MAX_PASSES = 6
MAX_ITERATIONS = 30
# Below this eigenvalue of the last shared direction the start is in doubt: on 360 hard problems,
# every start that led to the wrong valley had one below 0.73.
CLEAR = 0.8
# Starts compete on the sketches until their values can be told apart; the one that is taken is
# followed as far as a sketch is like its source.
COMPETING_TOLERANCE = 1e-4
MAX_COMPETING = 100
SKETCHED_TOLERANCE = 1e-6
MAX_SKETCHED = 10
# With fewer columns for each of the sketch's, a round on the data costs hardly more than on it, and
# of noise they hold more than a sketch can.
WORTHWHILE = 8
RANDOM_STARTS = 3
# On a shared axis no longer than this, sketches of full width cost next to nothing.
SMALL = 64


@dataclass(frozen=True)
class Spectral:
    """The spectral start, as a stage of its own: its rounds are those of a subspace iteration.

    Parameters
    ----------
    n_shared : int
        Shared directions.
    width : int, optional
        Directions taken from each source; as many as its shared and unique ranks unless given.
    reach : int, optional
        Directions that each source keeps in its sketch, for wider starts to come.
    tol : float
        Relative change at which an iteration counts as settled.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.datasets import make_heterogeneous
    >>> from heterofactor.engines import Serial
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.metrics import subspace_error
    >>> from heterofactor.rounds import run
    >>> from heterofactor.sources import Dense
    >>> from heterofactor.start import Spectral
    >>> data = make_heterogeneous(random_state=0)
    >>> sources = [Dense(table.T[None]) for table in data.sources.values()]
    >>> engine = Serial(sources, [{"unique": np.zeros((1, 120, 3))}] * 10)
    >>> start = Spectral(n_shared=3, tol=1e-10)
    >>> shared = start.begin(data.shared_basis, 3, np.random.default_rng(0))
    >>> result = run(start, engine, Squared(), shared, max_rounds=50)
    >>> bool(subspace_error(result.shared["basis"][:, :3], data.shared_basis) < 1e-18)
    True
    """

    n_shared: int
    width: int | None = None
    reach: int | None = None
    tol: float = 0.02

    def begin(self, example: Array, n_unique: int, rng: np.random.Generator) -> State:
        """Return the shared state to start from.

        Parameters
        ----------
        example : array of shape (n1, ...)
            Any array of the length of the shared axis, and of the data's library and precision.
        n_unique : int
            The largest unique rank.
        rng : numpy Generator
            Draws the first directions.
        """
        n1 = example.shape[0]
        width = max(self.width or 0, self.reach or 0, self.n_shared + n_unique)
        width = min(n1, width + OVERSAMPLING)
        directions = like(orthonormal(rng.standard_normal((n1, width))), example)
        return {
            "basis": directions,
            "eigenvalues": directions[0, :] * 0,
            "columns": like(np.asarray(np.inf), example),
            "value": like(np.asarray(np.inf), example),
            "gradient": like(np.asarray(np.inf), example),
        }

    def init(self, source: Source, shared: State, local: State) -> State:
        """Find the leading directions of each matrix, and what its normal matrix makes of them."""
        xp = namespace(shared["basis"])
        count, n1, n2 = source.shape
        wanted = max(self.reach or 0, self._width(local))
        if "sketch" in local and local["sketch"].shape[-1] >= min(wanted, n1, n2):
            return local
        wanted = min(wanted, n1, n2)
        block = shared["basis"][:, : min(wanted + OVERSAMPLING, n1)]
        image = source.normal(xp.broadcast_to(block, (count, *block.shape)))
        for _ in range(MAX_PASSES - 1):
            block = orthonormal(image)
            image = source.normal(block)
            values, vectors = leading(block.mT @ image, wanted)
            residual = squared_norm((image - block @ (block.mT @ image)) @ vectors)
            if bool(xp.all(residual <= SKETCH_TOLERANCE**2 * xp.sum(values**2, axis=-1))):
                break
        # a direction without energy is an accident of rounding, and could be the same everywhere
        floor = values[..., :1] * (n1 * machine_epsilon(values))
        kept = xp.astype(values > floor, values.dtype)
        vectors = vectors * kept[..., None, :]
        return {
            "unique": local["unique"],
            "sketch": block @ vectors,
            "sketch_image": image @ vectors,
            "sketch_values": values * kept,
        }

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Project the basis on the leading directions of each matrix."""
        xp = namespace(shared["basis"])
        sketch = local["sketch"]
        sketch = sketch[..., : min(self._width(local), sketch.shape[-1])]
        projection = xp.sum(sketch @ (sketch.mT @ shared["basis"]), axis=0)
        count, _, n2 = source.shape
        numbers = {"sources": float(count), "columns": float(count * n2)}
        return local, {"projection": projection} | {
            name: like(np.asarray(number), projection) for name, number in numbers.items()
        }

    def _width(self, local: State) -> int:
        return self.width or self.n_shared + int(local["unique"].shape[-1])

    def merge(self, shared: State, total: Message) -> State:
        """Take one step of the subspace iteration."""
        xp = namespace(shared["basis"])
        basis, image = shared["basis"], total["projection"] / total["sources"]
        values, vectors = leading(basis.mT @ image, basis.shape[-1])
        top = vectors[:, : self.n_shared]
        outside = image @ top - (basis @ top) * values[: self.n_shared]
        size = squared_norm(image @ top)
        return shared | {
            "basis": orthonormal(image @ vectors),
            "eigenvalues": values,
            "columns": total["columns"] / total["sources"],
            "value": -xp.sum(values[: self.n_shared]),
            "gradient": xp.sqrt(squared_norm(outside) / xp.where(size > 0, size, size * 0 + 1)),
        }

    def finished(self, shared: State) -> str:
        """Say when the leading eigenvectors have settled."""
        if float(shared["gradient"]) <= self.tol:
            return "the leading directions have settled"
        return ""


@dataclass(frozen=True)
class OnSketch:
    """Another solver, run on the sources' sketches in place of their data.

    With the sketch's basis Q and image Y = S Q, the normal matrix S is replaced by
    ``F F' = Y (Q'Y)^-1 Y'``, which agrees with it on Q, and where Q'Y is diagonal: what the solver
    finds is nearly what it would find on the data, at a small part of the cost. The best unique
    basis is known exactly then: (I - UU') F V, with V the leading eigenvectors of F'(I - UU')F,
    which is no larger than the sketch is wide.
    """

    solver: Grassmann
    tol: float

    def init(self, source: Source, shared: State, local: State) -> State:
        """Factor the sketch."""
        xp = namespace(shared["basis"])
        values = local["sketch_values"]
        roots = xp.where(values > 0, xp.sqrt(values), values * 0 + np.inf)
        factor = local["sketch_image"] / roots[..., None, :]
        return local | {"factor": factor, "factor_gram": factor.mT @ factor}

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Answer as the solver would, with the unique bases exact."""
        xp = namespace(shared["trial"])
        basis, factor, gram = shared["trial"], local["factor"], local["factor_gram"]
        rank = min(int(local["unique"].shape[-1]), factor.shape[-1])
        inside = factor.mT @ basis
        values, vectors = leading(gram - inside @ inside.mT, rank)
        # a unique direction without energy can imitate nothing
        has_energy = values > trace(gram)[..., None] * machine_epsilon(gram)
        values = xp.where(has_energy, values, values * 0)
        vectors = xp.where(has_energy[..., None, :], vectors, vectors * 0)
        imitated = vectors.mT @ inside
        own = xp.sum(inside.mT @ inside, axis=0)
        lost = xp.sum(imitated.mT @ imitated, axis=0)
        message = {
            "value": -trace(own) - xp.sum(values),
            "gradient": xp.sum(factor @ (inside - vectors @ imitated), axis=0) + basis @ lost,
            "curvature": own - lost,
            "unsettled": xp.sum(values * 0),
            "sources": xp.sum(trace(gram) * 0 + 1),
        }
        return local, message

    def merge(self, shared: State, total: Message) -> State:
        """Let the solver merge."""
        return self.solver.merge(shared, total)

    def finished(self, shared: State) -> str:
        """Finish where the next step is too short to be worth a look at where it leads."""
        if float(shared["gradient"]) <= self.tol:
            return "the next step is short"
        return self.solver.finished(shared)


@dataclass(frozen=True)
class Start:
    """Where to begin, and how sure that is.

    Attributes
    ----------
    basis : array of shape (n1, n_shared)
    eigenvalues : array or None
        Of the mean projection, the largest first: near 1 for a direction that all sources have.
        None where it was not looked at.
    name : str
        Which start it is, in words.
    interrupted : bool
        Whether the search for it was stopped from the keyboard.
    """

    basis: Array
    eigenvalues: Array | None
    name: str
    interrupted: bool = False


def spectral_start(
    engine: Engine,
    loss: Loss,
    n_shared: int,
    n_unique: int,
    example: Array,
    rng: np.random.Generator,
) -> Start:
    """Find the spectral start; where it is in doubt, the best of several on the sketches.

    The start is in doubt where a shared direction has an eigenvalue well below 1. Spectral starts
    of other widths lie in other valleys then, and following each of them down on the sketches
    costs no pass over the data. Where the sketches are much smaller than the sources, the start
    that is taken has been followed down there in any case.

    Parameters
    ----------
    engine, loss
        Where the sources are, and the loss.
    n_shared, n_unique : int
        Ranks, the largest of the unique ones.
    example : array of shape (n1, ...)
        Any array of the length of the shared axis, and of the data's library and precision.
    rng : numpy Generator
        Draws the first directions.

    Returns
    -------
    Start
    """
    first = Spectral(n_shared)
    begin = first.begin(example, n_unique, rng)
    result = run(first, engine, loss, begin, max_rounds=MAX_ITERATIONS)
    eigenvalues = result.shared["eigenvalues"]
    basis = result.shared["basis"][:, :n_shared]
    found = Start(basis, eigenvalues, "spectral", result.interrupted)
    if not result.interrupted and float(eigenvalues[n_shared - 1]) < CLEAR:
        found = _best_of_several(engine, loss, found, n_unique, rng)
    columns = float(result.shared["columns"])
    if found.interrupted or columns < WORTHWHILE * (n_shared + n_unique):
        return found
    result = _followed(engine, loss, found, SKETCHED_TOLERANCE, MAX_SKETCHED)
    basis = result.shared["trial" if result.converged else "basis"]
    return replace(found, basis=basis, interrupted=result.interrupted)


def _followed(engine: Engine, loss: Loss, start: Start, tol: float, max_rounds: int) -> Result:
    """Follow a start down on the sources' sketches."""
    solver = Grassmann(start.basis.shape[1], tol=machine_epsilon(start.basis))
    begin = solver.start(start.basis)
    return run(OnSketch(solver, tol), engine, loss, begin, max_rounds=max_rounds)


def _best_of_several(
    engine: Engine,
    loss: Loss,
    first: Start,
    n_unique: int,
    rng: np.random.Generator,
) -> Start:
    """Let starts in several valleys compete on wider sketches."""
    n1, n_shared = first.basis.shape
    wide = Spectral(n_shared, reach=n1 if n1 <= SMALL else 3 * (n_shared + n_unique))
    engine.begin(wide, wide.begin(first.basis, n_unique, rng))
    found, best = first, np.inf
    for candidate in _candidates(engine, loss, first, wide, rng):
        result = _followed(engine, loss, candidate, COMPETING_TOLERANCE, MAX_COMPETING)
        if float(result.shared["value"]) < best:
            best = float(result.shared["value"])
            found = Start(result.shared["basis"], first.eigenvalues, candidate.name)
        if candidate.interrupted or result.interrupted:
            return replace(found, interrupted=True)
    return found


def _candidates(
    engine: Engine,
    loss: Loss,
    first: Start,
    wide: Spectral,
    rng: np.random.Generator,
) -> Iterator[Start]:
    """Yield the spectral start, those of narrower and wider spaces, and some random ones."""
    yield first
    n_shared = wide.n_shared
    assert wide.reach is not None
    for width in (n_shared, max(n_shared, wide.reach // 2)):
        spectral = replace(wide, width=width)
        begin = spectral.begin(first.basis, width, rng)
        result = run(spectral, engine, loss, begin, max_rounds=MAX_ITERATIONS)
        basis = result.shared["basis"][:, :n_shared]
        yield Start(basis, None, f"spectral (width {width})", result.interrupted)
    for number in range(RANDOM_STARTS):
        drawn = random_start(n_shared, first.basis, rng, number + 1)
        yield replace(drawn, name=f"{drawn.name} (on sketches)")


def random_start(
    n_shared: int, example: Array, rng: np.random.Generator, number: int, spread: float = 0.0
) -> Start:
    """Return a random basis: orthonormal, or with Gaussian entries of a given `spread`."""
    drawn = rng.standard_normal((example.shape[0], n_shared))
    basis = spread * drawn if spread else orthonormal(drawn)
    return Start(like(basis, example), None, f"random {number}" if number else "random")
