"""What goes over the wire: flat dicts of arrays and a JSON header, as one safetensors file.

Stages, losses and models are sent as the names of their classes and their settings; reading makes
objects of a short list of known classes, and cannot be made to run anything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from heterofactor.canonical import ScoringObserved
from heterofactor.factors import Scoring
from heterofactor.federation.measuring import Measuring
from heterofactor.guess import Noise, OnGuess, Reviving
from heterofactor.labels import PLAIN
from heterofactor.linalg import to_numpy
from heterofactor.losses import LOSSES
from heterofactor.rounds import State
from heterofactor.solvers import SOLVERS
from heterofactor.start import OnSketch, Spectral

STAGES = (Spectral, OnSketch, OnGuess, Reviving, Noise, Scoring, ScoringObserved, Measuring)
KNOWN: dict[str, Any] = {
    known.__name__: known for known in (*STAGES, *SOLVERS.values(), *LOSSES.values())
}
KEY = "heterofactor"
LENGTH_BYTES = 8


def pack(header: Mapping[str, Any], arrays: State) -> bytes:
    """Return a message as bytes.

    Parameters
    ----------
    header : mapping
        What JSON can hold.
    arrays : dict of arrays
        Of any library.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.federation.messages import pack, unpack
    >>> unpack(pack({"kind": "step"}, {"value": np.array(2.0)}))
    ({'kind': 'step'}, {'value': array(2.)})
    """
    tensors = {}
    for name, value in arrays.items():
        array = to_numpy(value)
        tensors[name] = np.ascontiguousarray(array).reshape(array.shape)
    return save(tensors, {KEY: json.dumps(header, separators=(",", ":"))})


def unpack(data: bytes) -> tuple[dict[str, Any], State]:
    """Return the header and the arrays of a message.

    Parameters
    ----------
    data : bytes
        What `pack` returned; anything else is a ValueError.

    Examples
    --------
    >>> from heterofactor.federation.messages import unpack
    >>> unpack(b"hello")
    Traceback (most recent call last):
    ValueError: This is no message of a federation: ...
    """
    try:
        arrays: State = load(data)
        end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
        header = json.loads(json.loads(data[LENGTH_BYTES:end])["__metadata__"][KEY])
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"This is no message of a federation: {error}.") from error
    if not isinstance(header, dict):
        raise ValueError(f"This is no message of a federation: its header is {header!r:.60}.")
    return header, arrays


def described(value: Any) -> Any:
    """Return a stage, a loss or a plain value as JSON.

    Parameters
    ----------
    value
        A stage, a loss, or what is made of plain values, tuples, lists and dicts.

    Examples
    --------
    >>> from heterofactor.federation.messages import described
    >>> from heterofactor.guess import Reviving
    >>> described(Reviving("rows"))
    {'Reviving': {'offsets': 'rows'}}
    """
    if value is None or type(value) in PLAIN:
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value]
    if is_dataclass(value) and KNOWN.get(type(value).__name__) is type(value):
        settings = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        return {type(value).__name__: {k: described(v) for k, v in settings.items()}}
    raise TypeError(
        f"{value!r:.80} cannot be sent to the sites of a federation: use plain values, and the "
        "solvers and losses of heterofactor."
    )


def restored(content: Any) -> Any:
    """Return what `described` wrote; lists come back as tuples.

    Parameters
    ----------
    content
        What it returned.

    Examples
    --------
    >>> from heterofactor.federation.messages import restored
    >>> restored({"Reviving": {"offsets": "rows"}})
    Reviving(offsets='rows')
    """
    if isinstance(content, list):
        return tuple(restored(item) for item in content)
    if not isinstance(content, dict):
        return content
    ((name, settings),) = content.items()
    if name not in KNOWN:
        raise ValueError(f"The message names {name!r:.60}, which this version does not know.")
    return KNOWN[name](**{k: restored(v) for k, v in settings.items()})
