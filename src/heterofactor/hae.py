"""HAE, the nonlinear model with the face of HMF: from tables to trained networks."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from heterofactor.brought import read_tables
from heterofactor.engines import ENGINES
from heterofactor.linalg import to_numpy
from heterofactor.losses import LOSSES, Loss, at_noise
from heterofactor.network_settings import check_networks, check_settings
from heterofactor.networks import AutoEncoder, MakeNetwork, make_networks, seeded
from heterofactor.rounds import MakeEngine
from heterofactor.samples import (
    Seen,
    batch_of,
    centres_of,
    check_values,
    split,
    spread_of,
    start_of,
)
from heterofactor.solvers.autoencoder import Objective, Run, Schedule, joint
from heterofactor.solvers.network_averaging import averaging
from heterofactor.tables import Centre
from heterofactor.trained import TrainedNetworks

Values = np.ndarray[Any, Any]


class HAE(TrainedNetworks, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    r"""Heterogeneous auto-encoder: what sources share, and what is unique to each, by networks.

    A sample x of source i, zero where nothing was observed, has shared and unique scores,

    .. math:: e = f(x), \qquad e_i = g_i(x) - F^{-1}\bigl(P_{F(e)} F(g_i(x))\bigr), \qquad
        x \approx d(e + e_i),

    with one shared encoder f, a unique encoder :math:`g_i` for each source, and one decoder d. F
    folds scores into a matrix of `n_folds` columns, and P projects on their span: the columns of
    both scores are orthogonal, exactly, for every sample.

    Parameters
    ----------
    n_scores : int
        Length of the scores.
    n_folds : int
        Into how many columns scores are folded; a divisor of `n_scores`, whose square is less.
    hidden : sequence of int
        Units of the hidden layers of every encoder; the decoder has them the other way round.
    activation : {"tanh", "sigmoid", "relu", "linear"}
        Of the hidden layers.
    kernel : {"compact", "gaussian"}, optional
        Makes all layers sparse kernel layers.
    n_kernel : int
        Length of the kernel's vectors.
    encoder, decoder : callable, optional
        Networks of your own: called with how many numbers go in and come out, they return a
        ``torch.nn.Module``. The encoder is called once more for every source.
    loss : {"squared", "huber", "absolute", "trimmed", "logistic", "poisson"} or Loss
        What a deviation costs, as for `HMF`. A threshold that is left open is that for noise of the
        size of the centred entries: give one if you know better.
    solver : {"joint", "averaging"}
        One optimiser for everything, or Algorithm 2 of the paper: sources train copies of the
        shared encoder and of the decoder, which are averaged every round.
    engine : {"threads", "serial"} or callable
        Where the sources' steps run with ``solver="averaging"``, as for `HMF`.
    n_local_steps : int
        How often a source goes through its samples between two averages, with
        ``solver="averaging"``.
    batch_size : int, optional
        Samples for one step, drawn from all sources in proportion, for data that are large: a round
        goes through all samples, in so many steps. One step on all samples if left out.
    centre : {"source", "global", None}
        Subtract from every feature its mean within each source, its mean over all sources, or
        nothing.
    missing : {"nan", "absent"}
        What marks entries that were not observed: NaN, or also being absent from a scipy.sparse
        table; of such tables nothing dense is made.
    ridge : float or (float, float)
        Penalty on the squares of weights: all, or the shared and the unique encoders'.
    ridge_kernel : float
        Penalty on the squares of the kernels' values; draws weights to zero.
    learning_rate : float
        The largest one of AdamW; it rises, and falls as a cosine.
    max_rounds : int
        When to stop at the latest. Every round goes through all samples.
    validation : float
        Share of the observed entries that are held out, to stop in time; with 0, training goes on
        to `max_rounds`.
    patience : int
        Stop when held-out entries have not been predicted better for so many rounds; the best
        weights are kept.
    device : str, optional
        Where torch computes; a GPU where there is one, if left out.
    random_state : int, RandomState or None
        For everything random: same seed, same answer.
    verbose : int
        Show the progress of the rounds.

    Attributes
    ----------
    source_names_ : list
        The names of the sources, 0, 1, ... where none were given.
    weights_ : dict of array
        Of all networks.
    shared_scores_, unique_scores_ : dict of array of shape (n_samples, n_scores)
        By source; those of the samples that were fitted.
    centres_ : dict of array or None
        Where each source's features start from, on the scale of predictions.
    loss_ : Loss
        The loss, with its threshold.
    history_ : DataFrame
        One row a round: value (lower is better), mean loss of held-out entries.
    n_rounds_ : int
        The round whose weights were kept.
    converged_ : bool
        Whether training stopped because held-out entries were predicted no better.
    stopped_ : str
        Why it stopped. Interrupted from the keyboard, the best so far is kept, with a warning.
    n_features_in_ : int
        Number of features.

    References
    ----------
    Naichen Shi, Salar Fattahi, Raed Al Kontar. Heterogeneous Matrix Factorization: When Features
    Differ by Datasets.

    Examples
    --------
    >>> from heterofactor import HAE
    >>> from heterofactor.datasets import load_mice_protein
    >>> mice = load_mice_protein().sources
    >>> model = HAE(max_rounds=50, random_state=0).fit(mice)
    >>> model.transform(mice["c-CS-s"], sources="c-CS-s").shape
    (120, 32)
    >>> model.score(mice) > 0.3
    True
    """

    def __init__(
        self,
        n_scores: int = 16,
        n_folds: int = 2,
        *,
        hidden: Sequence[int] = (64,),
        activation: str = "tanh",
        kernel: str | None = None,
        n_kernel: int = 5,
        encoder: MakeNetwork | None = None,
        decoder: MakeNetwork | None = None,
        loss: str | Loss = "squared",
        solver: Literal["joint", "averaging"] = "joint",
        engine: str | MakeEngine = "threads",
        n_local_steps: int = 1,
        batch_size: int | None = None,
        centre: Centre = "source",
        missing: Literal["nan", "absent"] = "nan",
        ridge: float | tuple[float, float] = 1.0,
        ridge_kernel: float = 0.0,
        learning_rate: float = 0.01,
        max_rounds: int = 500,
        validation: float = 0.1,
        patience: int = 30,
        device: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_scores = n_scores
        self.n_folds = n_folds
        self.hidden = hidden
        self.activation = activation
        self.kernel = kernel
        self.n_kernel = n_kernel
        self.encoder = encoder
        self.decoder = decoder
        self.loss = loss
        self.solver = solver
        self.engine = engine
        self.n_local_steps = n_local_steps
        self.batch_size = batch_size
        self.centre = centre
        self.missing = missing
        self.ridge = ridge
        self.ridge_kernel = ridge_kernel
        self.learning_rate = learning_rate
        self.max_rounds = max_rounds
        self.validation = validation
        self.patience = patience
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, sources: Any = None) -> Self:
        """Train the networks.

        Parameters
        ----------
        X : dict, list or tuple of tables, 3-d array, or one table
            A table is an array, a DataFrame or a scipy.sparse matrix, with samples in rows.
        y : None
            Not used.
        sources : array-like, optional
            For one table, the source of each row. For a list of tables, their names.

        Returns
        -------
        self
        """
        check_settings(self.get_params(deep=False))
        tables = self._read(X, sources, reset=True)
        parts = self._observed(tables)
        loss: Loss = LOSSES[self.loss]() if isinstance(self.loss, str) else self.loss
        check_values(parts, tables.names, loss)
        middle = centres_of(parts, self.centre, loss)
        self._spread = spread_of(parts, middle)
        self.loss_ = at_noise(loss, self._spread)
        starts = [start_of(self.loss_, centre) for centre in middle]
        self._middles = dict(zip(tables.names, middle, strict=True))
        self.centres_ = dict(zip(tables.names, starts, strict=True))
        rng = check_random_state(self.random_state)
        network = self._made(tables.shared_length, len(tables.names), _seed(rng))
        check_networks(network, tables.shared_length, self.n_scores)
        run = self._train(network, parts, middle, starts, rng)
        self._dtype = to_numpy(tables.example()).dtype.name
        self._fitted_as = tables.emptied()
        self._labels = dict(
            zip(tables.names, zip(tables.index, tables.columns, strict=True), strict=True)
        )
        self._keep(network, tables.names, parts)
        self._record(run)
        return self

    def add_source(self, name: Hashable, X: Any) -> Self:
        """Add a source to the fit: only its own encoder is trained, all else stays as it is.

        Parameters
        ----------
        name
            Of the new source.
        X : table
            Its samples in rows, with the same features as the others.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if name in self.centres_:
            raise ValueError(f"There is a source {name!r} already: give the new one another name.")
        tables = read_tables({name: X})
        self._check_features(tables)
        parts = self._observed(tables)
        check_values(parts, [name], self.loss_)
        middle: list[Values | None] = [self._middle(None)]
        if self.centre != "global":
            middle = centres_of(parts, self.centre, self.loss_)
        starts = [start_of(self.loss_, middle[0])]
        rng = check_random_state(self.random_state)
        network = self._network()
        fresh = self._made(self.n_features_in_, 1, _seed(rng))
        check_networks(fresh, self.n_features_in_, self.n_scores)
        alone = AutoEncoder(network.shared, fresh.unique, network.decoder, self.n_folds)
        alone.to(self._device())
        own = list(alone.unique.parameters())
        self._train(alone, parts, middle, starts, rng, parameters=own)
        self._middles = {**self._middles, name: middle[0]}
        self.centres_ = {**self.centres_, name: starts[0]}
        self.source_names_ = [*self.source_names_, name]
        self.weights_ = _weights(network.joined([network, alone]))
        self._labels = {**self._labels, name: (tables.index[0], tables.columns[0])}
        self._fitted_as = self._fitted_as.with_name(name)
        self._keep_scores(self.source_names_[-1:], parts)
        return self

    def _ridges(self) -> tuple[float, float]:
        pair: Any = (self.ridge, self.ridge) if isinstance(self.ridge, Real) else self.ridge
        return float(pair[0]), float(pair[1])

    def _made(self, width: int, n_sources: int, seed: int) -> AutoEncoder:
        """Return networks with random weights."""
        sizes = [width, *self.hidden, self.n_scores]
        options: dict[str, Any] = {
            "activation": self.activation,
            "kernel": self.kernel,
            "n_kernel": self.n_kernel,
            "encoder": self.encoder,
            "decoder": self.decoder,
        }
        return make_networks(sizes, n_sources, self.n_folds, seed, **options)

    def _train(
        self,
        network: AutoEncoder,
        parts: list[Seen],
        middles: list[Values | None],
        starts: list[Values | None],
        rng: Any,
        parameters: list[Any] | None = None,
    ) -> Run:
        kept, held = split(parts, self.validation, rng)
        device = self._device()
        network.to(device)

        def batch(wanted: list[Seen], k: slice = slice(None)) -> Any:
            inputs = kept[k]
            asked = inputs if wanted is kept else wanted[k]
            return batch_of(inputs, asked, middles[k], starts[k], self._spread, device)

        n_samples = sum(part.shape[0] for part in parts)
        options: dict[str, Any] = {"n_batches": -(-n_samples // (self.batch_size or n_samples))}
        objective = Objective(self.loss_, self._ridges(), self.ridge_kernel, self._unit())
        schedule = Schedule(self.learning_rate, self.max_rounds, self.patience)
        asked = any(len(part.values) for part in held)
        with (
            seeded(seed := _seed(rng)),
            tqdm(total=self.max_rounds, disable=not self.verbose, unit="round") as bar,
        ):

            def watch(number: int, value: float) -> None:
                bar.update()
                bar.set_postfix(value=f"{value:.6g}")

            options |= {"seed": seed, "watch": watch}
            if self.solver == "averaging" and parameters is None:
                places = [slice(k, k + 1) for k in range(len(parts))]
                each = [batch(kept, place) for place in places]
                out = [batch(held, place) for place in places] if asked else []
                options |= {"n_local_steps": self.n_local_steps, "make_engine": self._engine()}
                run = averaging(network, objective, each, schedule, held=out, **options)
            else:
                options |= {"held": batch(held) if asked else None, "parameters": parameters}
                run = joint(network, objective, batch(kept), schedule, **options)
        if run.interrupted:
            warnings.warn(
                f"The fit has not converged: {run.stopped}.", ConvergenceWarning, stacklevel=3
            )
        return run

    def _engine(self) -> MakeEngine:
        return ENGINES[self.engine] if isinstance(self.engine, str) else self.engine

    def _keep(self, network: AutoEncoder, names: list[Hashable], parts: list[Seen]) -> None:
        self.source_names_ = names
        self.weights_ = _weights(network)
        self.shared_scores_: dict[Hashable, Values] = {}
        self.unique_scores_: dict[Hashable, Values] = {}
        self._keep_scores(names, parts)

    def _keep_scores(self, names: list[Hashable], parts: list[Seen]) -> None:
        scores = self._scores(parts, names)
        shared = {name: each for name, (each, _) in zip(names, scores, strict=True)}
        unique = {name: each for name, (_, each) in zip(names, scores, strict=True)}
        self.shared_scores_ = {**self.shared_scores_, **shared}
        self.unique_scores_ = {**self.unique_scores_, **unique}

    def _record(self, run: Run) -> None:
        index = pd.RangeIndex(1, len(run.history) + 1, name="round")
        history = pd.DataFrame(run.history, index, columns=["value", "held_out"])
        self.history_ = history.assign(value=history["value"] * self._unit() ** 2)
        self.n_rounds_, self.converged_, self.stopped_ = run.best, run.converged, run.stopped


def _weights(network: AutoEncoder) -> dict[str, Values]:
    return {name: to_numpy(values) for name, values in network.state_dict().items()}


def _seed(rng: Any) -> int:
    return int(rng.randint(np.iinfo(np.int32).max))
