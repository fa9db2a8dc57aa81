"""Small problems with a known truth, on which solvers and engines are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heterofactor.datasets.generator import make_heterogeneous
from heterofactor.linalg import Array, orthonormal
from heterofactor.rounds import State
from heterofactor.sources import Dense

N_ROWS, N_COLUMNS = 10, 15
# Two sources that stack, one of another rank, and one without a unique part.
RANKS = (2, 2, 1, 0)
STACKS = ((0, 1), (2,), (3,))
STEPS = 2000


@dataclass(frozen=True, eq=False)
class Problem:
    """Matrices in the paper's orientation, the unique rank of each, and the true shared basis."""

    matrices: list[Any]
    basis: Any

    def sources(self, stacks: Sequence[Sequence[int]] = STACKS) -> list[Dense]:
        """Return the matrices as stacks."""
        return [Dense(np.stack([self.matrices[k] for k in places])) for places in stacks]

    def locals(self, stacks: Sequence[Sequence[int]] = STACKS) -> list[State]:
        """Return what each stack has before the first stage, as a search gives it."""
        return [
            {
                "unique": np.zeros((len(places), N_ROWS, RANKS[places[0]]), self.basis.dtype),
                "seed": np.asarray(places[0]),
            }
            for places in stacks
        ]

    @property
    def energy(self) -> float:
        """The sum of squares of all matrices."""
        return float(sum((M**2).sum() for M in self.matrices))

    def residual(self, basis: Array, unique: Sequence[Array]) -> float:
        """Return what bases leave of the matrices, whatever their scale and angles."""
        left = 0.0
        for M, own in zip(self.matrices, unique, strict=True):
            frame = orthonormal(np.hstack([basis, own]).astype(float))
            left += float(((M - frame @ (frame.T @ M)) ** 2).sum())
        return left

    def best_residual(self, start: Array) -> float:
        """Return what the best bases near `start` leave.

        By the plainest of all algorithms: the best unique bases for a shared one, from a full
        eigendecomposition, and the shared basis that spans their gradient, 2000 times over.
        """
        U, squares = start, [M @ M.T for M in self.matrices]
        unique: list[Array] = []
        for _ in range(STEPS):
            off = np.eye(N_ROWS) - U @ U.T
            unique = [
                np.linalg.eigh(off @ S @ off)[1][:, N_ROWS - rank :]
                for S, rank in zip(squares, RANKS, strict=True)
            ]
            parts = [
                S @ U - own @ (own.T @ (S @ U)) for S, own in zip(squares, unique, strict=True)
            ]
            U = orthonormal(sum(parts))
        return self.residual(U, unique)


def make_problem(n_shared: int, noise: float, *, scale: float = 1.0, dtype: Any = float) -> Problem:
    """Make a problem that is well conditioned: what is checked is the solver, not the data."""
    data = make_heterogeneous(
        len(RANKS),
        N_COLUMNS,
        N_ROWS,
        n_shared,
        RANKS,
        noise=noise,
        scores="orthonormal",
        spread=1.5,
        random_state=0,
    )
    matrices = [np.asarray(scale * table.T, dtype=dtype) for table in data.sources.values()]
    return Problem(matrices, data.shared_basis.astype(dtype))
