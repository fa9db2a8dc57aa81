"""The state of a server in a file, so that one that was killed goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heterofactor.federation.messages import described, pack, restored, unpack
from heterofactor.losses import Loss
from heterofactor.rounds import Result, State
from heterofactor.start import Start


@dataclass(frozen=True, eq=False)
class Standing:
    """How far a fit has come.

    Attributes
    ----------
    setup : dict
        What messages say of the fit.
    stage, rounds : int
        How many stages and rounds there were.
    scale : float
        The size of an entry.
    loss : Loss
        With the threshold that was found.
    start : Start
        Where the solver began.
    result : Result
        Of its rounds so far.
    """

    setup: dict[str, Any]
    stage: int
    rounds: int
    scale: float
    loss: Loss
    start: Start
    result: Result


def fingerprint(*settings: Any) -> str:
    """Return what tells one fit from another.

    Parameters
    ----------
    *settings
        What JSON can hold.

    Examples
    --------
    >>> from heterofactor.federation.restart import fingerprint
    >>> fingerprint({"n_shared": 1}) == fingerprint({"n_shared": 2})
    False
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def write(path: Path, known: str, standing: Standing) -> None:
    """Replace a server's checkpoint, once the new one is complete.

    Parameters
    ----------
    path : Path
        Of the file.
    known : str
        The fingerprint of the fit.
    standing : Standing
        How far it has come.
    """
    start, result = standing.start, standing.result
    header = {
        "fit": known,
        "setup": standing.setup,
        "stage": standing.stage,
        "rounds": standing.rounds,
        "scale": standing.scale,
        "loss": described(standing.loss),
        "start": start.name,
        "history": result.history,
    }
    arrays: State = {f"shared/{name}": value for name, value in result.shared.items()}
    arrays["start/basis"] = start.basis
    if start.eigenvalues is not None:
        arrays["start/eigenvalues"] = start.eigenvalues
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(pack(header, arrays))
    os.replace(part, path)


def read(path: Path, known: str) -> Standing | None:
    """Return how far a fit has come; None where there is no checkpoint.

    Parameters
    ----------
    path : Path
        Of the file.
    known : str
        The fingerprint of the fit.

    Examples
    --------
    >>> from pathlib import Path
    >>> from heterofactor.federation.restart import read
    >>> read(Path("nowhere.safetensors"), "") is None
    True
    """
    if not path.exists():
        return None
    try:
        header, arrays = unpack(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{str(path)!r} is damaged, or no checkpoint: remove it to begin anew."
        ) from error
    if header.get("fit") != known:
        raise ValueError(
            f"{str(path)!r} is no checkpoint of this fit: it was written for other sites or "
            "settings. Remove it to begin anew, or name another file."
        )
    kept = {name.partition("/")[2]: a for name, a in arrays.items() if name.startswith("shared/")}
    return Standing(
        header["setup"],
        header["stage"],
        header["rounds"],
        header["scale"],
        restored(header["loss"]),
        Start(arrays["start/basis"], arrays.get("start/eigenvalues"), header["start"]),
        Result(
            {name: np.asarray(value) for name, value in kept.items()},
            [(value, gradient) for value, gradient in header["history"]],
        ),
    )
