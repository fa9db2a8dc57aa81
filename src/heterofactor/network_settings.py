"""What the settings of an HAE may be, and what networks of the user's own must answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import nn

from heterofactor.engines import ENGINES
from heterofactor.losses import LOSSES
from heterofactor.networks import ACTIVATIONS, KERNELS, AutoEncoder, Given

SOLVERS = ("joint", "averaging")
# The least that integers may be.
LEAST = {
    "n_scores": 1,
    "n_folds": 1,
    "n_kernel": 1,
    "n_local_steps": 1,
    "batch_size": 1,
    "max_rounds": 1,
    "patience": 1,
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "activation": tuple(ACTIVATIONS),
    "kernel": (None, *KERNELS),
    "solver": SOLVERS,
    "centre": ("source", "global", None),
    "missing": ("nan", "absent"),
}
# By name, or objects.
NAMED: dict[str, tuple[str, ...]] = {"loss": tuple(LOSSES), "engine": tuple(ENGINES)}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that cannot be.

    Parameters
    ----------
    settings : dict
        The parameters of an HAE, by name.

    Examples
    --------
    >>> from heterofactor import HAE
    >>> from heterofactor.network_settings import check_settings
    >>> check_settings(HAE(n_scores=0).get_params())
    Traceback (most recent call last):
    ...
    ValueError: n_scores is 0: expected an integer of at least 1.
    """
    for name, least in LEAST.items():
        value = settings[name]
        if not _is_whole(value, least) and not (name == "batch_size" and value is None):
            other = ", or None for all samples" if name == "batch_size" else ""
            raise ValueError(
                f"{name} is {value!r}: expected an integer of at least {least}{other}."
            )
    n_scores, n_folds = settings["n_scores"], settings["n_folds"]
    if n_scores % n_folds or n_folds**2 >= n_scores > 1:
        raise ValueError(
            f"n_folds is {n_folds}: expected a divisor of n_scores={n_scores} whose square is "
            "less, or the projection would leave nothing of the unique scores."
        )
    hidden = settings["hidden"]
    if not isinstance(hidden, Sequence | np.ndarray) or not all(_is_whole(n, 1) for n in hidden):
        raise ValueError(
            f"hidden is {hidden!r}: expected the units of each hidden layer, such as (64,) or "
            "(128, 64); () for none."
        )
    named = {name: c for name, c in NAMED.items() if isinstance(settings[name], str)}
    for name, allowed in (CHOICES | named).items():
        if settings[name] not in allowed:
            some = ", ".join(map(repr, allowed))
            raise ValueError(f"{name} is {settings[name]!r}: expected one of {some}.")
    if not isinstance(settings["engine"], str) and not callable(settings["engine"]):
        raise TypeError(
            f"engine is {settings['engine']!r}: expected one of {', '.join(map(repr, ENGINES))}, "
            "or a callable that makes an engine of sources and private states."
        )
    loss = settings["loss"]
    if not isinstance(loss, str) and not all(hasattr(loss, name) for name in ("value", "slope")):
        raise TypeError(
            f"loss is {loss!r}, which has no value and slope: give one of "
            f"{', '.join(map(repr, LOSSES))}, or an object with these methods."
        )
    _check_numbers(settings)
    _check_device(settings["device"])


def _check_numbers(settings: Mapping[str, Any]) -> None:
    validation, rate = settings["validation"], settings["learning_rate"]
    if not isinstance(validation, Real) or not 0 <= float(validation) < 1:
        raise ValueError(f"validation is {validation!r}: expected a share from 0 to 1.")
    if not isinstance(rate, Real) or not 0 < float(rate) < np.inf:
        raise ValueError(f"learning_rate is {rate!r}: expected a positive number.")
    if not _are_penalties([settings["ridge_kernel"]]):
        raise ValueError(
            f"ridge_kernel is {settings['ridge_kernel']!r}: expected a number from zero on."
        )
    ridge = settings["ridge"]
    pair = [ridge, ridge] if isinstance(ridge, Real) else ridge
    if not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2 or not _are_penalties(pair):
        raise ValueError(
            f"ridge is {ridge!r}: expected a number from zero on, or two, for what is shared and "
            "for the unique encoders."
        )


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _are_penalties(values: Any) -> bool:
    return all(isinstance(value, Real) and 0 <= float(value) < np.inf for value in values)


def _check_device(device: Any) -> None:
    if device is None:
        return
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device is {device!r}, where torch cannot compute here ({reason}): expected 'cpu', or "
            "'cuda' where there is a GPU; None takes the GPU if there is one."
        ) from error


def check_networks(network: AutoEncoder, width: int, length: int) -> None:
    """Refuse networks of the user's own that do not answer as an encoder or a decoder must.

    Parameters
    ----------
    network : AutoEncoder
        With networks of the user's own, or of ours, which are not looked at.
    width, length : int
        The number of features and of scores.

    Examples
    --------
    >>> import torch
    >>> from heterofactor.network_settings import check_networks
    >>> from heterofactor.networks import make_networks
    >>> make_encoder = lambda n_in, n_out: torch.nn.Linear(n_in, n_out + 1)
    >>> check_networks(make_networks([9, 4], 2, 1, seed=0, encoder=make_encoder), 9, 4)
    Traceback (most recent call last):
    ...
    ValueError: What encoder(9, 4) returned makes an output of shape (2, 5) of two samples: ...
    """
    pairs = (
        ("encoder", (width, length), [network.shared, network.unique]),
        ("decoder", (length, width), [network.decoder]),
    )
    for name, sizes, parts in pairs:
        own = [one for part in parts if isinstance(part, Given) for one in part.networks]
        if len({id(one) for one in own}) < len(own):
            raise ValueError(
                f"{name} returned the same network more than once: the shared encoder and every "
                "source's own must not have weights in common. Make a new one at every call."
            )
        for one in own:
            _check_answer(one, f"{name}({sizes[0]}, {sizes[1]})", *sizes)


def _check_answer(network: nn.Module, call: str, n_in: int, n_out: int) -> None:
    """Ask a network for two samples of normal noise, which is how its inputs are scaled."""
    noise = torch.randn(2, n_in, generator=torch.Generator().manual_seed(0))
    before = network.training
    try:
        with torch.no_grad():
            found = network.eval()(noise.to(next(network.parameters(), noise).device))
    except RuntimeError as error:
        raise ValueError(
            f"What {call} returned fails on two samples of {n_in} numbers each: {error}. It is "
            "called with how many numbers go in and come out."
        ) from error
    network.train(before)
    if not isinstance(found, torch.Tensor):
        raise ValueError(f"What {call} returned makes {type(found).__name__}, expected a tensor.")
    if tuple(found.shape) != (2, n_out):
        raise ValueError(
            f"What {call} returned makes an output of shape {tuple(found.shape)} of two samples: "
            f"expected (2, {n_out}). It is called with how many numbers go in and come out."
        )
    if not bool(torch.isfinite(found).all()):
        raise ValueError(
            f"What {call} returned makes numbers that are not finite of two samples of normal "
            "noise: look at how its weights start, and for logarithms, roots and divisions."
        )
