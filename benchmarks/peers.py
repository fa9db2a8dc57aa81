r"""Methods that cannot simply be installed, written plainly; and the two that can be called.

Orientation of the paper: source i is :math:`M_i`, n1 x n2, :math:`S_i = M_i M_i'`; shared basis
:math:`U`, unique basis :math:`U_i`, :math:`P = UU'`, :math:`P_i = U_i U_i'`. Nothing is centred.
Only the few eigenvectors that are needed are computed (LAPACK's ``evr``, which on these sizes is
faster than NumPy's complete ones and than singular values).
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

Array = npt.NDArray[np.float64]
# Of the synthetic experiment in the published program.
PUBLISHED_SETTINGS = {"lr": 0.1, "beta": 0.1, "epochs": 300, "optim": "SGD", "wd": 0}


@dataclass(frozen=True)
class Bases:
    """What all the methods answer with, and how many passes it took."""

    shared: Array
    unique: list[Array]
    passes: int


def jive(
    matrices: Sequence[Array], n_shared: int, n_unique: int, tol: float, max_passes: int = 1000
) -> Bases:
    r"""Alternating JIVE (Lock et al. 2013) in Gram form.

    In turns, :math:`P` from the leading eigenvectors of :math:`\sum_i (I-P_i) S_i (I-P_i)`, and
    :math:`P_i` from those of :math:`(I-P) S_i (I-P)`, until P changes by less than `tol`,
    relative to its norm.
    """
    grams = [M @ M.T for M in matrices]
    unique: list[Array] = [np.zeros((len(grams[0]), 0))] * len(grams)
    shared = unique[0]
    for done in range(1, max_passes + 1):
        before = shared
        total = sum(_project_out(U, S) for U, S in zip(unique, grams, strict=True))
        shared = _leading(total, n_shared)
        unique = [_leading(_project_out(shared, S), n_unique) for S in grams]
        # |P - P_before| by what each basis leaves of the other: exact also when it is tiny
        change = np.linalg.norm(shared - before @ (before.T @ shared)) * np.sqrt(2)
        if change <= tol * np.sqrt(n_shared):
            return Bases(shared, unique, done)
    raise RuntimeError(f"JIVE has not converged in {max_passes} passes.")


def ajive(matrices: Sequence[Array], n_shared: int, n_unique: int) -> Bases:
    r"""AJIVE (Feng et al. 2018) with ranks given: one pass.

    Shared are the leading left singular vectors of all leading spaces side by side, unique those
    of :math:`(I - P) M_i`.
    """
    grams = [M @ M.T for M in matrices]
    leading = np.hstack([_leading(S, n_shared + n_unique) for S in grams])
    shared = _leading(leading @ leading.T, n_shared)
    return Bases(shared, [_leading(_project_out(shared, S), n_unique) for S in grams], 1)


def _project_out(U: Array, S: Array) -> Array:
    """``(I - UU') S (I - UU')`` at the cost of thin products."""
    image = S @ U
    cross = (image - U @ (U.T @ image) / 2) @ U.T
    return S - cross - cross.T


def _leading(symmetric: Array, count: int) -> Array:
    size = len(symmetric)
    chosen = (size - count, size - 1)
    return scipy.linalg.eigh(symmetric, subset_by_index=chosen, check_finite=False)[1][:, ::-1]


def parafac2(tables: Sequence[Array], rank: int, max_iterations: int = 100) -> list[Array]:
    """TensorLy's PARAFAC2 of tables with common columns; returns their reconstructions."""
    from tensorly.decomposition import parafac2
    from tensorly.parafac2_tensor import parafac2_to_slices

    found = parafac2(
        list(tables), rank, n_iter_max=max_iterations, init="svd", tol=1e-8, random_state=0
    )
    return list(parafac2_to_slices(found))


class Published:
    """The published program of HMF, in PyTorch, imported from a copy of its repository."""

    def __init__(self, folder: Path, tables: Sequence[Array]) -> None:
        import torch

        # its many small products are much slower on several threads
        torch.set_num_threads(1)
        self._torch = torch
        self._program = _import_file(folder / "solver.py")
        # single precision, as in the published experiment
        self._matrices = [torch.tensor(table.T.copy(), dtype=torch.float32) for table in tables]

    def fit(
        self,
        n_shared: int,
        n_unique: int,
        epochs: int = PUBLISHED_SETTINGS["epochs"],  # type: ignore[assignment]
        watch: Callable[[Bases], None] | None = None,
    ) -> Bases:
        """Run it from its own random start; `watch` sees the bases after every epoch."""
        self._torch.manual_seed(1)
        settings: dict[str, Any] = PUBLISHED_SETTINGS | {
            "r1": n_shared,
            "r2": n_unique,
            "epochs": epochs,
        }
        if watch is not None:
            # the two errors that it can be asked to print see first the shared, then the unique
            seen: list[Array] = []
            counter = itertools.count(1)

            def see_shared(basis: Any) -> None:
                seen[:] = [_to_numpy(basis)]

            def see_unique(bases: Any) -> None:
                watch(Bases(seen[0], [_to_numpy(U) for U in bases.values()], next(counter)))

            settings["global_subspace_err_metric"] = see_shared
            settings["local_subspace_err_metric"] = see_unique
        with redirect_stdout(None):  # it says when it lowers its step
            shared, _, unique, _ = self._program.heterogeneous_matrix_factorization(
                self._matrices, settings, verbose=0
            )
        return Bases(_to_numpy(shared[0]), [_to_numpy(U) for U in unique.values()], epochs)


def _to_numpy(matrix: Any) -> Array:
    return matrix.lin_mat.detach().numpy().astype(np.float64)


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("published_program", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} cannot be imported: expected the published program's solver.py.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
