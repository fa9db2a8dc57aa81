"""What a site has of its own: its tables as sources, and the model that they become at the end."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from heterofactor.brought import read_tables
from heterofactor.federation.messages import described, restored
from heterofactor.hmf import HMF
from heterofactor.linalg import Array, like
from heterofactor.losses import Loss
from heterofactor.ranks import resolve_ranks
from heterofactor.rounds import Result, State
from heterofactor.search import Found
from heterofactor.sources import Source, weigh
from heterofactor.start import Start
from heterofactor.tables import Tables

# What of a model the sites have to know; the rest is how the server goes about it.
SENT = ("n_shared", "loss", "solver", "centre", "scale", "missing", "ridge", "tol", "max_rounds")


@dataclass(frozen=True, eq=False)
class Owned:
    """A site's tables, ready for a fit.

    Attributes
    ----------
    model : HMF
        As the server described it, for this site's sources.
    tables : Tables
        As they were read.
    sources : list of Source
        Stacks of matrices.
    members : list of list of int
        Which tables each stack stands for.
    ranks : list of int
        The unique rank of each table.
    plain : bool
        Whether the tables are fitted as complete ones under squared loss.
    centres : list of arrays or None
        What is subtracted, where they are complete.
    weights : list of float
        What complete tables are multiplied with.
    equal : dict of float
        What others are multiplied with, where each source counts the same.
    """

    model: HMF
    tables: Tables
    sources: Sequence[Any]
    members: list[list[int]]
    ranks: list[int]
    plain: bool
    centres: list[Array | None]
    weights: list[float]
    equal: dict[Hashable, float]

    def locals(self, seed: int, site: str) -> list[State]:
        """Return the private states from which a fit begins."""
        seeds = np.random.SeedSequence([seed, crc32(site.encode())]).spawn(len(self.sources))
        example = self.tables.example()
        return [
            {
                "unique": like(np.zeros((source.shape[0], n1, self.ranks[places[0]])), example),
                "seed": np.asarray(one.generate_state(1)[0]),
            }
            for source, places, one in zip(self.sources, self.members, seeds, strict=True)
            for n1 in (self.tables.shared_length,)
        ]

    def finished(
        self, shared: State, locals_: list[State], loss: Loss, told: Mapping[str, Any]
    ) -> HMF:
        """Return the fitted model of this site, from the scored states.

        Parameters
        ----------
        shared : dict of arrays
            The canonical basis, and how it was turned.
        locals_ : list of dict of arrays
            The scored private states.
        loss : Loss
            With the threshold that was found.
        told : mapping
            How the run went: the history, and why it stopped.
        """
        history = [(float(value), float(gradient)) for value, gradient in told["history"]]
        result = Result(
            {"value": np.asarray(history[-1][0]), "gradient": np.asarray(history[-1][1])},
            history,
            told["converged"],
            told["stopped"],
        )
        eigenvalues = told["eigenvalues"]
        known = None if eigenvalues is None else np.asarray(eigenvalues)
        start = Start(shared["basis"], known, told["start"])
        rounds = [(start.name, *round_) for round_ in history]
        found = Found(result, start, shared, locals_, rounds, loss)
        if self.plain:
            self.model._keep_complete(found, self.members, self.centres, self.weights, self.tables)
        else:
            self.model._keep_observed(
                found, self.sources, self.members, self.equal, self.tables, None
            )
        return self.model


def settings_of(model: HMF) -> dict[str, Any]:
    """Return what sites have to know of a model, as JSON.

    Parameters
    ----------
    model : HMF
        Not fitted.

    Examples
    --------
    >>> from heterofactor import HMF
    >>> from heterofactor.federation.owned import settings_of
    >>> settings_of(HMF(2, {"north": 1, "south": 3}))["n_unique"]
    {'north': 1, 'south': 3}
    """
    ranks = model.n_unique
    if isinstance(ranks, Mapping):
        wide: Any = {str(name): int(rank) for name, rank in ranks.items()}
    elif isinstance(ranks, (int, np.integer)):
        wide = int(ranks)
    else:
        raise ValueError(
            f"n_unique is {ranks!r}: the sources of a federation have no order, so give one number "
            "for all, or a dict by the sources' names."
        )
    return {name: described(getattr(model, name)) for name in SENT} | {"n_unique": wide}


def make_owned(
    X: Any, sources: Any, settings: Mapping[str, Any], plain: bool, mean_energy: float | None
) -> Owned:
    """Make a site's tables ready for a fit.

    Parameters
    ----------
    X, sources
        The site's data, as `HMF.fit` takes them.
    settings : mapping
        What `settings_of` returned.
    plain : bool
        Whether all sites have complete tables, and squared loss is all that is asked for.
    mean_energy : float, optional
        Of a source, over all sites, once it is known; by its size the data are scaled.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor import HMF
    >>> from heterofactor.federation.owned import make_owned, settings_of
    >>> owned = make_owned({"north": np.eye(4)}, None, settings_of(HMF(1, 1)), True, None)
    >>> [source.shape for source in owned.sources]
    [(1, 4, 4)]
    """
    wanted = dict(settings)
    ranks = wanted.pop("n_unique")
    ridge = restored(wanted.pop("ridge"))
    model = HMF(n_unique=ranks, ridge=ridge, **{k: restored(v) for k, v in wanted.items()})
    tables = model._read(X, sources, reset=True)
    if isinstance(ranks, dict):
        missing = [name for name in tables.names if str(name) not in ranks]
        if missing:
            raise ValueError(
                f"n_unique has no rank for source {missing[0]!r}: the server must name it."
            )
        model.n_unique = {name: ranks[str(name)] for name in tables.names}
    by_table = resolve_ranks(model.n_shared, model.n_unique, tables)
    centres: list[Array | None] = [None] * len(by_table)
    weights = [1.0] * len(by_table)
    equal: dict[Hashable, float] = {}
    stacks: Sequence[Source]
    if plain:
        centres = tables.centres(model.centre)
        stacks, members = tables.sources(centres, by_table)
        if model.scale:
            stacks, weights = weigh(stacks, members, tables.names, each=True)
        elif mean_energy is not None and model._solver("grassmann").scale_free:
            unit = 2.0 ** -round(np.log2(mean_energy or 1.0) / 2)
            weights = [unit] * len(by_table)
            stacks = [s.weighted(like(np.full(s.shape[0], unit), s.energy)) for s in stacks]
    else:
        stacks, members, equal = model._observed(tables, by_table, None)
    return Owned(model, tables, stacks, members, by_table, plain, centres, weights, equal)


def facts_of(X: Any, sources: Any) -> tuple[Tables, bool]:
    """Return a site's tables, and whether they are complete.

    Parameters
    ----------
    X, sources
        The site's data, as `HMF.fit` takes them.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.federation.owned import facts_of
    >>> facts_of({"north": np.array([[1.0, np.nan]])}, None)[1]
    False
    """
    tables = read_tables(X, sources)
    return tables, tables.complete
