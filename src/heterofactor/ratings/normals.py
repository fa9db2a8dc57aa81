r"""Normal-Wishart priors of factors, and means that follow features.

The n vectors of a population are :math:`x_j = \mu + m_j + \delta_j` with deviations
:math:`\delta_j \sim N(0, \Lambda^{-1})` and, where there are features :math:`f_j`, means
:math:`m_j = B^\top f_j` whose weights have the same covariance across, :math:`\Lambda^{-1}`. Summed
over the weights, all vectors together are normal with covariance :math:`K + I` between them,
:math:`K = F F^\top`, so that :math:`\mu` and :math:`\Lambda` are drawn without the weights, and the
means then given both: as many numbers as vectors, whatever the number of features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from heterofactor.ratings.reading import Array

# The prior counts as so many vectors, with mean zero.
PRIOR_WEIGHT = 2.0


@dataclass(frozen=True, eq=False)
class Likeness:
    """What features say of who is like whom.

    Attributes
    ----------
    features : array or sparse array of shape (n, f)
        Scaled so that their weights have a prior variance of one.
    inverse : array of shape (n, n)
        Of ``features @ features.T + I``.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.normals import likeness
    >>> likeness(np.array([[1.0], [0.0]])).inverse.round(9).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """

    features: Any
    inverse: Array


def likeness(features: Any) -> Likeness:
    """Return the likeness of vectors by features that are scaled.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.normals import likeness
    >>> likeness(np.zeros((2, 3))).inverse.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    products = features @ features.T
    matrix = products.toarray() if hasattr(products, "toarray") else products
    matrix[np.diag_indices_from(matrix)] += 1
    factor = scipy.linalg.lapack.dpotrf(matrix, lower=1, overwrite_a=1)[0]
    inverse = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)[0]
    lower = np.tril(inverse)
    return Likeness(features, lower + np.tril(lower, -1).T)


def draw_population(
    vectors: Array, like: Likeness | None, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw the mean of every vector, and the precision of their deviations.

    Parameters
    ----------
    vectors : array of shape (n, d)
        The vectors of the last sweep.
    like : Likeness, optional
        What features say; without them all vectors have one mean.
    rng : numpy Generator
        Of the draws.

    Returns
    -------
    means : array of shape (n, d)
        Of each vector.
    precision : array of shape (d, d)
        Of all.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.normals import draw_population
    >>> rng = np.random.default_rng(0)
    >>> means, precision = draw_population(rng.normal(3.0, 0.5, size=(9999, 1)), None, rng)
    >>> means[0].round(1).tolist(), precision.round(0).tolist()
    ([3.0], [[4.0]])
    """
    n, d = vectors.shape
    if like is None:
        whitened, weights = vectors, np.ones(n)
    else:
        whitened, weights = like.inverse @ vectors, like.inverse.sum(axis=0)
    number = float(weights.sum())
    mean = weights @ vectors / number
    scatter = vectors.T @ whitened - number * np.outer(mean, mean)
    shrunk = number / (number + PRIOR_WEIGHT)
    scale = np.eye(d) + scatter + PRIOR_WEIGHT * shrunk * np.outer(mean, mean)
    precision = _wishart(np.linalg.inv((scale + scale.T) / 2), d + n, rng)
    lower = np.linalg.cholesky(precision)
    centre = shrunk * mean + _normals(1, lower, rng)[0] / np.sqrt(number + PRIOR_WEIGHT)
    means = np.broadcast_to(centre, (n, d))
    if like is not None:
        # Matheron's rule: a draw from the prior, moved by what the vectors say against it
        prior = like.features @ _normals(like.features.shape[1], lower, rng)
        against = vectors - centre - prior - _normals(n, lower, rng)
        means = centre + prior + against - like.inverse @ against
    return means, precision


def draw_around(means: Array, precision: Array, rng: np.random.Generator) -> Array:
    """Draw vectors from their prior.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.ratings.normals import draw_around
    >>> draw_around(np.ones((2, 1)), np.array([[1e16]]), np.random.default_rng(0)).round().tolist()
    [[1.0], [1.0]]
    """
    drawn: Array = means + _normals(len(means), np.linalg.cholesky(precision), rng)
    return drawn


def _normals(n: int, lower: Array, rng: np.random.Generator) -> Array:
    """Draw rows whose precision has this Cholesky factor."""
    white = rng.standard_normal((lower.shape[0], n))
    rows: Array = scipy.linalg.solve_triangular(lower, white, lower=True, trans=1).T
    return rows


def _wishart(scale: Array, freedom: int, rng: np.random.Generator) -> Array:
    """Draw by Bartlett's decomposition."""
    d = len(scale)
    triangle = np.tril(rng.standard_normal((d, d)), -1)
    triangle[np.diag_indices(d)] = np.sqrt(rng.chisquare(freedom - np.arange(d)))
    factor = np.linalg.cholesky(scale) @ triangle
    drawn: Array = factor @ factor.T
    return drawn
