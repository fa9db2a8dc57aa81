"""HMF, the scikit-learn face: from tables to factors, and from new samples to scores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from heterofactor.canonical import ScoringObserved, offsets_by_source, turned_by_source
from heterofactor.checkpoint import Checkpoint, keeper_of
from heterofactor.diagnostics import Diagnostics
from heterofactor.engines import ENGINES
from heterofactor.factors import assemble
from heterofactor.gaps import warn_of_certainty, warn_of_gaps
from heterofactor.linalg import Array
from heterofactor.losses import LOSSES, Loss, Squared, ridges
from heterofactor.memory import bytes_of, within
from heterofactor.model import SharedUniqueModel
from heterofactor.observed import Observed
from heterofactor.observing import (
    equal_weights,
    equalised,
    observed_sources,
    raw_scale,
    read_weights,
)
from heterofactor.outliers import has_outliers
from heterofactor.ranks import Ranks, resolve_ranks
from heterofactor.rounds import MakeEngine, Solver
from heterofactor.search import Found, search
from heterofactor.solvers import SOLVERS, Alternating, Grassmann
from heterofactor.solvers.alternating import Offsets
from heterofactor.sources import Source, weigh
from heterofactor.tables import Centre, SharedAxis, Tables

# What to do where a fit has not converged.
PATIENCE = "Raise max_rounds, or tol."
PATIENCE_OR_RIDGE = (
    "Raise max_rounds, or tol; where the ranks are too large for what was observed, lower them or "
    "set a ridge."
)


class HMF(SharedUniqueModel, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    r"""Heterogeneous matrix factorization: what sources share, and what is unique to each.

    Every source's table is written as a shared part, a unique part and a residual,

    .. math:: X_i^\top \approx U V_i^\top + U_i W_i^\top, \qquad U^\top U_i = 0,

    with one shared basis :math:`U` for all sources and a unique basis :math:`U_i` for each. Both
    parts are exactly orthogonal, so that what they explain adds up.

    Parameters
    ----------
    n_shared : int
        Number of shared components.
    n_unique : int, sequence of int, or dict of int
        Number of unique components: for all sources, in their order, or by name.
    loss : {"squared", "huber", "absolute", "trimmed", "logistic", "poisson"} or Loss
        What a deviation costs. ``"huber"``, ``"absolute"`` and ``"trimmed"`` are for outliers,
        with a threshold that is found from the data; ``"logistic"`` is for answers of 0 and 1,
        whose log-odds are factored, and ``"poisson"`` for counts, whose logarithms are.
    solver : {"auto", "grassmann", "alternating", "averaging"} or Solver
        How the factors are found: a quasi-Newton method (``"grassmann"``) where tables are
        complete and the loss is squared, accelerated alternation (``"alternating"``) elsewhere.
        ``"averaging"`` is Algorithm 1 of the paper, for anything.
    engine : {"threads", "serial"} or callable
        Where the sources' steps run; a callable makes an engine of sources and private states.
    shared_axis : {"features", "samples"}
        What the sources have in common: the columns of their tables, or the rows.
    centre : {"source", "global", None}
        Subtract from every feature its mean within each source, its mean over all sources, or
        nothing.
    scale : {"source", None}
        With ``"source"`` every source counts the same, whatever its size and units: in the fit
        each is divided by its norm after centring. By default a source with more samples or
        larger units counts for more. Components, scores and reconstructions keep their units.
    missing : {"nan", "absent"}
        What marks entries that were not observed: NaN, or also being absent from a scipy.sparse
        table, whose absent entries are zeros otherwise.
    ridge : float or (float, float), optional
        Penalty on the squares of bases and scores: for all, or for shared and unique ones. Shrinks
        what few entries tell of, and so predicts unobserved entries better from noisy data. Unless
        given there is none, but 2 under the logistic and the Poisson loss, where lines of which
        all answers are alike would be predicted at infinity.
    tol : float
        Relative gradient at which to stop.
    max_rounds : int
        When to give up.
    n_restarts : int
        Random starts besides the first one; the best fit is kept.
    checkpoint : str, path or Checkpoint, optional
        A file that keeps the state of the run while it runs. A fit that was killed or interrupted
        goes on from there if it is asked for again, with the same tables and settings (but
        `max_rounds` and `engine` may differ); the file goes when the fit is done.
    max_memory : str or int, optional
        What a fit may take of memory for factors and for blocks of tables that are read from where
        they lie, such as ``"2GB"``. Memory maps are read so only if it is given, and are arrays
        like all others otherwise.
    random_state : int, RandomState or None
        For everything random: same seed, same answer.
    verbose : int
        Show the progress of the rounds.

    Attributes
    ----------
    shared_components_ : array of shape (n_shared, n1)
        Orthonormal rows; n1 is the length of the shared axis (the number of features, unless
        samples are shared).
    unique_components_ : dict of array of shape (n_unique, n1)
        By source; orthonormal rows, orthogonal to the shared ones.
    factors_ : Factors
        Bases and scores of every source.
    source_names_ : list
        The names of the sources, 0, 1, ... where none were given.
    explained_variance_ : DataFrame
        Sums of squares by source: shared, unique, residual and their total.
    explained_variance_ratio_ : DataFrame
        The same as shares of each source.
    centres_ : dict of array or None
        What was subtracted from each source's features.
    loss_ : Loss
        The loss, with the threshold that was found from the data where that was left open.
    outliers_ : dict of scipy.sparse array
        With ``loss="trimmed"``, by source: observed minus fitted at the entries that were left out,
        in the orientation of the table; with ``"huber"``, by how much errors are beyond the
        threshold. They have a column of their own in `explained_variance_`.
    history_ : DataFrame
        One row a round: start, value (lower is better), relative gradient.
    n_rounds_ : int
        Rounds of the run that led to the answer.
    converged_ : bool
        Whether `tol` was reached.
    diagnostics_ : Diagnostics
        Whether to trust the fit, in sentences.
    n_features_in_ : int
        Number of features, where one number holds for all sources.

    References
    ----------
    Naichen Shi, Salar Fattahi, Raed Al Kontar. Heterogeneous Matrix Factorization: When Features
    Differ by Datasets.

    Examples
    --------
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import load_mice_protein
    >>> mice = load_mice_protein()
    >>> model = HMF(n_shared=3, n_unique=2, random_state=0).fit(mice.sources)
    >>> model.explained_variance_ratio_.loc["c-CS-s"].round(2).to_dict()
    {'shared': ..., 'unique': ..., 'residual': ...}
    >>> model.transform(mice.sources["c-CS-s"], sources="c-CS-s").shape
    (120, 5)
    """

    def __init__(
        self,
        n_shared: int = 1,
        n_unique: Ranks = 1,
        *,
        loss: str | Loss = "squared",
        solver: str | Solver = "auto",
        engine: str | MakeEngine = "threads",
        shared_axis: SharedAxis = "features",
        centre: Centre = "source",
        scale: Literal["source"] | None = None,
        missing: Literal["nan", "absent"] = "nan",
        ridge: float | tuple[float, float] | None = None,
        tol: float = 1e-8,
        max_rounds: int = 500,
        n_restarts: int = 0,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        max_memory: str | int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_shared = n_shared
        self.n_unique = n_unique
        self.loss = loss
        self.solver = solver
        self.engine = engine
        self.shared_axis = shared_axis
        self.centre = centre
        self.scale = scale
        self.missing = missing
        self.ridge = ridge
        self.tol = tol
        self.max_rounds = max_rounds
        self.n_restarts = n_restarts
        self.checkpoint = checkpoint
        self.max_memory = max_memory
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, sources: Any = None, weights: Any = None) -> Self:
        """Find the shared and unique factors.

        Parameters
        ----------
        X : dict, list or tuple of tables, 3-d array, or one table
            A table is an array, a DataFrame or a scipy.sparse matrix (whose absent entries are
            zeros unless ``missing="absent"``), with samples in rows, and NaN where nothing was
            observed. Also `ObservedEntries`. A complete table need not be in memory: it may be a
            path (``.npy``, ``.parquet``), an object with shape, dtype and slices (of zarr or h5py),
            or a callable that returns one, and is read block by block.
        y : None
            Not used.
        sources : array-like, optional
            For one table, the source of each row (of each column where the samples are shared).
            For a list of tables, their names.
        weights : dict, list or array, optional
            How much entries count: for each table an array of its shape, or one number for each of
            its samples. Zero means not observed.

        Returns
        -------
        self
        """
        self._check_parameters()
        tables = self._read(X, sources, reset=True)
        ranks = resolve_ranks(self.n_shared, self.n_unique, tables)
        tables = within(tables, ranks, self.n_shared, self.max_memory)
        # asked first, because what is infinite is refused there
        complete = tables.complete
        if weights is None and self._is_plain(complete, tables.has_sparse):
            self._fit_complete(tables, ranks)
        else:
            self._fit_observed(tables, ranks, read_weights(weights, tables))
        return self

    def _is_plain(self, complete: bool, has_sparse: bool) -> bool:
        """Say whether products with the data are all that the fit needs."""
        complete = complete and not (self.missing == "absent" and has_sparse)
        alternating = self.solver == "alternating" or isinstance(self.solver, Alternating)
        squared = isinstance(self._loss(), Squared)
        return complete and squared and not alternating and self._ridge() == (0.0, 0.0)

    def _fit_complete(self, tables: Tables, ranks: list[int]) -> None:
        """Fit complete tables under squared loss."""
        centres = tables.centres(self.centre)
        stacks, members = tables.sources(centres, ranks)
        solver = self._solver("grassmann")
        weights = [1.0] * len(ranks)
        if solver.scale_free or self.scale:
            stacks, weights = weigh(stacks, members, tables.names, each=self.scale == "source")
        found = self._search(stacks, members, ranks, solver, Squared(), tables)
        self._keep_complete(found, members, centres, weights, tables)

    def _keep_complete(
        self,
        found: Found,
        members: list[list[int]],
        centres: Sequence[Array | None],
        weights: Sequence[float],
        tables: Tables,
    ) -> None:
        """Keep the answer for complete tables."""
        factors = assemble(found.shared, found.locals, members, tables.names, weights)
        self._keep(factors, centres, tables)
        self.loss_ = found.loss
        self._keep_outliers(tables, None)
        self._record(found, 1.0 if self.scale else weights[0] ** -2)

    def _fit_observed(
        self, tables: Tables, ranks: list[int], weights: list[Array | None] | None
    ) -> None:
        """Fit what was observed, under any loss."""
        stacks, members, equal = self._observed(tables, ranks, weights)
        scale = raw_scale(stacks)
        solver, finish = self._observed_stages(scale)
        found = self._search(
            stacks, members, ranks, solver, self._loss(), tables, finish=finish, raw_scale=scale
        )
        self._keep_observed(found, stacks, members, equal, tables, weights)

    def _observed(
        self, tables: Tables, ranks: list[int], weights: list[Array | None] | None
    ) -> tuple[list[Observed], list[list[int]], dict[Hashable, float]]:
        """Return the sources, which tables they stand for, and what equalises them."""
        stacks, members = observed_sources(
            tables,
            ranks,
            self._loss(),
            self.centre,
            absent=self.missing == "absent",
            weights=weights,
        )
        warn_of_gaps(stacks, members, ranks, tables, penalised=self._ridge()[1] > 0)
        equal: dict[Hashable, float] = {}
        if self.scale == "source":
            equal = equal_weights(stacks, members, tables.names)
            stacks = [equalised(source) for source in stacks]
        return stacks, members, equal

    def _observed_stages(self, scale: float) -> tuple[Solver, ScoringObserved]:
        """Return the solver of what was observed, and its last round, for entries of a size."""
        offsets: Offsets = None
        if self.centre == "source":
            offsets = "rows" if self.shared_axis == "features" else "columns"
        solver = self._solver("alternating")
        if isinstance(solver, Grassmann):
            raise ValueError(
                "solver='grassmann' is for complete tables, squared loss and no ridge or weights: "
                "leave solver='auto', or choose 'alternating'."
            )
        if isinstance(solver, Alternating):
            solver = replace(solver, offsets=offsets, unit=scale)
        else:
            offsets = None
        return solver, ScoringObserved(self.n_shared, _penalised(solver), offsets)

    def _keep_observed(
        self,
        found: Found,
        stacks: Sequence[Observed],
        members: list[list[int]],
        equal: dict[Hashable, float],
        tables: Tables,
        weights: list[Array | None] | None,
    ) -> None:
        """Keep the answer for what was observed."""
        shapes = [table.shape for table in tables.values]
        own = [shape[0 if self.shared_axis == "features" else 1] for shape in shapes]
        units = [1.0] * len(shapes)
        factors = assemble(found.shared, found.locals, members, tables.names, units, own)
        centres = offsets_by_source(found.locals, members, [shape[1] for shape in shapes])
        self._keep(factors, centres, tables)
        self.loss_, self._weights = found.loss, equal
        if _penalised(self._solver("alternating")):
            self._turned = turned_by_source(found.shared, found.locals, members, tables.names)
        else:
            warn_of_certainty(stacks, members, tables.names, found.loss, found.shared, found.locals)
        self._keep_outliers(tables, weights)
        self._record(found, 1.0, PATIENCE if max(self._ridge()) else PATIENCE_OR_RIDGE)

    def _keep_outliers(self, tables: Tables, weights: Sequence[Any] | None) -> None:
        """Keep what the fit took for outliers, under a loss that does so."""
        self.__dict__.pop("outliers_", None)
        if has_outliers(self.loss_):
            self.outliers_ = {}
            for place, (name, table) in enumerate(zip(tables.names, tables.values, strict=True)):
                self._add_outliers(name, table, None if weights is None else weights[place])

    def _search(
        self,
        stacks: Sequence[Source],
        members: list[list[int]],
        ranks: list[int],
        solver: Solver,
        loss: Loss,
        tables: Tables,
        **options: Any,
    ) -> Found:
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        in_order = [ranks[places[0]] for places in members]
        known = None if self.random_state is None else int(seed)
        keeper = keeper_of(self.checkpoint, stacks, in_order, solver, loss, known, options)
        return search(
            stacks,
            in_order,
            solver,
            _named("engine", self.engine, ENGINES),
            loss,
            tables.example(),
            max_rounds=self.max_rounds,
            n_restarts=self.n_restarts,
            seeds=np.random.SeedSequence(int(seed)),
            keeper=keeper,
            verbose=self.verbose,
            **options,
        )

    def _check_parameters(self) -> None:
        for name, least in (("n_shared", 0), ("max_rounds", 1), ("n_restarts", 0)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} is {value!r}: expected an integer of at least {least}.")
        if not isinstance(self.tol, Real) or not self.tol > 0:
            raise ValueError(f"tol is {self.tol!r}: expected a positive number.")
        choices: dict[str, tuple[str | None, ...]] = {
            "centre": ("source", "global", None),
            "scale": ("source", None),
            "missing": ("nan", "absent"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}: expected one of "
                    f"{', '.join(map(repr, allowed))}."
                )
        if self.centre == "global" and self.shared_axis == "samples":
            raise ValueError(
                "centre='global' needs features that all sources share, but they share their "
                "samples (shared_axis='samples'): use centre='source' or centre=None."
            )
        if self.max_memory is not None:
            bytes_of(self.max_memory)
        given: Any = 0.0 if self.ridge is None else self.ridge
        pair = (given, given) if isinstance(given, Real) else given
        numbers = [value for value in pair if isinstance(value, Real) and 0 <= value < np.inf]
        if not len(numbers) == len(pair) == 2:
            raise ValueError(
                f"ridge is {self.ridge!r}: expected a number from zero on, or two, for the shared "
                "and the unique factors."
            )

    def _loss(self) -> Loss:
        loss: Loss = _named("loss", self.loss, LOSSES, make=True)
        if not all(hasattr(loss, name) for name in ("value", "slope", "majorise")):
            raise TypeError(
                f"loss is {loss!r}, which has no value, slope and majorise: give one of "
                f"{', '.join(map(repr, LOSSES))}, or an object with these methods."
            )
        return loss

    def _ridge(self) -> tuple[float, float]:
        """Return the ridges of shared and unique factors; a solver that was given has its own."""
        if self.ridge is None and isinstance(self.solver, Alternating):
            return self.solver.ridge
        return ridges(self.ridge, self._loss())

    def _solver(self, default: str) -> Solver:
        """Return the solver; one that was given keeps its settings, but the ranks are ours."""
        ridge = self._ridge()
        if not isinstance(self.solver, str):
            made = replace(self.solver, n_shared=self.n_shared)  # type: ignore[type-var]
        else:
            chosen = default if self.solver == "auto" else self.solver
            made = _named("solver", chosen, SOLVERS)(n_shared=self.n_shared, tol=self.tol)
        if isinstance(made, Alternating):
            return replace(made, ridge=ridge)
        if self.ridge is not None and max(ridge) > 0:
            raise ValueError(
                f"ridge is {self.ridge!r}, but solver={self.solver!r} has no ridge: use "
                "solver='auto' or 'alternating'."
            )
        return made

    def _record(self, found: Found, unit: float, advice: str = PATIENCE) -> None:
        """Keep what is known about the run; `unit` brings values back to those of the data."""
        result = found.result
        rounds = found.history
        self.history_ = pd.DataFrame(
            {
                "start": [start for start, _, _ in rounds],
                "value": [unit * value for _, value, _ in rounds],
                "gradient": [gradient for _, _, gradient in rounds],
            },
            index=pd.RangeIndex(1, len(rounds) + 1, name="round"),
        )
        self.n_rounds_, self.converged_ = len(result.history), result.converged
        self._found = replace(found, shared={}, locals=[])
        if not result.converged or found.interrupted:
            gradient = float(result.shared["gradient"])
            advice = "" if found.interrupted else f" {advice}"
            stopped = "interrupted; the best so far stands" if found.interrupted else result.stopped
            warnings.warn(
                f"The fit has not converged: {stopped}, with a relative gradient of "
                f"{gradient:.1e}.{advice}",
                ConvergenceWarning,
                stacklevel=3,
            )

    @property
    def diagnostics_(self) -> Diagnostics:
        """Whether to trust the fit."""
        check_is_fitted(self)
        result, start = self._found.result, self._found.start
        agreement = None
        if start.eigenvalues is not None:
            agreement = float(start.eigenvalues[self.n_shared - 1])
        return Diagnostics(
            stationarity=float(result.shared["gradient"]),
            converged=result.converged,
            stopped=result.stopped,
            start=start.name,
            agreement=agreement,
            misalignment=self.factors_.misalignment() if len(self.source_names_) > 1 else None,
        )


def _penalised(solver: Solver) -> bool:
    return isinstance(solver, Alternating) and solver.penalised


def _named(kind: str, given: Any, known: dict[str, Any], *, make: bool = False) -> Any:
    """Resolve what is given by name; an object stands for itself."""
    if not isinstance(given, str):
        return given
    if given not in known:
        choices = ", ".join(map(repr, known))
        raise ValueError(f"{kind} is {given!r}: expected one of {choices}, or an object.")
    return known[given]() if make else known[given]
