r"""Contractive auto-encoder: scores that change little when what they describe changes a little.

.. math:: \min \sum_n \tfrac12 |x_n - \sigma(W h_n + c)|^2
    + \tfrac\lambda2 \Big\|\frac{\partial h_n}{\partial x_n}\Big\|_F^2,
    \qquad h_n = \sigma(W^\top x_n + b)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from heterofactor.ratings.reading import Array

# Steps of L-BFGS; flags of genres are told apart long before.
MAX_STEPS = 200


def contractive_scores(
    X: Array, n_components: int, contraction: float, rng: np.random.RandomState
) -> Array:
    """Train a contractive auto-encoder and return the scores of its samples, from 0 to 1.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        From 0 to 1.
    n_components : int
        Units of the one hidden layer.
    contraction : float
        What the squares of the scores' slopes count.
    rng : RandomState
        Draws the weights of the start.

    References
    ----------
    Salah Rifai, Pascal Vincent, Xavier Muller, Xavier Glorot, Yoshua Bengio. Contractive
    Auto-Encoders: Explicit Invariance During Feature Extraction. ICML 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.contractive import contractive_scores
    >>> X = np.repeat(np.eye(2), 3, axis=0)
    >>> contractive_scores(X, 1, 0.01, np.random.RandomState(0)).round().ravel().tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    """
    width = X.shape[1]
    bound = np.sqrt(6 / (width + n_components))
    W = rng.uniform(-bound, bound, (width, n_components))
    start = np.concatenate([W.ravel(), np.zeros(n_components + width)])
    aim = partial(value_and_slope, X=X, n_components=n_components, contraction=contraction)
    found = minimize(aim, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_STEPS})
    W, b, _ = _parts(found.x, width, n_components)
    scores: Array = expit(X @ W + b)
    return scores


def value_and_slope(
    weights: Array, X: Array, n_components: int, contraction: float
) -> tuple[float, Array]:
    """Return what is minimised, per sample, and its slope.

    Parameters
    ----------
    weights : array
        W, b and c, one after the other.
    X, n_components, contraction
        As for `contractive_scores`.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.contractive import value_and_slope
    >>> value, slope = value_and_slope(np.zeros(5), np.array([[0.0, 1.0]]), 1, 1.0)
    >>> value, slope.shape
    (0.25, (5,))
    """
    W, b, c = _parts(weights, X.shape[1], n_components)
    H = expit(X @ W + b)
    Y = expit(H @ W.T + c)
    # dh/dx is D * W', row by row
    D, lengths = H * (1 - H), (W**2).sum(axis=0)
    value = ((Y - X) ** 2).sum() / 2 + contraction / 2 * (D**2 * lengths).sum()

    to_Y = (Y - X) * Y * (1 - Y)
    to_H = to_Y @ W + contraction * D * lengths * (1 - 2 * H)
    to_A = to_H * D
    to_W = to_Y.T @ H + X.T @ to_A + contraction * W * (D**2).sum(axis=0)
    slope = np.concatenate([to_W.ravel(), to_A.sum(axis=0), to_Y.sum(axis=0)])
    return float(value) / len(X), slope / len(X)


def _parts(weights: Array, width: int, n_components: int) -> Any:
    W, b, c = np.split(weights, np.cumsum([width * n_components, n_components]))
    return W.reshape(width, n_components), b, c
