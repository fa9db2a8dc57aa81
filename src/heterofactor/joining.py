"""One source more for a fit to what was observed: the shared basis stays.

Under a ridge it stays in the frame that it had in the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heterofactor.canonical import ScoringObserved
from heterofactor.engines import Serial
from heterofactor.gaps import warn_of_gaps
from heterofactor.guess import newcomer_observed
from heterofactor.linalg import Array, like, namespace
from heterofactor.losses import Loss
from heterofactor.observed import Observed
from heterofactor.observing import equalised, observed_sources, raw_scale
from heterofactor.rounds import Message, State, run
from heterofactor.solvers.alternating import Alternating, Offsets
from heterofactor.tables import Centre, Tables

# The most sweeps of a source that is added to a fit.
SWEEPS = 500


@dataclass(frozen=True)
class Joining(Alternating):
    """Alternation in which the shared basis stays, and is not balanced against the scores."""

    def _solved(self, shared: State, total: Message) -> Array:
        return shared["trial"]

    def merge(self, shared: State, total: Message) -> State:
        """Choose what the source does next; the server only watches."""
        kept = {name: shared[name] for name in ("trial", "basis", "solution", "balance")}
        return super().merge(shared, total) | kept


def newcomer_of(
    tables: Tables,
    ranks: Sequence[int],
    basis: Array,
    turn: Array | None,
    loss: Loss,
    *,
    ridge: tuple[float, float],
    tol: float,
    centre: Centre,
    fixed: Array | None,
    absent: bool,
    equally: bool,
) -> tuple[State, Array | None, float]:
    """Return the scored private state of a new source, what turns its frame, and its energy.

    The energy is that of what was observed, by which it may be made to count as the others do.

    Parameters
    ----------
    tables : Tables
        One table.
    ranks : sequence of int
        Its unique rank.
    basis : array of shape (n1, n_shared)
        The canonical shared basis of the fit.
    turn : array of shape (n_shared, n_shared), optional
        What turns it into the one that had the ridge, if there was one.
    loss : Loss
        Of the fit, with its threshold.
    ridge : (float, float)
        Penalties of shared and unique factors.
    tol : float
        Relative change of the unique basis under a sweep, at which to stop.
    centre : {"source", "global", None}
        What of each feature is an offset.
    fixed : array of shape (n_features,), optional
        The offset itself, where it is that of the fit.
    absent : bool
        Whether entries that a sparse table does not store were not observed.
    equally : bool
        Whether every source counted the same in the fit.
    """
    sources, members = observed_sources(tables, ranks, loss, centre, absent=absent)
    warn_of_gaps(sources, members, ranks, tables, penalised=turn is not None and ridge[1] > 0)
    offsets: Offsets = None
    if centre == "source":
        offsets = "rows" if tables.shared_axis == "features" else "columns"
    source: Any = sources[0]
    if turn is None:
        local = newcomer_observed(source, ranks[0], basis, loss, tol, offsets=offsets, centre=fixed)
        return local, None, float(source.energy[0])
    if fixed is not None:
        source = replace(source, centre=fixed[None, :, None])
    energy = float(source.energy[0])
    source = equalised(source) if equally else source
    local, turned = _penalised(
        source,
        ranks[0],
        basis,
        turn,
        loss,
        Joining(int(basis.shape[1]), tol, ridge, offsets, unit=raw_scale([source])),
    )
    return local, turned, energy


def _penalised(
    source: Observed, rank: int, basis: Array, turn: Array, loss: Loss, solver: Joining
) -> tuple[State, Array]:
    """Sweep under the ridge, from the shared basis as it was in the fit."""
    n_shared = solver.n_shared
    begin = solver.start(basis) | {name: basis @ turn for name in ("trial", "basis", "solution")}
    unique = like(np.zeros((1, basis.shape[0], rank)), basis)
    engine = Serial([source], [{"unique": unique, "seed": np.asarray(0)}])
    result = run(solver, engine, loss, begin, max_rounds=SWEEPS)
    finish = ScoringObserved(n_shared, True, solver.offsets)
    local, _ = finish.step(source, loss, result.shared, engine.locals()[0])
    # from the frame that the last step has chosen to the canonical one
    rotation = finish._framed(result.shared["basis"]).mT @ basis
    turned = local["turned"][0, ...]
    xp = namespace(turned)
    turned = xp.concat([rotation.mT @ turned[:n_shared, :], turned[n_shared:, :]], axis=0)
    return local | {"shared_scores": local["shared_scores"] @ rotation}, turned
