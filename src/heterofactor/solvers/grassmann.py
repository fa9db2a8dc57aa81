r"""The default solver: variable projection, and quasi-Newton steps on the Grassmannian.

For squared loss and complete data, with :math:`S_i = M_i M_i'` and an orthonormal shared basis
:math:`U`, the best unique basis of a source is known: the leading eigenvectors :math:`U_i` of
:math:`(I - UU') S_i (I - UU')`. What is left to maximise is the captured energy, a smooth function
of the subspace of :math:`U` alone,

.. math:: f(U) = \sum_i \operatorname{tr}(U' S_i U) + \operatorname{tr}(U_i' S_i U_i),

with half its gradient :math:`R = (I - UU') G`, :math:`G = \sum_i (I - U_i U_i') S_i U`. A source
answers with :math:`G_i` and :math:`L_i`, an r1 x r1 curvature: if only :math:`U` and
:math:`U_i` carry energy, the Hessian of a source is :math:`D \mapsto (I - U_i U_i') D L_i` with
:math:`L_i = U'S_iU - U'S_iU_i (U_i'S_iU_i)^{-1} U_i'S_iU`, the part of the shared scores' Gram
matrix that the unique scores cannot imitate. So :math:`R L^{-1}` is nearly Newton's step, and
L-BFGS learns the rest.

The unique basis is carried from round to round by one subspace iteration, which costs nothing:
the product :math:`S_i U_i` that the gradient needs anyway. It must not be projected off the *old*
shared basis first: its component there is the first-order answer of the unique basis to the
step that the shared basis is about to take. The gradient is taken where that iteration is going:
with :math:`E_i` for what :math:`[U, U_i]` leaves of :math:`S_i U_i`, at
:math:`U_i + E_i (U_i'S_iU_i)^{-1}`, so that it is exact to first order while the unique bases are
still on their way. The relative gradient that is reported is the larger of :math:`|R|/|G|` and
the root mean square over the sources of :math:`|E_i|` relative to their energy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heterofactor.linalg import (
    Array,
    beside,
    complement,
    leading,
    like,
    machine_epsilon,
    namespace,
    polar,
    squared_norm,
    symmetric,
    trace,
    zeros,
)
from heterofactor.losses import Loss
from heterofactor.rounds import Message, State
from heterofactor.sources import Source

# Unique bases are found to this share of the shared basis' own relative gradient at first; to a
# smaller share, down to the least, where rounds fail to make progress.
FORCING = 0.1
LEAST_FORCING = 1e-4
ARMIJO = 1e-4
# The longest step, as the tangent of the largest angle by which the basis turns.
LONGEST = 1.0


@dataclass(frozen=True)
class Grassmann:
    """Preconditioned L-BFGS over the shared subspace, with the unique bases projected out.

    Parameters
    ----------
    n_shared : int
        Shared directions.
    tol : float
        Relative gradient at which to stop; not below what the precision can resolve.
    memory : int
        Pairs of steps and gradients that L-BFGS keeps.
    max_inner : int
        Passes over its data that a source may add to a round to find its unique basis.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.datasets import make_heterogeneous
    >>> from heterofactor.engines import Serial
    >>> from heterofactor.losses import Squared
    >>> from heterofactor.rounds import run
    >>> from heterofactor.solvers import Grassmann
    >>> from heterofactor.sources import Dense
    >>> data = make_heterogeneous(noise=0.1, random_state=0)
    >>> sources = [Dense(table.T[None]) for table in data.sources.values()]
    >>> engine = Serial(sources, [{"unique": np.zeros((1, 120, 3))}] * 10)
    >>> solver = Grassmann(n_shared=3, tol=1e-6)
    >>> given = solver.start(data.shared_basis)
    >>> result = run(solver, engine, Squared(), given, max_rounds=50)
    >>> result.stopped, len(result.history) < 10
    ('the relative gradient fell below 1e-06', True)
    """

    n_shared: int
    tol: float = 1e-8
    memory: int = 12
    max_inner: int = 20

    @property
    def scale_free(self) -> bool:
        """Whether its settings mean the same in any units of the data: they do."""
        return True

    @property
    def spread(self) -> float:
        """The size of a small random start: none, it starts spectrally."""
        return 0.0

    def start(self, basis: Array) -> State:
        """Return the shared state that starts at an orthonormal basis."""
        xp = namespace(basis)
        zero = xp.sum(basis) * 0
        none = basis[None, ...][:0, ...]
        return {
            "trial": basis,  # where the sources are asked next
            "basis": basis,  # the best point so far, to which all below belongs
            "value": zero + np.inf,
            "gradient": zero + np.inf,
            "forcing": zero + FORCING,
            "inner_tolerance": zero + FORCING,
            "slope": basis * 0,  # the Riemannian gradient of minus the energy, halved
            "curvature": basis.mT @ basis,
            "direction": basis * 0,
            "length": zero + 1,
            "steps": none,
            "yields": none,
        }

    def init(self, source: Source, shared: State, local: State) -> State:
        """Begin the unique basis from the source's sketch, or from two passes over its data."""
        basis, rank = shared["trial"], local["unique"].shape[-1]
        if "sketch" not in local:
            rng = np.random.default_rng(0)
            block = like(rng.standard_normal((*source.shape[:2], rank)), basis)
            image = source.normal(complement(basis, source.normal(block)))
            return {"unique": local["unique"], "image": image}
        # With S = Q diag Q' on the sketch, the best block is a small eigenvalue problem.
        sketch, image = local["sketch"], local["sketch_image"]
        inside = sketch.mT @ basis
        width = sketch.shape[-1]
        off = like(np.eye(width), basis) - inside @ inside.mT
        _, vectors = leading(off @ (sketch.mT @ image) @ off, min(rank, width))
        return {"unique": local["unique"], "image": image @ (off @ vectors)}

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Find the unique bases for the shared one; answer with energy, gradient and curvature."""
        xp = namespace(shared["trial"])
        r1, rank = self.n_shared, local["unique"].shape[-1]
        frame, image, core, outside = self._best_frame(source, shared, local["image"], rank)
        energy = trace(core)
        cross, own = core[..., r1:, :r1], core[..., r1:, r1:]
        # a unique direction without energy can imitate nothing, and has nowhere to go
        ridge = energy[..., None, None] * machine_epsilon(core) ** (1 / 3)
        damped = own + xp.where(ridge > 0, ridge, ridge * 0 + 1) * like(np.eye(rank), core)
        imitated = xp.linalg.solve(damped, cross)
        # the bases are on their way from U_i to U_i + outside own^-1, and G to first order as well
        ahead = cross + xp.linalg.solve(damped, outside.mT @ image[..., :r1])
        slopes = image[..., :r1] - frame[..., r1:] @ ahead - outside @ imitated
        message = {
            "value": -xp.sum(energy, axis=0),
            "gradient": xp.sum(slopes, axis=0),
            "curvature": xp.sum(core[..., :r1, :r1] - cross.mT @ imitated, axis=0),
            "unsettled": xp.sum(_unsettled(core, outside), axis=0),
            "sources": xp.sum(energy * 0 + 1, axis=0),
        }
        return {"unique": frame[..., r1:], "image": image[..., r1:]}, message

    def _best_frame(
        self, source: Source, shared: State, block: Array, rank: int
    ) -> tuple[Array, Array, Array, Array]:
        """Return ``F = [U, U_i]``, ``S F``, ``F' S F``, and the part of ``S U_i`` outside of F.

        Warm subspace iteration; where that is not enough, LOBPCG.
        """
        xp = namespace(block)
        basis, r1 = shared["trial"], self.n_shared
        basis = xp.broadcast_to(basis, (*block.shape[:-1], r1))
        frame = xp.concat([basis, self._filled(basis, block, rank)], axis=-1)
        image = source.normal(frame)
        previous = None
        for passes in range(self.max_inner + 1):
            core = frame.mT @ image
            # the shared columns are allowed any image: only the unique ones must be eigenvectors
            outside = image[..., r1:] - frame @ core[..., r1:]
            residual = float(xp.mean(_unsettled(core, outside))) ** 0.5
            if passes == self.max_inner or residual <= float(shared["inner_tolerance"]):
                break
            unique = frame[..., r1:]
            parts = [unique, outside] + ([] if previous is None else [previous])
            wider = complement(basis, xp.concat(parts, axis=-1))
            wider_image = source.normal(wider)
            _, vectors = leading(wider.mT @ wider_image, rank)
            previous = unique
            frame = xp.concat([basis, wider @ vectors], axis=-1)
            image = xp.concat([image[..., :r1], wider_image @ vectors], axis=-1)
        return frame, image, core, outside

    def _filled(self, basis: Array, block: Array, rank: int) -> Array:
        """Make the block orthonormal beside the basis, and as wide as the unique rank."""
        missing = rank - int(block.shape[-1])
        return complement(basis, beside([block, zeros(block, missing)]) if missing else block)

    def merge(self, shared: State, total: Message) -> State:
        """Accept the point and choose the next direction, or halve the step."""
        xp = namespace(shared["basis"])
        value = total["value"]
        rounding = 100 * machine_epsilon(value) * xp.abs(value)
        expected = 2 * xp.sum(shared["slope"] * shared["direction"])
        bound = shared["value"] + ARMIJO * shared["length"] * expected + rounding
        if float(value) > float(bound):
            shared = self._tighten(shared, 0.1)
            return self._ask(shared | {"length": shared["length"] / 2})
        return self._accept(shared, total)

    def _tighten(self, shared: State, factor: float) -> State:
        """Ask for more accurate unique bases from now on."""
        xp = namespace(shared["basis"])
        forcing = xp.maximum(factor * shared["forcing"], shared["forcing"] * 0 + LEAST_FORCING)
        floor = self._floor(shared["basis"])
        target = xp.maximum(shared["gradient"], shared["gradient"] * 0 + floor)
        return shared | {"forcing": forcing, "inner_tolerance": forcing * target}

    def _accept(self, shared: State, total: Message) -> State:
        xp = namespace(shared["basis"])
        basis = shared["trial"]
        slope = basis @ (basis.mT @ total["gradient"]) - total["gradient"]
        gradient = xp.sqrt(squared_norm(slope) / (squared_norm(total["gradient"]) + _tiny(slope)))
        gradient = xp.maximum(gradient, xp.sqrt(total["unsettled"] / total["sources"]))
        steps = _tangent(basis, shared["steps"])
        yields = _tangent(basis, shared["yields"])
        if bool(xp.isfinite(shared["value"])):
            taken = _tangent(basis, shared["length"] * shared["direction"])
            yielded = slope - _tangent(basis, shared["slope"])
            if float(xp.sum(taken * yielded)) > 0:
                steps = _latest(steps, taken, self.memory)
                yields = _latest(yields, yielded, self.memory)
            else:
                steps, yields = steps[:0, ...], yields[:0, ...]
        stalled = float(gradient) > 0.5 * float(shared["gradient"])
        shared = shared | {
            "basis": basis,
            "value": total["value"],
            "gradient": gradient,
            "slope": slope,
            "curvature": symmetric(total["curvature"]),
            "steps": steps,
            "yields": yields,
        }
        if self.finished(shared):
            return shared
        shared = self._tighten(shared, 0.3 if stalled else 1.0)
        if self.n_shared == 0:
            return shared
        direction = _tangent(basis, self._direction(shared))
        turn = float(xp.sqrt(xp.max(xp.linalg.eigvalsh(direction.mT @ direction))))
        length = shared["length"] * 0 + min(1.0, LONGEST / turn if turn > 0 else 1.0)
        return self._ask(shared | {"direction": direction, "length": length})

    def _ask(self, shared: State) -> State:
        point = polar(shared["basis"] + shared["length"] * shared["direction"])
        return shared | {"trial": point}

    def _direction(self, shared: State) -> Array:
        """Run the two-loop recursion of L-BFGS, with :math:`z L^{-1}` for its first Hessian."""
        xp = namespace(shared["basis"])
        values, vectors = xp.linalg.eigh(shared["curvature"])
        values = xp.maximum(values, values[-1] * machine_epsilon(values) ** 0.5 + _tiny(values))
        inverse = (vectors / values) @ vectors.mT
        steps, yields = shared["steps"], shared["yields"]
        curves = xp.sum(steps * yields, axis=(-2, -1))
        q, shares = shared["slope"], {}
        for k in reversed(range(steps.shape[0])):
            shares[k] = xp.sum(steps[k, ...] * q) / curves[k]
            q = q - shares[k] * yields[k, ...]
        z = q @ inverse
        if steps.shape[0]:
            z = z * (curves[-1] / xp.sum(yields[-1, ...] * (yields[-1, ...] @ inverse)))
        for k in range(steps.shape[0]):
            z = z + steps[k, ...] * (shares[k] - xp.sum(yields[k, ...] * z) / curves[k])
        return -z

    def _floor(self, basis: Array) -> float:
        return max(self.tol, 100 * machine_epsilon(basis))

    def finished(self, shared: State) -> str:
        """Say when the gradient is small, or no step lowers the value any more."""
        floor = self._floor(shared["basis"])
        if float(shared["gradient"]) <= floor:
            return f"the relative gradient fell below {floor:.0e}"
        if float(shared["length"]) < machine_epsilon(shared["basis"]):
            gradient = float(shared["gradient"])
            return f"no step improves the fit any more, at a relative gradient of {gradient:.0e}"
        return ""


def _tangent(basis: Array, directions: Array) -> Array:
    """Carry directions to the tangent space at a basis."""
    return directions - basis @ (basis.mT @ directions)


def _unsettled(core: Array, outside: Array) -> Array:
    """Return the squared residual of each source's unique basis, relative to its energy."""
    return squared_norm(outside) / (trace(core) ** 2 + _tiny(core))


def _latest(stack: Array, matrix: Array, count: int) -> Array:
    """Put one matrix more on a stack, and keep the last `count`."""
    kept = stack[max(0, stack.shape[0] + 1 - count) :, ...]
    return namespace(stack).concat([kept, matrix[None, ...]])


def _tiny(array: Array) -> float:
    return float(namespace(array).finfo(array.dtype).smallest_normal)
