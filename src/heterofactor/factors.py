r"""The answer: bases and scores of every source, in one canonical form.

A fit is identified as subspaces and as parts, not as single columns. The form chosen: the bases
are orthonormal and the unique ones orthogonal to the shared one, exactly (the gauge in which shared
and unique energy add up); components are ordered by the energy they explain, so that the shared
scores are uncorrelated over all sources together, and the unique scores within each source; and
the largest entry of a component is positive.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from heterofactor.linalg import Array, complement, leading, like, namespace, to_numpy
from heterofactor.losses import Loss
from heterofactor.rounds import Message, State
from heterofactor.sources import Source

Part = Literal["both", "shared", "unique"]


@dataclass(frozen=True)
class Scoring:
    """The last step of a fit, as a solver of one round: exact scores for the bases found."""

    def init(self, source: Source, shared: State, local: State) -> State:
        """Keep what the source has."""
        return local

    def step(
        self, source: Source, loss: Loss, shared: State, local: State
    ) -> tuple[State, Message]:
        """Put the unique basis into the gauge and into canonical form, and score."""
        xp = namespace(shared["basis"])
        basis, rank = shared["basis"], local["unique"].shape[-1]
        # where the solver has its image at hand, that is a subspace iteration further, for nothing
        unique = complement(basis, local.get("image", local["unique"]))
        scores = source.rmatmat(
            xp.concat(
                [xp.broadcast_to(basis, (*unique.shape[:-1], basis.shape[-1])), unique], axis=-1
            )
        )
        shared_scores, own = scores[..., : basis.shape[-1]], scores[..., basis.shape[-1] :]
        _, turn = leading(own.mT @ own, rank)
        # a product comes row by row: this way, each component in one piece
        unique, signs = _signed((turn.mT @ unique.mT).mT)
        local = {
            "unique": unique,
            "shared_scores": shared_scores,
            "unique_scores": own @ (turn * signs),
            "energy": source.energy,
        }
        return local, {"covariance": xp.sum(shared_scores.mT @ shared_scores, axis=0)}

    def merge(self, shared: State, total: Message) -> State:
        """Find the canonical form of the shared basis."""
        basis = shared["basis"]
        _, turn = leading(total["covariance"], basis.shape[-1])
        canonical, signs = _signed((turn.mT @ basis.mT).mT)
        return {
            "basis": canonical,
            "turn": turn * signs,
            "value": shared["value"],
            "gradient": shared["gradient"],
        }

    def finished(self, shared: State) -> str:
        """Finish after one round."""
        return "scored"


def _signed(basis: Array) -> tuple[Array, Array]:
    """Make the entry of each column that is largest in size positive."""
    xp = namespace(basis)
    extremes = xp.max(basis, axis=-2, keepdims=True) + xp.min(basis, axis=-2, keepdims=True)
    signs = xp.where(extremes < 0, extremes * 0 - 1, extremes * 0 + 1)
    return basis * signs, signs


@dataclass(frozen=True, eq=False)
class Factors:
    """Shared and unique factors of every source, in the paper's orientation.

    A source's centred matrix ``M_i`` (shared axis in rows) is
    ``shared_basis @ shared_scores[i].T + unique_bases[i] @ unique_scores[i].T`` and a residual.

    Attributes
    ----------
    shared_basis : array of shape (n1, n_shared)
        Orthonormal columns.
    unique_bases : dict of array of shape (n1, n_unique)
        Orthonormal columns, orthogonal to the shared basis.
    shared_scores, unique_scores : dict of array of shape (n2, rank)
        One row for each sample (for each feature, where the sources share their samples).
    energy : dict of float
        Sum of squares of each source, after centring.

    Examples
    --------
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import make_heterogeneous
    >>> data = make_heterogeneous(3, n_shared=2, n_unique=1, noise=0.1, random_state=0)
    >>> factors = HMF(2, 1, random_state=0).fit(data.sources).factors_
    >>> factors.part("source0", "shared").shape
    (120, 100)
    >>> factors.explained_variance().round(2)
             shared  unique  residual
    source0    0.65    0.34      0.01
    source1    0.56    0.43      0.01
    source2    0.62    0.37      0.01
    """

    shared_basis: Array
    unique_bases: dict[Hashable, Array]
    shared_scores: dict[Hashable, Array]
    unique_scores: dict[Hashable, Array]
    energy: dict[Hashable, float]

    @property
    def names(self) -> list[Hashable]:
        """The names of the sources."""
        return list(self.energy)

    def part(self, name: Hashable, part: Part = "both") -> Array:
        """Return a source's fitted matrix, or its shared or unique part.

        Parameters
        ----------
        name
            Of the source.
        part : {"both", "shared", "unique"}
            Which part.
        """
        if part not in ("both", "shared", "unique"):
            raise ValueError(f"part is {part!r}: expected 'both', 'shared' or 'unique'.")
        shared = self.shared_basis @ self.shared_scores[name].mT
        unique = self.unique_bases[name] @ self.unique_scores[name].mT
        return {"both": shared + unique, "shared": shared, "unique": unique}[part]

    def explained_variance(self, *, ratio: bool = True) -> pd.DataFrame:
        """Return what shared part, unique part and residual make up of each source.

        Parameters
        ----------
        ratio : bool
            As shares of each source, which add up to one; else as sums of squares, with their
            total.
        """
        shared, unique = self._energies(self.shared_scores), self._energies(self.unique_scores)
        total = np.array([self.energy[name] for name in self.names])
        table = np.column_stack(
            [[e.sum() for e in shared], [e.sum() for e in unique], np.zeros(len(total))]
        )
        table[:, 2] = total - table.sum(axis=1)
        names = pd.Index(self.names, tupleize_cols=False)
        columns = ["shared", "unique", "residual"]
        if not ratio:
            return pd.DataFrame(np.column_stack([table, total]), names, [*columns, "total"])
        nonzero = np.where(total > 0, total, 1.0)
        shares = table / nonzero[:, None]
        return pd.DataFrame(shares, names, columns)

    def component_variance(self) -> pd.DataFrame:
        """Return the share of each source that each component explains.

        A unique component that a source does not have is missing from its row.
        """
        shared, unique = self._energies(self.shared_scores), self._energies(self.unique_scores)
        rows = {}
        for name, a, b in zip(self.names, shared, unique, strict=True):
            whole = self.energy[name] or 1.0
            labels = [f"shared{k}" for k in range(len(a))] + [f"unique{k}" for k in range(len(b))]
            rows[name] = dict(zip(labels, np.concatenate([a, b]) / whole, strict=True))
        labels = max((list(row) for row in rows.values()), key=len)
        return pd.DataFrame(list(rows.values()), pd.Index(list(rows), tupleize_cols=False), labels)

    def _energies(self, scores: dict[Hashable, Array]) -> list[np.ndarray]:
        return [(to_numpy(s).astype(float) ** 2).sum(axis=0) for s in scores.values()]

    def misalignment(self) -> float:
        r"""How different the unique parts are, the paper's :math:`\theta`, as fitted.

        One minus the largest eigenvalue of the mean projection on the unique bases: near 0, some
        direction is in nearly every unique part, and should perhaps be shared.
        """
        bases = [to_numpy(basis) for basis in self.unique_bases.values()]
        wide = np.hstack(bases)
        if wide.shape[1] == 0:
            return 1.0
        thin = wide if wide.shape[0] >= wide.shape[1] else wide.T
        largest = np.linalg.eigvalsh(thin.T @ thin)[-1]
        return float(1 - largest / len(bases))

    def with_source(self, name: Hashable, local: State) -> Factors:
        """Return the factors with one source more, from its scored private state."""
        return Factors(
            self.shared_basis,
            {**self.unique_bases, name: local["unique"][0, ...]},
            {**self.shared_scores, name: local["shared_scores"][0, ...]},
            {**self.unique_scores, name: local["unique_scores"][0, ...]},
            {**self.energy, name: float(local["energy"][0])},
        )


def assemble(
    shared: State,
    locals_: Sequence[State],
    members: Sequence[Sequence[int]],
    names: Sequence[Hashable],
    weights: Sequence[float],
    lengths: Sequence[int] | None = None,
) -> Factors:
    """Collect the factors of all sources from the private states of their stacks.

    Parameters
    ----------
    shared, locals_
        The scored states.
    members : sequence of sequence of int
        The place of each matrix of each stack.
    names, weights : sequence
        Of the sources; scores are brought back to the units of the data.
    lengths : sequence of int, optional
        How many scores each source has, where a stack has more for some.
    """
    found: dict[int, tuple[Array, Array, Array, float]] = {}
    for local, places in zip(locals_, members, strict=True):
        xp = namespace(shared["basis"])
        scale = np.array([weights[place] for place in places])
        unit = like(1 / scale, shared["basis"])[:, None, None]
        energy = to_numpy(local["energy"]).astype(float) / scale**2
        kinds = (
            local["unique"],
            local["shared_scores"] @ (shared["turn"] * unit),
            local["unique_scores"] * unit,
        )
        of_each = zip(*map(xp.unstack, kinds), energy.tolist(), strict=True)
        found.update(zip(places, of_each, strict=True))
    if lengths is not None:
        for place, (unique, shared_scores, own, energy) in found.items():
            cut = slice(lengths[place])
            found[place] = unique, shared_scores[cut, :], own[cut, :], energy
    ordered = [found[place] for place in range(len(names))]
    by_kind = [dict(zip(names, kind, strict=True)) for kind in zip(*ordered, strict=True)]
    return Factors(shared["basis"], *by_kind)
