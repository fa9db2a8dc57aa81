"""Giving results back in the container that the user, or scikit-learn's configuration, asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from sklearn import get_config

from heterofactor.linalg import Array, to_numpy


def contain(
    array: Array, index: pd.Index | None, columns: Iterable[str], output: str = "default"
) -> Any:
    """Return an array as scikit-learn's ``set_output`` asks.

    Parameters
    ----------
    array : 2-d array
    index : pandas.Index or None
        Row labels, if the samples had any.
    columns : iterable of str
        Names of the columns.
    output : {"default", "pandas", "polars"}
        ``"default"`` leaves the array as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.containers import contain
    >>> contain(np.zeros((1, 2)), None, ["shared0", "unique0"], "pandas")
       shared0  unique0
    0      0.0      0.0
    """
    if output == "pandas":
        return pd.DataFrame(to_numpy(array), index=index, columns=list(columns))
    if output == "polars":
        import polars

        return polars.DataFrame(to_numpy(array), schema=list(columns), orient="row")
    return array


def as_brought(array: Array, index: pd.Index | None, columns: pd.Index | None) -> Any:
    """Return an array with the labels of the table that the user brought, if it had any.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from heterofactor.containers import as_brought
    >>> as_brought(np.zeros((1, 2)), None, pd.Index(["p", "q"]))
         p    q
    0  0.0  0.0
    """
    if index is None and columns is None:
        return array
    return pd.DataFrame(to_numpy(array), index=index, columns=columns)


def configured_output(own: str | None) -> str:
    """Return the container asked for, by the estimator or else by scikit-learn's configuration."""
    return own or str(get_config()["transform_output"])
