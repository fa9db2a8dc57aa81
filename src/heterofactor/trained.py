"""What every trained auto-encoder answers: scores, predictions, what is missing.

A subclass has a `fit` that leaves weights, scores and centres; HAE is one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from heterofactor.brought import is_collection
from heterofactor.containers import as_brought, configured_output, contain
from heterofactor.face import Face, brought_back
from heterofactor.factors import Part
from heterofactor.linalg import to_numpy
from heterofactor.losses import Linked, Loss, link
from heterofactor.matching import check_features, check_known, matched
from heterofactor.networks import AutoEncoder
from heterofactor.samples import Seen, batch_of, centre_of, seen
from heterofactor.splitting import ObservedEntries, opened
from heterofactor.tables import Tables

Values = np.ndarray[Any, Any]


class TrainedNetworks(Face):
    """A model of shared and unique scores, once it is fitted.

    Examples
    --------
    >>> from heterofactor import HAE
    >>> from heterofactor.trained import TrainedNetworks
    >>> issubclass(HAE, TrainedNetworks)
    True
    """

    shared_axis = "features"
    n_scores: int
    missing: Literal["nan", "absent"]
    device: str | None
    loss_: Loss
    source_names_: list[Hashable]
    weights_: dict[str, Values]
    shared_scores_: dict[Hashable, Values]
    unique_scores_: dict[Hashable, Values]
    centres_: dict[Hashable, Values | None]
    n_features_in_: int
    _made: Callable[[int, int, int], AutoEncoder]
    _middles: dict[Hashable, Values | None]
    _labels: dict[Hashable, Any]
    _fitted_as: Tables
    _spread: float
    _dtype: str

    def transform(self, X: Any, *, sources: Any = None) -> Any:
        """Return the scores of samples, shared ones first.

        Parameters
        ----------
        X : dict, list or tuple of tables, or one table
            Samples in rows. A list has one table for each source of the fit, in its order.
        sources : str or array-like, optional
            For one table, its source, or the source of each row. Left out, the samples are of the
            only source of the fit, or else of a source never seen, whose unique scores are zero.

        Returns
        -------
        array of shape (n_samples, 2 * n_scores), or list or dict of them
            As the user gave X.
        """
        tables, _, scores = self._encoded(X, sources)
        labels = self.get_feature_names_out()
        output = configured_output(getattr(self, "_chosen_output", None))
        both = [np.hstack(pair) for pair in scores]
        if tables.container == "table":
            return contain(tables.collect(both), tables.whole[0], labels, output)
        pairs = zip(both, tables.index, strict=True)
        return tables.collect([contain(each, index, labels, output) for each, index in pairs])

    def transform_parts(self, X: Any, *, sources: Any = None) -> tuple[Any, Any]:
        """Return the shared and the unique scores of samples apart.

        Parameters
        ----------
        X, sources
            As for `transform`.

        Returns
        -------
        shared, unique : arrays, or lists or dicts of them
            As the user gave X.
        """
        tables, _, scores = self._encoded(X, sources)
        shared, unique = zip(*scores, strict=True)
        return tables.collect(shared), tables.collect(unique)

    def reconstruct(self, name: Hashable = None, *, part: Part = "both") -> Any:
        """Return the fitted table of a source, or its shared or unique part.

        Parameters
        ----------
        name : optional
            Of the source; all of them, in the container that was fitted, if left out.
        part : {"both", "shared", "unique"}
            The shared part is what is decoded of the shared scores alone, less the centre; the
            unique part is what the unique ones add to that. On the scale of the link, where the
            loss has one; ``"both"`` is on the scale of the data.

        Returns
        -------
        table, or list or dict of them
        """
        check_is_fitted(self)
        if part not in ("both", "shared", "unique"):
            raise ValueError(f"part is {part!r}: expected 'both', 'shared' or 'unique'.")
        if name is not None:
            check_known([name], self.source_names_)
            return as_brought(self._decoded(name, part), *self._labels[name])
        found = [self._decoded(each, part) for each in self.source_names_]
        labels = [self._labels[each] for each in self.source_names_]
        return brought_back(self._fitted_as, found, labels)

    def predict(self, X: Any, *, sources: Any = None) -> Any:
        """Return what is expected of every entry of samples, given what was observed of them.

        Parameters
        ----------
        X, sources
            As for `transform`; missing entries are NaN.

        Returns
        -------
        table, or list or dict of them
            As the user gave X, on the scale of the data.
        """
        return self._filled(X, sources, everywhere=True)

    def impute(self, X: Any, *, sources: Any = None) -> Any:
        """Fill what is missing with what is expected there; observed entries stay.

        Parameters
        ----------
        X, sources
            As for `transform`; missing entries are NaN.

        Returns
        -------
        table, or list or dict of them
            As the user gave X.
        """
        return self._filled(X, sources, everywhere=False)

    def score(self, X: Any, y: Any = None, *, sources: Any = None) -> float:
        """Return how much of the loss of observed entries the networks explain.

        Parameters
        ----------
        X, sources
            As for `transform`: what is encoded. `ObservedEntries` of the tables that were fitted
            are predicted from what the fit made of these tables.
        y : table, or list or dict of them, optional
            Of the shape of X: the entries to be predicted, NaN (or absent) for all others. Those of
            X itself unless given; anything that is no such table is not used.

        Returns
        -------
        float
            1 where everything is predicted, 0 where no better than by the centre.
        """
        if isinstance(X, ObservedEntries):
            targets, names, scores = self._kept_scores(X, sources)
        else:
            tables, names, scores = self._encoded(X, sources)
            targets = self._targets(y, tables, sources)
        left = total = 0.0
        for part, name, (shared, unique) in zip(
            self._observed(targets), names, scores, strict=True
        ):
            z = self._decode(shared + unique, name)[part.rows, part.columns]
            start = centre_of(self.centres_, name)
            alone = z * 0 if start is None else start[part.columns]
            best = self.loss_.least(part.values) if isinstance(self.loss_, Linked) else 0.0
            left += float(np.sum(self.loss_.value(part.values, z) - best))
            total += float(np.sum(self.loss_.value(part.values, alone) - best))
        return 1.0 if total == 0 else 1 - left / total

    def get_feature_names_out(self, input_features: Any = None) -> Values:
        """Return the names of the columns of `transform`: shared0, ..., unique0, ...

        Parameters
        ----------
        input_features : None
            Not used.
        """
        check_is_fitted(self)
        names = [f"{part}{k}" for part in ("shared", "unique") for k in range(self.n_scores)]
        return np.asarray(names, dtype=object)

    def _read(self, X: Any, sources: Any, *, reset: bool) -> Tables:
        tables = super()._read(X, sources, reset=reset)
        _ = tables.complete  # refuses what is infinite
        return tables

    def _observed(self, tables: Tables) -> list[Seen]:
        return [seen(table, absent=self.missing == "absent") for table in tables.values]

    def _device(self) -> str:
        return self.device or ("cuda" if torch.cuda.is_available() else "cpu")

    def _unit(self) -> float:
        """Return the unit of the networks' predictions; those of a link have their own."""
        return 1.0 if isinstance(self.loss_, Linked) else self._spread

    def _network(self) -> AutoEncoder:
        """Return the trained networks."""
        network = self._made(self.n_features_in_, len(self.source_names_), 0)
        network.load_state_dict({k: torch.as_tensor(v) for k, v in self.weights_.items()})
        network.to(self._device())
        network.eval()
        return network

    @torch.no_grad()
    def _scores(self, parts: list[Seen], names: Sequence[Any]) -> list[tuple[Values, Values]]:
        """Return the shared and unique scores of tables of known sources, or of None."""
        network, found = self._network(), []
        for part, name in zip(parts, names, strict=True):
            batch = batch_of([part], [part], [self._middle(name)], [None], self._spread,
                             self._device())  # fmt: skip
            if name is None:
                shared = network.shared(batch, batch.counts)
                unique = torch.zeros_like(shared)
            else:
                one = network.of(self.source_names_.index(name))
                shared, unique = one.scores(batch, batch.counts)
            pair = [each.cpu().numpy().astype(self._dtype) for each in (shared, unique)]
            found.append((pair[0], pair[1]))
        return found

    def _middle(self, name: Any) -> Values | None:
        return centre_of(self._middles, name)

    def _encoded(
        self, X: Any, sources: Any
    ) -> tuple[Tables, list[Any], list[tuple[Values, Values]]]:
        """Read new samples, find their sources, and encode them."""
        check_is_fitted(self)
        X, sources = opened(X, sources)
        if not is_collection(X) and sources is not None and np.ndim(sources) == 0:
            sources = np.full(np.shape(X)[0], sources)
        tables = self._read(X, sources, reset=False)
        names = matched(tables, self.source_names_, sources is not None)
        self._check_features(tables)
        return tables, names, self._scores(self._observed(tables), names)

    def _kept_scores(
        self, X: ObservedEntries, sources: Any
    ) -> tuple[Tables, list[Any], list[tuple[Values, Values]]]:
        """Read entries of the tables that were fitted, and return the scores of these."""
        check_is_fitted(self)
        tables = self._read(X, sources, reset=False)
        named = tables.container == "dict" or X.sources is not None
        names = tables.names if named else self.source_names_[: len(tables.names)]
        check_known(names, self.source_names_)
        self._check_features(tables)
        return tables, names, [(self.shared_scores_[k], self.unique_scores_[k]) for k in names]

    def _check_features(self, tables: Tables) -> None:
        columns = next(iter(self._labels.values()))[1]
        for place in range(len(tables.names)):
            check_features(tables, place, self.n_features_in_, columns, type(self).__name__)

    @torch.no_grad()
    def _decode(self, scores: Values, name: Any) -> Values:
        """Return what is predicted of scores, on the scale of the link."""
        decoder, device = self._network().decoder, self._device()
        values = torch.as_tensor(scores, dtype=torch.float32, device=device)
        found: Values = decoder(values, [len(scores)]).cpu().numpy().astype(self._dtype)
        start = centre_of(self.centres_, name)
        found = found * self._unit() + (0.0 if start is None else start)
        return found.astype(self._dtype)

    def _decoded(self, name: Hashable, part: Part) -> Values:
        shared, unique = self.shared_scores_[name], self.unique_scores_[name]
        both = self._decode(shared + unique, name)
        if part == "both":
            expected: Values = link(self.loss_, both)
            return expected
        alone, start = self._decode(shared, name), self.centres_[name]
        found: Values = both - alone
        if part == "shared":
            found = alone - (0.0 if start is None else start)
        return found.astype(self._dtype)

    def _filled(self, X: Any, sources: Any, *, everywhere: bool) -> Any:
        tables, names, scores = self._encoded(X, sources)
        if tables.has_sparse:
            raise ValueError(
                "What is predicted would fill up a sparse table: give a dense one, with NaN where "
                "entries are missing."
            )
        filled = [
            link(self.loss_, self._decode(shared + unique, name))
            for name, (shared, unique) in zip(names, scores, strict=True)
        ]
        if not everywhere:
            given = [to_numpy(table) for table in tables.values]
            filled = [np.where(np.isnan(t), z, t) for t, z in zip(given, filled, strict=True)]
        labels = list(zip(tables.index, tables.columns, strict=True))
        return brought_back(tables, filled, labels)
