"""What the settings of methods for ratings may be."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

# Sweeps of each solver, unless told otherwise.
ROUNDS = {"als": 5, "gibbs": 300}
LEAST = {"n_shared": 0, "n_unique": 0} | dict.fromkeys(
    (
        "n_groups",
        "n_fits",
        "n_rounds",
        "n_hidden",
        "n_hidden_unique",
        "n_kernel",
        "n_folds",
        "n_components",
        "max_rounds",
    ),
    1,
)
# Of what is left out at random, or held out.
SHARES = ("left_out", "dropout", "held")


def check_numbers(settings: dict[str, Any]) -> None:
    """Refuse sizes and shares that cannot be, of any method for ratings.

    Parameters
    ----------
    settings : dict
        By name.

    Examples
    --------
    >>> from heterofactor.ratings.settings import check_numbers
    >>> check_numbers({"n_hidden": 500, "left_out": 1.5})
    Traceback (most recent call last):
    ...
    ValueError: left_out is 1.5: expected a share from 0 to 1, less than 1.
    """
    for name, value in settings.items():
        if name in LEAST and not (name == "n_rounds" and value is None):
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not whole or value < LEAST[name]:
                raise ValueError(
                    f"{name} is {value!r}: expected an integer of at least {LEAST[name]}."
                )
        if name in SHARES and not all(0 <= one < 1 for one in np.atleast_1d(value)):
            raise ValueError(f"{name} is {value!r}: expected a share from 0 to 1, less than 1.")
        if name == "learning_rate" and not (isinstance(value, Real) and 0 < float(value) < np.inf):
            raise ValueError(f"{name} is {value!r}: expected a positive number.")


def check_settings(settings: dict[str, Any]) -> None:
    """Refuse settings of a RatingModel that cannot be.

    Parameters
    ----------
    settings : dict
        By name.

    Examples
    --------
    >>> from heterofactor.ratings.settings import check_settings
    >>> check_settings({"solver": "als", "n_fits": 0})
    Traceback (most recent call last):
    ...
    ValueError: n_fits is 0: expected an integer of at least 1.
    """
    check_numbers(settings)
    for name, value in settings.items():
        if name in ("ridge", "offset_ridge"):
            pair = isinstance(value, tuple | list | np.ndarray) and len(value) == 2
            if not pair or not all(
                isinstance(one, Real) and 0 < float(one) < np.inf for one in value
            ):
                raise ValueError(f"{name} is {value!r}: expected two positive numbers.")
    if settings["solver"] not in ROUNDS:
        choices = " or ".join(map(repr, ROUNDS))
        raise ValueError(f"solver is {settings['solver']!r}: expected {choices}.")
