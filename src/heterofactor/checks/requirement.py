"""How a check says what failed: the property, by how much, and how much was allowed.

Plain `assert` would vanish under ``python -O``, and be silent about the numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from heterofactor.linalg import Array, to_numpy


def require(holds: bool, failed: str) -> None:
    """Raise an error that says what failed, unless it holds."""
    if not holds:
        raise AssertionError(failed)


def require_close(what: str, found: Array, expected: Array, within: Any) -> None:
    """Require that no entry is off by more than `within`; infinities must be the same.

    Parameters
    ----------
    what : str
        The property, as the subject of the message.
    found, expected : array or float
        Of one shape.
    within : array or float
        Absolute.

    Examples
    --------
    >>> from heterofactor.checks.requirement import require_close
    >>> require_close("energy", 2.0, 2.5, within=0.1)
    Traceback (most recent call last):
    AssertionError: energy: off by 5.0e-01, where 1.0e-01 is allowed
    """
    one, other = to_numpy(found), to_numpy(expected)
    require(one.shape == other.shape, f"{what}: shape {one.shape}, expected {other.shape}")
    with np.errstate(invalid="ignore"):
        off = np.where(one == other, 0.0, np.abs(one - other))
    allowed = np.broadcast_to(within, off.shape)
    failed = ~(off <= allowed)  # true also for what is not a number
    if failed.any():
        worst = np.argmax(np.where(failed, off, -1))
        raise AssertionError(
            f"{what}: off by {off.flat[worst]:.1e}, where {allowed.flat[worst]:.1e} is allowed"
        )


def require_frozen(kind: str, thing: Any) -> None:
    """Require a frozen dataclass that holds its settings and nothing else."""
    parameters = getattr(thing, "__dataclass_params__", None)
    require(
        parameters is not None and parameters.frozen,
        f"{kind}: {type(thing).__name__} is no frozen dataclass",
    )
    fields = {field.name for field in dataclasses.fields(thing)}
    hidden = sorted(set(getattr(thing, "__dict__", {})) - fields)
    require(not hidden, f"{kind}: {type(thing).__name__} keeps state of its own: {hidden}")


def require_flat(what: str, state: Any) -> None:
    """Require a flat dict of arrays."""
    require(isinstance(state, dict), f"{what}: a {type(state).__name__}, expected a dict of arrays")
    for name, value in state.items():
        require(isinstance(name, str), f"{what}: its key {name!r} is no string")
        require(
            is_array_api_obj(value), f"{what}[{name!r}]: a {type(value).__name__}, not an array"
        )


def require_precision(what: str, state: Mapping[str, Array], dtype: Any) -> None:
    """Require that all real numbers of a dict of arrays have one precision."""
    for name, value in state.items():
        if array_namespace(value).isdtype(value.dtype, "real floating"):
            require(value.dtype == dtype, f"{what}[{name!r}]: {value.dtype} where {dtype} came in")


def copied(state: Mapping[str, Array]) -> dict[str, Array]:
    """Return NumPy copies of a dict of arrays, to compare with later."""
    return {name: np.array(to_numpy(value)) for name, value in state.items()}


def require_same(what: str, found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Require two dicts of arrays to be the same byte for byte."""
    one, other = copied(found), copied(expected)
    require(one.keys() == other.keys(), f"{what}: keys {sorted(one)}, expected {sorted(other)}")
    for name, value in one.items():
        wanted = other[name]
        require(
            value.dtype == wanted.dtype
            and value.shape == wanted.shape
            and value.tobytes() == wanted.tobytes(),
            f"{what}[{name!r}]: not the same byte for byte{_how_far(value, wanted)}",
        )


def _how_far(one: Array, other: Array) -> str:
    if one.shape != other.shape or one.dtype != other.dtype:
        return f" ({one.dtype} {one.shape}, expected {other.dtype} {other.shape})"
    with np.errstate(invalid="ignore"):
        return f", off by up to {np.max(np.abs(one - other), initial=0):.1e}"
