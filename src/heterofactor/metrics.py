"""How far apart two fits are, in terms that do not depend on how a subspace is written down."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import subspace_angles


def subspace_error(estimate: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    r"""Squared distance of two column spaces, :math:`\|P_A - P_B\|_F^2`, the paper's error.

    Parameters
    ----------
    estimate, truth : array-like of shape (n1, rank)
        Any bases; their ranks may differ.

    Returns
    -------
    float
        Zero for equal spaces; ``rank_A + rank_B`` for orthogonal ones.

    Notes
    -----
    Computed from what each basis leaves of the other, not as a difference of numbers near one:
    angles down to rounding are resolved.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.metrics import subspace_error
    >>> subspace_error(np.eye(3)[:, :2], np.eye(3)[:, 1:])
    2.0
    """
    A, B = (np.linalg.qr(np.asarray(basis, dtype=float))[0] for basis in (estimate, truth))
    return float(np.sum((A - B @ (B.T @ A)) ** 2) + np.sum((B - A @ (A.T @ B)) ** 2))


def principal_angles(estimate: npt.ArrayLike, truth: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the principal angles between two column spaces, in degrees, the largest first.

    Parameters
    ----------
    estimate, truth : array-like of shape (n1, rank)
        Any bases.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.metrics import principal_angles
    >>> principal_angles(np.eye(3)[:, :2], np.eye(3)[:, 1:]).round(6).tolist()
    [90.0, 0.0]
    """
    angles = subspace_angles(np.asarray(estimate, dtype=float), np.asarray(truth, dtype=float))
    return np.degrees(angles)
