"""The fit of a federation, by messages alone: what `HMF.fit` does where all data are at hand."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from sklearn.utils import check_random_state

from heterofactor.factors import Scoring
from heterofactor.federation.engine import Federated, Transport, asked, sample_source
from heterofactor.federation.measuring import Measuring
from heterofactor.federation.messages import KEY, pack
from heterofactor.federation.owned import settings_of
from heterofactor.federation.quorum import LOG, Quorum, too_few
from heterofactor.federation.restart import Standing, fingerprint, read, write
from heterofactor.guess import pilot
from heterofactor.hmf import HMF
from heterofactor.linalg import Array, orthonormal, to_numpy
from heterofactor.losses import Loss, is_open
from heterofactor.rounds import Result, Solver, Stage, State, Watch, run
from heterofactor.search import find_start, follower
from heterofactor.solvers import Averaging

# What tables of all sites must have in common.
ALIKE = ("n_features", "dtype", "features")


@dataclass(frozen=True, eq=False)
class SharedFit:
    """What the server of a federation knows at the end.

    Attributes
    ----------
    shared_components : array of shape (n_shared, n_features)
        Orthonormal rows.
    history : list of (value, gradient)
        One pair a round of the solver.
    converged : bool
        Whether the tolerance was reached.
    stopped : str
        Why it stopped, a sentence.
    n_rounds : int
        Rounds in all, those of the start and of the scoring included.
    sites : list of str
        Those that keep a model of their own.
    left_out : list of (str, str, str)
        In which round, which site and why.
    """

    shared_components: Array
    history: list[tuple[float, float]]
    converged: bool
    stopped: str
    n_rounds: int
    sites: list[str]
    left_out: list[tuple[str, str, str]]


def fit(
    model: HMF,
    transport: Transport,
    *,
    quorum: Quorum | None = None,
    secure: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
) -> SharedFit:
    """Fit a model to the data of sites, which stay there.

    Every site keeps its own fitted model, with its unique bases and scores, in a file on its own
    disk; the server has the shared basis alone. The answer is that of ``model.fit`` of all tables
    together.

    Parameters
    ----------
    model : HMF
        What is to be fitted; it stays as it is. The sources share their features, and each has
        its own centre or none.
    transport : Transport
        How to reach the sites.
    quorum : Quorum, optional
        How many of them must take part in a round, and how long to wait: all, unless given. Where
        some are missing, the round is about the data of the others.
    secure : bool
        Mask messages, so that the server sees their sums only (`masking` says against whom). What
        is summed is rounded to 40 binary digits after the point in units of the mean source, to 60
        in the units of the data where not all is observed.
    checkpoint : str or path, optional
        A file that keeps what the server knows after every round of the solver. One that was
        killed goes on from there if it is started again with the same model and sites; the file
        goes when the fit is done.
    watch : callable, optional
        Called as ``watch(number, value, shared)`` after every round of the solver.

    Returns
    -------
    SharedFit

    Examples
    --------
    >>> import tempfile
    >>> from heterofactor import HMF, federation
    >>> from heterofactor.datasets import make_heterogeneous
    >>> from heterofactor.files import load
    >>> data = make_heterogeneous(3, n_shared=2, n_unique=1, noise=0.1, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sites = [federation.Site(name, {name: X}, folder) for name, X in data.sources.items()]
    ...     with federation.InThreads(sites) as transport:
    ...         found = federation.fit(HMF(2, 1), transport)
    ...     own = load(f"{folder}/source1.safetensors")
    >>> found.shared_components.shape, own.source_names_
    ((2, 120), ['source1'])
    """
    quorum = quorum or Quorum()
    _check(model, transport, quorum, secure)
    names, facts = _facts(transport, quorum)
    first = facts[0]
    complete, sparse = all(f["complete"] for f in facts), any(f["sparse"] for f in facts)
    plain = model._is_plain(complete, sparse)
    settings = settings_of(model)
    ranks = settings["n_unique"]
    n_unique = max(ranks.values()) if isinstance(ranks, dict) else ranks
    seed = int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))
    sample = sample_source(
        first["n_features"],
        first["dtype"],
        model.n_shared + n_unique + 2,
        plain=plain,
        centred=model.centre is not None,
    )
    setup = {
        "run": secrets.token_hex(8),
        "model": settings,
        "tables": {key: first[key] for key in ALIKE},
        "plain": plain,
        "seed": seed,
        "mean_energy": None,
    }
    engine = _engine(secure)(transport, names, setup, quorum, sample, n_unique)
    loss = model._loss()
    example = np.zeros((first["n_features"], 0), first["dtype"])
    path = None if checkpoint is None else Path(checkpoint)
    known = fingerprint(settings, setup["tables"], plain, secure, sorted(transport.names))
    kept = None if path is None else read(path, known)
    if kept is None:
        scale = _measured(engine, loss, example, plain)
    else:
        engine.setup, scale, loss = kept.setup, kept.scale, kept.loss
    solver, finish = _stages(model, plain, scale)
    if kept is None:
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        start = find_start(engine, loss, solver, n_unique, example, rng)
        if is_open(loss):
            start, loss = pilot(engine, loss, follower(solver), start, scale)
    else:
        start = kept.start
        engine.resume(solver, kept.result.shared, kept.stage, kept.rounds)
    rounds = [] if kept is None else list(kept.result.history)

    def after_each(number: int, value: float, shared: State) -> None:
        rounds.append((value, float(shared["gradient"])))
        if path is not None:
            result, counts = Result(shared, rounds), (engine.n_stages, engine.n_rounds)
            write(path, known, Standing(engine.setup, *counts, scale, loss, start, result))
        if watch is not None:
            watch(number, value, shared)

    limit = 1 if start.interrupted else model.max_rounds
    result = run(
        solver,
        engine,
        loss,
        solver.start(start.basis),
        max_rounds=limit,
        watch=after_each,
        before=None if kept is None else kept.result,
    )
    shared = result.shared
    if plain:
        shared = shared | {"basis": orthonormal(shared["basis"])}
    scored = run(finish, engine, loss, shared, max_rounds=1).shared
    told = {
        "history": result.history,
        "converged": result.converged,
        "stopped": result.stopped,
        "start": start.name,
        "eigenvalues": None if start.eigenvalues is None else to_numpy(start.eigenvalues).tolist(),
    }
    holders = engine.finish(finish, loss, {k: scored[k] for k in ("basis", "turn")}, told)
    if path is not None:
        path.unlink(missing_ok=True)
    return SharedFit(
        scored["basis"].mT,
        result.history,
        result.converged,
        result.stopped,
        engine.n_rounds,
        holders,
        engine.left_out,
    )


def _measured(engine: Federated, loss: Loss, example: Array, plain: bool) -> float:
    """Ask how large the data are; return the size of an entry, where it is needed."""
    stage = Measuring(robust=not plain)
    found = run(stage, engine, loss, {"basis": example}, max_rounds=1).shared
    if plain:
        mean_energy = float(found["energy"] / found["sources"])
        engine.setup = engine.setup | {"mean_energy": mean_energy}
        return 1.0
    return float(found["variance"] / max(found["entries"], 1)) ** 0.5 or 1.0


def _stages(model: HMF, plain: bool, scale: float) -> tuple[Solver, Stage]:
    """Return the solver, and the stage that scores."""
    return (model._solver("grassmann"), Scoring()) if plain else model._observed_stages(scale)


def save_shared(found: SharedFit, path: str | os.PathLike[str]) -> None:
    """Write what the server knows to a safetensors file: one tensor, and how the run went as JSON.

    Parameters
    ----------
    found : SharedFit
        What `fit` returned.
    path : str or path
        Of the file.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from safetensors.numpy import load_file
    >>> from heterofactor.federation import SharedFit, save_shared
    >>> found = SharedFit(np.eye(2), [(1.0, 0.0)], True, "done", 1, ["north"], [])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_shared(found, f"{folder}/shared.safetensors")
    ...     load_file(f"{folder}/shared.safetensors")["shared_components"].shape
    (2, 2)
    """
    told = {f.name: getattr(found, f.name) for f in fields(found) if f.name != "shared_components"}
    components = np.ascontiguousarray(found.shared_components)
    save_file({"shared_components": components}, path, {KEY: json.dumps(told)})


def _engine(secure: bool) -> type[Federated]:
    """Return the kind of engine; masks need a library that is not always there."""
    if not secure:
        return Federated
    try:
        from heterofactor.federation.secure import SecureFederated
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise ImportError(
            "secure=True needs cryptography: pip install 'heterofactor[federated]'."
        ) from error
    return SecureFederated


def _check(model: HMF, transport: Transport, quorum: Quorum, secure: bool) -> None:
    """Refuse what needs more than sums."""
    model._check_parameters()
    count = len(transport.names)
    if count == 0:
        raise ValueError("The federation has no site: name at least one.")
    if quorum.need is not None and quorum.need > count:
        raise ValueError(f"need is {quorum.need}, but there are {count} sites: lower it.")
    if secure and (count < 2 or quorum.need == 1):
        raise ValueError(
            "secure=True hides the messages of sites among each other: expected at least two "
            "sites, and need=2 or more."
        )
    solver = model._solver("alternating")
    if secure and isinstance(solver, Averaging) and solver.step_size is None:
        raise ValueError(
            "solver='averaging' begins with a value of infinity, which cannot be masked: give "
            "Averaging(step_size=...), or leave solver='auto'."
        )
    refused = {
        "shared_axis": model.shared_axis != "features",
        "centre": model.centre == "global",
        "n_restarts": model.n_restarts != 0,
        "checkpoint": model.checkpoint is not None,
    }
    for name, wrong in refused.items():
        if wrong:
            raise ValueError(
                f"{name} is {getattr(model, name)!r}, which a federation cannot do: leave it at "
                "its default."
            )


def _facts(transport: Transport, quorum: Quorum) -> tuple[list[str], list[dict[str, Any]]]:
    """Ask every site what its tables are like, and leave out those that do not fit the others.

    Returns who may take part, those that have not answered yet among them, and the answers.
    """
    data = pack({"kind": "describe"}, {})
    asked_first = "the first question"
    names = list(transport.names)
    replies, missing = asked(
        transport, dict.fromkeys(names, data), quorum, asked_first, "described"
    )
    facts = {name: replies[name][0] for name in sorted(replies)}
    alike = [tuple(fact[key] for key in ALIKE) for fact in facts.values()]
    usual = max(alike, key=alike.count)
    for name, found in zip(sorted(replies), alike, strict=True):
        if found == usual:
            continue
        what = f"it has {found[0]} features in {found[1]}, expected {usual[0]} in {usual[1]}"
        if found[:2] == usual[:2]:
            what = "its features have other names than those of the other sites, or another order"
        missing[name] = what
        names.remove(name)
        del facts[name]
        LOG.warning("site %r is left out of the federation: %s", name, what)
    too_few(asked_first.capitalize(), list(facts), quorum.need or len(transport.names), missing)
    return names, list(facts.values())
