"""Small reference data, and what the best fit of it is.

The data come from NumPy's generator alone (no QR or SVD, whose signs depend on the LAPACK), so
that they can be made again in any language. The values of the optimum agree to the digits given
with those of established programs (r.jive 2.4 without centring, scaling or `orthIndiv`) and with
50 random starts of the alternation that they use.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

RANK_SHARED = 2
RANKS_UNIQUE = (2, 2, 1)

# Checksums of `linear()`, and the number of entries that `mask` hides in each source.
SUMS = (66.780000182, -14.0270599395, 25.6028243642)
SQUARES = (2723.5605787, 2308.08895093, 1800.5724605)
HIDDEN = (225, 214, 165)

# The best fit of `linear()`: sum_i |M_i - P M_i - P_i M_i|^2 over projections with P P_i = 0,
# and the energies |P M_i|^2 (shared) and |P_i M_i|^2 (unique).
RESIDUAL = 24.3289284310
SHARED_ENERGIES = (1745.991904, 1361.218786, 1430.308686)
UNIQUE_ENERGIES = (967.777821, 938.901553, 363.694311)
PROJECTION_ENTRIES = {(0, 0): 0.0031714256, (2, 4): 0.0252456024}  # of P
DISTANCE_TO_TRUTH = 6.3633e-4  # |P - P*|^2, P* the projection on the columns of `shared_basis`

# The best fit of the observed entries under `mask`: the residual on them, the relative error
# |Z - M| / |M| on the hidden ones, and P[0, 0].
MASKED_RESIDUAL = 18.30828167
MASKED_HIDDEN_ERROR = 0.072908
MASKED_PROJECTION_ENTRY = 0.00331065


@dataclass(frozen=True)
class Linear:
    """Sources that share rows, `M_i = shared_i + unique_i + noise`, in the paper's orientation."""

    sources: list[Array]
    shared: list[Array]
    unique: list[Array]
    shared_basis: Array  # spans the truth; not orthonormal


def linear(
    seed: int = 7,
    n: int = 40,
    widths: tuple[int, ...] = (30, 25, 20),
    rank_shared: int = RANK_SHARED,
    ranks_unique: tuple[int, ...] = RANKS_UNIQUE,
    noise: float = 0.1,
) -> Linear:
    """Draw three noisy sources with two shared factors and two, two and one unique ones.

    Examples
    --------
    >>> sources = linear().sources
    >>> np.allclose([m.sum() for m in sources], SUMS, rtol=1e-10)
    True
    >>> np.allclose([(m**2).sum() for m in sources], SQUARES, rtol=1e-10)
    True
    """
    rng = np.random.default_rng(seed)
    Ug = rng.standard_normal((n, rank_shared))
    data = Linear([], [], [], Ug)
    for width, rank in zip(widths, ranks_unique, strict=True):
        Ul = rng.standard_normal((n, rank))
        Ul = Ul - Ug @ np.linalg.solve(Ug.T @ Ug, Ug.T @ Ul)
        shared = Ug @ rng.standard_normal((width, rank_shared)).T
        unique = 0.7 * Ul @ rng.standard_normal((width, rank)).T
        data.sources.append(shared + unique + noise * rng.standard_normal((n, width)))
        data.shared.append(shared)
        data.unique.append(unique)
    return data


def mask(sources: list[Array], seed: int = 13, missing: float = 0.2) -> list[Mask]:
    """Draw which entries are observed: True where they are.

    Examples
    --------
    >>> tuple(int((~observed).sum()) for observed in mask(linear().sources)) == HIDDEN
    True
    """
    rng = np.random.default_rng(seed)
    return [rng.random(m.shape) >= missing for m in sources]


def outliers(
    sources: list[Array], seed: int = 11, fraction: float = 0.05, size: float = 10.0
) -> list[Array]:
    """Add plus or minus `size` to a random `fraction` of the entries; the input stays as it is.

    Examples
    --------
    >>> sources = linear().sources
    >>> [int((a != b).sum()) for a, b in zip(outliers(sources), sources, strict=True)]
    [52, 39, 46]
    """
    rng = np.random.default_rng(seed)
    # The order of the two draws is part of the recipe.
    return [
        m + size * np.sign(rng.standard_normal(m.shape)) * (rng.random(m.shape) < fraction)
        for m in sources
    ]
