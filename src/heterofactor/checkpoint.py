"""The state of a run in a file, so that a run that was killed goes on where it was.

Everything that a run needs is its shared state and the private states of its sources, which are
flat dicts of arrays: one tensor each in a safetensors file, beside the rounds so far as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import device
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from heterofactor.linalg import Array, namespace, to_numpy
from heterofactor.rounds import Result, State
from heterofactor.sources import Source
from heterofactor.start import Start

FORMAT = 1
KEY = "heterofactor checkpoint"
# So much of the time at most goes into writing.
SHARE = 0.05


@dataclass(frozen=True)
class Checkpoint:
    """A file that keeps the state of a run; for the parameter `checkpoint` of a model.

    A fit of the same tables with the same settings goes on from it, and comes to the same answer as
    one that was never stopped. The file goes when the fit is done.

    Parameters
    ----------
    path : str
        Of the file, by custom ending in ``.safetensors``.
    every : float
        Seconds between two writes at least; more, where writing would take over a twentieth of the
        time. With 0, it is written after every round.

    Examples
    --------
    >>> from heterofactor.checkpoint import Checkpoint
    >>> Checkpoint("run.safetensors").every  # HMF(checkpoint="run.safetensors") is the same
    10.0
    """

    path: str
    every: float = 10.0


@dataclass(frozen=True, eq=False)
class Attempt:
    """How far one start of a search was followed.

    Attributes
    ----------
    result : Result
        Of the run, finished or not.
    start : Start
        Where it began.
    locals : list of dict of arrays
        The private states.
    """

    result: Result
    start: Start
    locals: list[State]


@dataclass(frozen=True, eq=False)
class Kept:
    """The state of a search.

    Attributes
    ----------
    number : int
        Of the attempt that is being made.
    now : Attempt
        This attempt.
    best : Attempt or None
        The best one before it.
    history : list of (start, value, gradient)
        Of all attempts before it.
    threshold : float or None
        Of the loss, where it was left to the data.
    """

    number: int
    now: Attempt
    best: Attempt | None
    history: list[tuple[str, float, float]]
    threshold: float | None


class Keeper:
    """Writes the state of a search to a file, and reads it.

    Parameters
    ----------
    checkpoint : Checkpoint
        Where and how often.
    fingerprint : str
        Of the tables and settings.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.checkpoint import Checkpoint, Keeper
    >>> Keeper(Checkpoint("nowhere.safetensors"), "").read(np.zeros(1)) is None
    True
    """

    def __init__(self, checkpoint: Checkpoint, fingerprint: str) -> None:
        self.path, self.every = Path(checkpoint.path), checkpoint.every
        self.fingerprint = fingerprint
        self._next = time.monotonic() + self.every

    @property
    def is_due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() >= self._next

    def write(self, kept: Kept) -> None:
        """Replace the file, once the new one is complete."""
        begun = time.monotonic()
        tensors: dict[str, np.ndarray[Any, Any]] = {}
        header = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "number": kept.number,
            "now": _described(kept.now, "now", tensors),
            "best": None if kept.best is None else _described(kept.best, "best", tensors),
            "history": kept.history,
            "threshold": kept.threshold,
        }
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            save_file(tensors, part, {KEY: json.dumps(header)})
            os.replace(part, self.path)
        finally:
            part.unlink(missing_ok=True)
        ended = time.monotonic()
        wait = (ended - begun) * (1 - SHARE) / SHARE if self.every else 0.0
        self._next = ended + max(self.every, wait)

    def read(self, example: Array) -> Kept | None:
        """Return what was written, its arrays of the library of an example; None without a file."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="numpy") as file:
                header = json.loads((file.metadata() or {}).get(KEY, "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(
                f"{str(self.path)!r} is damaged, or no checkpoint: {error}. Remove it to begin "
                "anew."
            ) from error
        if header.get("format") != FORMAT or header.get("fingerprint") != self.fingerprint:
            raise ValueError(
                f"{str(self.path)!r} is no checkpoint of this fit: it was written for other tables "
                "or settings. Remove it to begin anew, or name another file."
            )
        best = header["best"]
        return Kept(
            header["number"],
            _restored(header["now"], "now", tensors, example),
            None if best is None else _restored(best, "best", tensors, example),
            [(name, value, gradient) for name, value, gradient in header["history"]],
            header["threshold"],
        )

    def remove(self) -> None:
        """Remove the file: the search is done."""
        self.path.unlink(missing_ok=True)


def keeper_of(
    checkpoint: Checkpoint | str | os.PathLike[str] | None,
    sources: Sequence[Source],
    *settings: Any,
) -> Keeper | None:
    """Return what keeps the state of a search of these sources; None where nothing is to be kept.

    Parameters
    ----------
    checkpoint : Checkpoint, str or path, optional
        Where.
    sources : sequence of Source
        Known by their shapes and energies.
    *settings
        Whatever else the answer depends on; known by what is printed of them.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.checkpoint import keeper_of
    >>> from heterofactor.sources import Dense
    >>> one, two = (Dense(np.full((1, 2, 2), x)) for x in (1.0, 2.0))
    >>> first, second = (keeper_of("run.safetensors", [source]) for source in (one, two))
    >>> first.fingerprint == second.fingerprint
    False
    """
    if checkpoint is None:
        return None
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(os.fspath(checkpoint))
    folder = Path(checkpoint.path).parent
    if not folder.is_dir():
        raise FileNotFoundError(
            f"checkpoint is {checkpoint.path!r}, but there is no folder {str(folder)!r}: make it "
            "first."
        )
    known = hashlib.sha256(repr(settings).encode())
    for source in sources:
        known.update(repr(source.shape).encode())
        known.update(np.ascontiguousarray(to_numpy(source.energy)).tobytes())
    return Keeper(checkpoint, known.hexdigest())


def _described(
    attempt: Attempt, name: str, tensors: dict[str, np.ndarray[Any, Any]]
) -> dict[str, Any]:
    """Put the arrays of an attempt among the tensors, and return all else."""
    states = {"shared": attempt.result.shared, "start": _arrays(attempt.start)}
    states |= {str(place): state for place, state in enumerate(attempt.locals)}
    for kind, state in states.items():
        for key, value in state.items():
            array = to_numpy(value)
            tensors[f"{name}/{kind}/{key}"] = np.ascontiguousarray(array).reshape(array.shape)
    result = attempt.result
    return {
        "start": attempt.start.name,
        "history": result.history,
        "converged": result.converged,
        "stopped": result.stopped,
    }


def _restored(
    described: dict[str, Any],
    name: str,
    tensors: dict[str, np.ndarray[Any, Any]],
    example: Array,
) -> Attempt:
    xp, where = namespace(example), device(example)

    def brought(value: Any) -> Array:
        return value if isinstance(example, np.ndarray) else xp.asarray(value, device=where)

    states: dict[str, State] = {}
    for path, value in tensors.items():
        of, kind, key = path.split("/", 2)
        if of == name:
            states.setdefault(kind, {})[key] = brought(value)
    start = states.pop("start")
    result = Result(
        states.pop("shared"),
        [(value, gradient) for value, gradient in described["history"]],
        described["converged"],
        described["stopped"],
    )
    begun = Start(start["basis"], start.get("eigenvalues"), described["start"])
    return Attempt(result, begun, [states[str(place)] for place in range(len(states))])


def _arrays(start: Start) -> State:
    basis = {"basis": start.basis}
    return basis if start.eigenvalues is None else basis | {"eigenvalues": start.eigenvalues}
