"""What every fitted model of shared and unique factors answers, however it was fitted.

A subclass has a `fit` that ends in `_keep`; scores, reconstructions, explained variance and
scikit-learn's contract are here.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from heterofactor.brought import is_collection, read_tables
from heterofactor.canonical import offsets_by_source
from heterofactor.containers import as_brought, configured_output, contain
from heterofactor.face import Face, brought_back
from heterofactor.factors import Factors, Part
from heterofactor.joining import newcomer_of
from heterofactor.linalg import Array, beside, namespace, zeros
from heterofactor.losses import Loss, Squared, link
from heterofactor.matching import check_features, check_known, matched
from heterofactor.memory import within
from heterofactor.observing import observed_source
from heterofactor.outliers import has_outliers, outliers, with_outliers
from heterofactor.projecting import Projection
from heterofactor.ranks import Ranks, resolve_ranks
from heterofactor.scores import centre_of, score_samples
from heterofactor.search import newcomer
from heterofactor.splitting import ObservedEntries, opened
from heterofactor.stored import Stored
from heterofactor.stores import streams
from heterofactor.tables import Centre, Tables


class SharedUniqueModel(Face):
    """A model of what sources share and what is unique to each, once it is fitted.

    Examples
    --------
    >>> from heterofactor import HMF
    >>> from heterofactor.model import SharedUniqueModel
    >>> issubclass(HMF, SharedUniqueModel)
    True
    """

    n_shared: int
    n_unique: Ranks
    centre: Centre
    tol: float
    loss_: Loss
    outliers_: dict[Hashable, Any]
    _turned: dict[Hashable, Array]
    _weights: dict[Hashable, float]
    _outlying: dict[Hashable, float]

    def _keep(self, factors: Factors, centres: Sequence[Array | None], tables: Tables) -> None:
        """Keep the answer, and what is needed to give results back as the user brought the data."""
        labels = zip(tables.index, tables.columns, strict=True)
        self.loss_, self._turned, self._weights, self._outlying = Squared(), {}, {}, {}
        self.factors_ = factors
        self.centres_ = dict(zip(tables.names, centres, strict=True))
        self._labels = dict(zip(tables.names, labels, strict=True))
        self._fitted_as = tables.emptied()

    def _add_outliers(self, name: Hashable, table: Array, weight: Any = None) -> None:
        """Keep what the fit took for outliers, and their share of the residual."""
        factors = self.factors_
        bases = beside([factors.shared_basis, factors.unique_bases[name]])
        scores = beside([factors.shared_scores[name], factors.unique_scores[name]])
        frames = (scores, bases) if self.shared_axis == "features" else (bases, scores)
        absent = getattr(self, "missing", "nan") == "absent"
        centre = self.centres_[name]
        part, share = outliers(self.loss_, table, weight, frames, centre, absent=absent)
        self.outliers_ = {**self.outliers_, name: part}
        self._outlying = {**self._outlying, name: share}

    @property
    def source_names_(self) -> list[Hashable]:
        """The names of the sources."""
        return self.factors_.names

    @property
    def shared_components_(self) -> Array:
        """The shared basis, a component in each row."""
        return self.factors_.shared_basis.mT

    @property
    def unique_components_(self) -> dict[Hashable, Array]:
        """The unique basis of each source, a component in each row."""
        return {name: basis.mT for name, basis in self.factors_.unique_bases.items()}

    @property
    def explained_variance_(self) -> pd.DataFrame:
        """Sums of squares by source: shared, unique, outliers if there are, residual, total."""
        return with_outliers(self.factors_.explained_variance(ratio=False), self._outlying)

    @property
    def explained_variance_ratio_(self) -> pd.DataFrame:
        """What the parts and the residual make up of each source."""
        return with_outliers(self.factors_.explained_variance(), self._outlying)

    def transform(self, X: Any, *, sources: Any = None) -> Any:
        """Return least-squares scores of samples, shared ones first.

        Parameters
        ----------
        X : dict, list or tuple of tables, or one table
            Samples in rows. A list has one table for each source of the fit, in its order.
        sources : str or array-like, optional
            For one table, its source, or the source of each row (of each column where the samples
            are shared). Left out, the samples are of the only source of the fit, or else of a
            source never seen, which has no unique scores: these columns are zero. (A name that is
            not in the fit means the same, with a warning.)

        Returns
        -------
        array of shape (n_samples, n_shared + n_unique), or list or dict of them
            As the user gave X. Where unique ranks differ within one table, the columns that a
            source does not have are zero. Where the samples are shared, one array: the shared
            coordinates, then each source's unique ones (zero for a source not given).
        """
        tables, names, parts = self._score(X, sources)
        labels = self.get_feature_names_out()
        output = configured_output(getattr(self, "_chosen_output", None))
        if self.shared_axis == "samples":
            scores = beside([parts[0][0], *self._unique_blocks(names, parts)])
            return contain(scores, tables.index[0], labels, output)
        if tables.container == "table":
            joined = [beside(self._widened(part)) for part in parts]
            return contain(tables.collect(joined), tables.whole[0], labels, output)
        return tables.collect(
            [
                contain(beside(part), index, labels[: sum(p.shape[1] for p in part)], output)
                for index, part in zip(tables.index, parts, strict=True)
            ]
        )

    def transform_parts(self, X: Any, *, sources: Any = None) -> tuple[Any, Any]:
        """Return the shared and the unique scores of samples apart.

        Parameters
        ----------
        X, sources
            As for `transform`.

        Returns
        -------
        shared, unique : arrays, or lists or dicts of them
            As the user gave X. Where the samples are shared, one array of shared coordinates, and
            a dict of unique ones by source.
        """
        tables, names, parts = self._score(X, sources)
        if self.shared_axis == "samples":
            unique = {name: part[1] for name, part in zip(names, parts, strict=True)}
            return parts[0][0], unique
        if tables.container == "table":
            parts = [self._widened(part) for part in parts]
        shared, own = zip(*parts, strict=True)
        return tables.collect(shared), tables.collect(own)

    def reconstruct(self, name: Hashable = None, *, part: Part = "both") -> Any:
        """Return the fitted table of a source, or its shared or unique part.

        Parameters
        ----------
        name : optional
            Of the source; all of them, in the container that was fitted, if left out.
        part : {"both", "shared", "unique"}
            With ``"both"`` the centre is added, so that the table compares with the data; the
            shared and the unique part are deviations from it. A dense table in any case, also of
            a source that was not held in memory. Under a loss with a link, ``"both"``
            is on the scale of the data, and the parts are on that of the link.

        Returns
        -------
        table, or list or dict of them
            In the orientation, and with the labels, of the table that was fitted.
        """
        check_is_fitted(self)
        factors = self.factors_
        if name is not None:
            check_known([name], self.factors_.names)
            return as_brought(self._fitted(name, part), *self._labels[name])
        found = [self._fitted(name, part) for name in factors.names]
        return brought_back(self._fitted_as, found, [self._labels[name] for name in factors.names])

    def add_source(self, name: Hashable, X: Any, *, n_unique: int | None = None) -> Self:
        """Add a source to the fit: the shared part stays, the newcomer's own part is learned.

        Parameters
        ----------
        name
            Of the new source.
        X : table
            Its samples in rows, with the same features (or samples) as the others.
        n_unique : int, optional
            Its number of unique components; that of the fit, where it is one number, if left out.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if name in self.factors_.energy:
            raise ValueError(f"There is a source {name!r} already: give the new one another name.")
        rank = self.n_unique if n_unique is None else n_unique
        if not isinstance(rank, Integral):
            raise ValueError(
                f"n_unique differs between the sources of the fit ({rank!r}): say how many unique "
                f"components source {name!r} has, with n_unique=."
            )
        limit = getattr(self, "max_memory", None)
        tables = read_tables({name: X}, shared_axis=self.shared_axis, in_blocks=limit is not None)
        if self.shared_axis == "features":
            self._check_features(tables, [None])
        ranks = resolve_ranks(self.n_shared, int(rank), tables)
        tables = within(tables, ranks, self.n_shared, limit)
        absent = getattr(self, "missing", "nan") == "absent"
        shared = centre_of(self.centres_, None) if self.centre == "global" else None
        complete = tables.complete and not (absent and tables.has_sparse)
        if complete and isinstance(self.loss_, Squared) and not self._turned:
            centres = tables.centres(self.centre) if shared is None else [shared]
            stacks, _ = tables.sources(centres, ranks)
            local = newcomer(stacks[0], ranks[0], self.factors_.shared_basis, self.tol)
            energy = float(local["energy"][0])
        else:
            projection, n_shared = self._projection(), self.n_shared
            turn = next(iter(self._turned.values()))[:n_shared, :n_shared] if self._turned else None
            local, turned, energy = newcomer_of(
                tables, ranks, self.factors_.shared_basis, turn, self.loss_,
                ridge=projection.ridge, tol=self.tol, centre=self.centre, fixed=shared,
                absent=absent, equally=bool(self._weights),
            )  # fmt: skip
            if turned is not None:
                self._turned = {**self._turned, name: turned}
            centres = offsets_by_source([local], [[0]], [tables.values[0].shape[1]])
        self.factors_ = self.factors_.with_source(name, local)
        self.centres_ = {**self.centres_, name: centres[0]}
        if self._weights:
            self._weights = {**self._weights, name: (energy or 1.0) ** -0.5}
        self._labels = {**self._labels, name: (tables.index[0], tables.columns[0])}
        self._fitted_as = self._fitted_as.with_name(name)
        if has_outliers(self.loss_):
            self._add_outliers(name, tables.values[0])
        return self

    def score(self, X: Any, y: Any = None, *, sources: Any = None) -> float:
        """Return how much of the loss of observed entries the fit explains.

        Under squared loss that is the share of the samples' variance; under others, the share of
        the deviance from the centre alone.

        Parameters
        ----------
        X, sources
            As for `transform`: what the scores of the samples are found from. `ObservedEntries` of
            the tables that were fitted are predicted from what the fit made of these tables.
        y : table, or list or dict of them, optional
            Of the shape of X: the entries to be predicted, NaN (or absent) for all others. Those
            of X itself unless given; anything that is no such table is not used.

        Returns
        -------
        float
            1 for a perfect fit; comparable between ranks on entries or samples held out.
        """
        if isinstance(X, ObservedEntries):
            targets, names, parts = self._entries(X, sources)
        else:
            tables, names, parts = self._score(X, sources)
            targets = self._targets(y, tables, sources)
        projection, by_samples = self._projection(), self.shared_axis == "samples"
        left = total = 0.0
        for place, (name, scores) in enumerate(zip(names, parts, strict=True)):
            source = observed_source(targets, place, self.loss_, absent=projection.absent)
            left += projection.misfit(source, name, scores, by_samples)
            total += projection.misfit(source, name, None, by_samples)
        return 1.0 if total == 0 else 1 - left / total

    def predict(self, X: Any, *, sources: Any = None) -> Any:
        """Return what is expected of every entry of samples, given what was observed of them.

        Parameters
        ----------
        X, sources
            As for `transform`; missing entries are NaN. Where the samples are shared, a source of
            which nothing was observed is a table of NaN: it is predicted from the others.

        Returns
        -------
        table, or list or dict of them
            As the user gave X, on the scale on which entries were observed (probabilities under
            logistic loss, expected counts under Poisson loss). For sparse tables, whose
            predictions would fill them up, ask for ``impute(X, everywhere=True)``.
        """
        return self._filled(X, sources, everywhere=True, sparse=False)

    def impute(self, X: Any, *, sources: Any = None, everywhere: bool = False) -> Any:
        """Fill what is missing with what is expected there, given what was observed.

        Parameters
        ----------
        X, sources
            As for `transform`; missing entries are NaN.
        everywhere : bool
            Replace the observed entries as well, by what the fit makes of them: `predict`.

        Returns
        -------
        table, or list or dict of them
            As the user gave X, with observed entries unchanged unless asked for.
        """
        return self._filled(X, sources, everywhere=everywhere, sparse=everywhere)

    def _filled(self, X: Any, sources: Any, *, everywhere: bool, sparse: bool) -> Any:
        tables, names, parts = self._score(X, sources)
        if tables.has_sparse and not sparse:
            raise ValueError(
                "What is predicted would fill up a sparse table: if a dense one is what you want, "
                "ask for impute(X, everywhere=True), or give a dense table with NaN where entries "
                "are missing."
            )
        for table in tables.values if not everywhere else ():
            if isinstance(table, Stored):
                table.refuse()
        projection, by_samples = self._projection(), self.shared_axis == "samples"
        filled = [
            projection.predicted(name, *part, by_samples)
            for name, part in zip(names, parts, strict=True)
        ]
        if not everywhere:
            pairs = zip(tables.values, filled, strict=True)
            filled = [namespace(t).where(namespace(t).isnan(t), z, t) for t, z in pairs]
        labels = list(zip(tables.index, tables.columns, strict=True))
        return brought_back(tables, filled, labels)

    def _entries(
        self, X: ObservedEntries, sources: Any
    ) -> tuple[Tables, list[Any], list[tuple[Array, Array]]]:
        """Read entries of the tables that were fitted, and return what the fit made of these."""
        check_is_fitted(self)
        known = self.factors_.names
        tables = self._read(X, sources, reset=False)
        named = tables.container == "dict" or X.sources is not None
        names = tables.names if named else known[: len(tables.names)]
        check_known(names, known)
        self._check_features(tables, names)
        return tables, names, self._projection().fitted(tables, names)

    def _ridge(self) -> tuple[float, float]:
        """Return the ridges that shared and unique scores are found under: none, unless it has."""
        return 0.0, 0.0

    def _projection(self) -> Projection:
        """Return what new samples are scored with."""
        return Projection(
            self.factors_,
            self.centres_,
            self.loss_,
            self._ridge(),
            self._turned,
            absent=getattr(self, "missing", "nan") == "absent",
            weights=self._weights,
        )

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray[Any, Any]:
        """Return the names of the columns of `transform`: shared0, ..., unique0, ...

        Parameters
        ----------
        input_features : None
            Not used.
        """
        check_is_fitted(self)
        names = [f"shared{k}" for k in range(self.n_shared)]
        if self.shared_axis == "samples":
            for name, scores in self.factors_.unique_scores.items():
                names += [f"{name}_unique{k}" for k in range(scores.shape[1])]
        else:
            names += [f"unique{k}" for k in range(self._widest())]
        return np.asarray(names, dtype=object)

    def _widest(self) -> int:
        return max(int(basis.shape[1]) for basis in self.factors_.unique_bases.values())

    def _widened(self, part: tuple[Array, Array]) -> tuple[Array, Array]:
        """Fill the unique scores up with zeros, to the largest unique rank of the fit."""
        shared, unique = part
        return shared, beside([unique, zeros(unique, self._widest() - unique.shape[1])])

    def _unique_blocks(self, names: Sequence[Any], parts: list[tuple[Array, Array]]) -> list[Array]:
        given = dict(zip(names, parts, strict=True))
        return [
            given[name][1] if name in given else zeros(parts[0][0], scores.shape[1])
            for name, scores in self.factors_.unique_scores.items()
        ]

    def _fitted(self, name: Hashable, part: Part) -> Array:
        fitted = self.factors_.part(name, part)
        fitted = fitted.mT if self.shared_axis == "features" else fitted
        centre = self.centres_[name]
        if part != "both":
            return fitted
        return link(self.loss_, fitted if centre is None else fitted + centre)

    def _score(self, X: Any, sources: Any) -> tuple[Tables, list[Any], list[tuple[Array, Array]]]:
        """Read new samples, find their sources, and score them."""
        check_is_fitted(self)
        X, sources = opened(X, sources)
        one = not is_collection(X) and sources is not None and np.ndim(sources) == 0
        if one and not streams(X, getattr(self, "max_memory", None) is not None):
            sources = np.full(np.shape(X)[0 if self.shared_axis == "features" else 1], sources)
        tables = self._read(X, sources, reset=False)
        names = matched(tables, self.factors_.names, sources is not None)
        self._check_features(tables, names)
        projection = self._projection()
        absent = projection.absent and tables.has_sparse
        plain = tables.complete and not absent and not (self._turned or self._weights)
        if plain and isinstance(self.loss_, Squared):
            equally = getattr(self, "scale", None) == "source"
            scores = score_samples(self.factors_, self.centres_, tables, names, equally=equally)
        else:
            scores = projection.scores(tables, names)
        return tables, names, scores

    def _check_features(self, tables: Tables, names: Sequence[Any]) -> None:
        """Refuse tables whose features are not those of the fit."""
        factors = self.factors_
        first = factors.names[0]
        for place, name in enumerate(names):
            by_features = self.shared_axis == "features"
            fitted = factors.shared_basis if by_features else factors.shared_scores[name]
            columns = self._labels[first if name is None else name][1]
            check_features(tables, place, int(fitted.shape[0]), columns, type(self).__name__)
