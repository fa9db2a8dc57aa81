"""What the settings of a RatingModel may be."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

# Sweeps of each solver, unless told otherwise.
ROUNDS = {"als": 5, "gibbs": 300}
LEAST = {"n_shared": 0, "n_unique": 0, "n_groups": 1, "n_fits": 1, "n_rounds": 1}


def check_settings(settings: dict[str, Any]) -> None:
    """Refuse settings that cannot be.

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
    for name, value in settings.items():
        if name in LEAST and not (name == "n_rounds" and value is None):
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not whole or value < LEAST[name]:
                raise ValueError(
                    f"{name} is {value!r}: expected an integer of at least {LEAST[name]}."
                )
        if name in ("ridge", "offset_ridge"):
            pair = isinstance(value, tuple | list | np.ndarray) and len(value) == 2
            if not pair or not all(
                isinstance(one, Real) and 0 < float(one) < np.inf for one in value
            ):
                raise ValueError(f"{name} is {value!r}: expected two positive numbers.")
    if settings["solver"] not in ROUNDS:
        choices = " or ".join(map(repr, ROUNDS))
        raise ValueError(f"solver is {settings['solver']!r}: expected {choices}.")
