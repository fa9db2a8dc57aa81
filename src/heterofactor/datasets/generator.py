"""Sources with a known truth: M_i = U V_i' + U_i W_i' + E_i with U'U_i = 0.

The model of the paper (its section on synthetic data), with knobs for what makes it hard:
noise, unique parts that look alike (`alignment`), and weak next to strong directions (`spread`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
PerSource = int | Sequence[int] | npt.NDArray[np.integer[Any]]
Seed = int | np.random.Generator | np.random.RandomState | None


@dataclass(frozen=True, eq=False)
class HeterogeneousData:
    r"""Sources made by :func:`make_heterogeneous`, and the truth they were made from.

    Every table has samples in rows and features in columns. Bases belong to the shared axis,
    of length :math:`n_1`.

    Attributes
    ----------
    sources : dict of str to array
        What a user would observe, by source: ``"source0"``, ``"source1"``, ...
    shared_basis : array of shape (n1, n_shared)
        Orthonormal columns.
    unique_bases : dict of str to array of shape (n1, n_unique)
        Orthonormal columns, orthogonal to `shared_basis`.
    shared_parts, unique_parts, noise_parts : dict of str to array
        The three tables whose sum, in this order, is the source.
    shared_axis : {"features", "samples"}
        What the sources have in common.

    Examples
    --------
    >>> from heterofactor.datasets import make_heterogeneous
    >>> data = make_heterogeneous(3, n_samples=[5, 6, 7], n_features=8, n_shared=2, n_unique=1,
    ...                           random_state=0)
    >>> {name: table.shape for name, table in data.sources.items()}
    {'source0': (5, 8), 'source1': (6, 8), 'source2': (7, 8)}
    """

    sources: dict[str, Array]
    shared_basis: Array
    unique_bases: dict[str, Array]
    shared_parts: dict[str, Array]
    unique_parts: dict[str, Array]
    noise_parts: dict[str, Array]
    shared_axis: Literal["features", "samples"]

    @property
    def misalignment(self) -> float:
        r"""How far the unique parts are from looking alike, the paper's :math:`\theta`.

        .. math:: \theta = 1 - \lambda_{\max}\Bigl(\frac{1}{N} \sum_i P_{U_i}\Bigr)

        Near 0, shared and unique cannot be told apart; it is at most :math:`1 - 1/N`, unless no
        source has a unique part, where it is 1.

        Examples
        --------
        >>> from heterofactor.datasets import make_heterogeneous
        >>> easy, hard = (make_heterogeneous(alignment=a, random_state=0) for a in (0.0, 0.95))
        >>> 0.0 < hard.misalignment < 0.2 < 0.6 < easy.misalignment < 0.9
        True
        """
        bases = np.hstack(list(self.unique_bases.values()))
        if bases.shape[1] == 0:
            return 1.0
        # sum_i P_i = B B' for the concatenated bases B, so no n1 x n1 matrix is needed
        largest = float(np.linalg.norm(bases, 2)) ** 2 / len(self.unique_bases)
        return min(1.0, max(0.0, 1.0 - largest))

    def stacked(self) -> tuple[Array, npt.NDArray[np.str_]]:
        """Return the sources as one table, with the source's name of each row or column.

        Returns
        -------
        X : array
            The sources below one another if they share their features, side by side if they share
            their samples.
        labels : array of str
            One name per row of `X` if the features are shared, per column if the samples are.

        Examples
        --------
        >>> from heterofactor.datasets import make_heterogeneous
        >>> X, labels = make_heterogeneous(2, n_samples=[7, 8], random_state=0).stacked()
        >>> X.shape, labels[[0, 6, 7, 14]].tolist()
        ((15, 120), ['source0', 'source0', 'source1', 'source1'])
        """
        along = 0 if self.shared_axis == "features" else 1
        tables = list(self.sources.values())
        labels = np.repeat(np.array(list(self.sources)), [table.shape[along] for table in tables])
        return np.concatenate(tables, axis=along), labels


def make_heterogeneous(
    n_sources: int = 10,
    n_samples: PerSource = 100,
    n_features: PerSource = 120,
    n_shared: int = 3,
    n_unique: PerSource = 3,
    *,
    noise: float = 0.0,
    alignment: float = 0.0,
    spread: float = 1.0,
    scores: Literal["gaussian", "orthonormal"] = "gaussian",
    shared_axis: Literal["features", "samples"] = "features",
    dtype: npt.DTypeLike = np.float64,
    random_state: Seed = None,
) -> HeterogeneousData:
    r"""Make sources that are a shared part, a unique part and noise.

    In the paper's orientation (shared axis in the rows, of length :math:`n_1`)

    .. math:: M_i = U V_i^\top + U_i W_i^\top + E_i, \qquad U^\top U_i = 0,

    where :math:`U` and every :math:`U_i` have orthonormal columns in random directions.

    Parameters
    ----------
    n_sources : int
        Number of sources.
    n_samples, n_features : int or sequence of int
        Size of the sources. The shared axis takes one int; the other one may take one per source.
    n_shared : int
        Rank of the shared part; 0 for none.
    n_unique : int or sequence of int
        Rank of the unique parts, one for all or one per source; 0 for none.
    noise : float
        Frobenius norm of the (white Gaussian) noise over that of the signal, in every source.
    alignment : float in [0, 1)
        How much the unique parts look alike: each unique basis spans the columns of
        ``alignment * C + sqrt(1 - alignment**2) * C_i``, with an orthonormal `C` common to all
        sources (its leading columns where ranks differ) and an orthonormal `C_i` of its own. Of
        the bases with the span of `C_i` the one closest to `C` is taken, so that the two never
        cancel and the unique basis moves on the shortest path from `C_i` to `C`.
    spread : float, at least 1
        Largest over smallest singular value within the shared and within the unique scores. The
        values are spaced geometrically around 1, so that a part's rank does not change its scale.
        With Gaussian scores, which are uneven already, these are the columns' standard deviations.
    scores : {"gaussian", "orthonormal"}
        Independent standard normal scores, as in the paper's text; or orthonormal ones, shared
        orthogonal to unique, as in the paper's published program.
    shared_axis : {"features", "samples"}
        What the sources have in common.
    dtype : numpy dtype
        float64 or float32. The draws are made in float64.
    random_state : int, numpy Generator, numpy RandomState or None
        The same int gives the same data. `noise`, `spread` and `alignment` change neither the
        random directions nor one another's draws, so one seed gives comparable data.

    Returns
    -------
    HeterogeneousData
        The sources and the truth.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor.datasets import make_heterogeneous
    >>> data = make_heterogeneous(4, noise=0.1, n_unique=[1, 2, 3, 4], random_state=0)
    >>> parts = (data.shared_parts, data.unique_parts, data.noise_parts)
    >>> np.allclose(sum(part["source3"] for part in parts), data.sources["source3"])
    True
    >>> [basis.shape for basis in data.unique_bases.values()]
    [(120, 1), (120, 2), (120, 3), (120, 4)]

    Sources that share their samples, as in multi-omics:

    >>> data = make_heterogeneous(2, n_samples=20, n_features=[30, 40], shared_axis="samples",
    ...                           random_state=0)
    >>> data.shared_basis.shape, data.sources["source1"].shape
    ((20, 3), (20, 40))
    """
    n_sources = _integer("n_sources", n_sources, 1, "pass the number of tables to make")
    _choice("shared_axis", shared_axis, ("features", "samples"))
    _choice("scores", scores, ("gaussian", "orthonormal"))
    noise = _number("noise", noise, 0.0, np.inf, "0.1 is noise a tenth of the signal")
    alignment = _number("alignment", alignment, 0.0, 1.0, "0 is none, near 1 is nearly the same")
    spread = _number("spread", spread, 1.0, np.inf, "1 is all directions equally strong")
    kind = _precision(dtype)

    features_shared = shared_axis == "features"
    common, own = ("n_features", "n_samples") if features_shared else ("n_samples", "n_features")
    given = {"n_samples": n_samples, "n_features": n_features}
    length = _integer(common, given[common], 1, f"the sources share their {shared_axis}")
    sizes = _per_source(own, given[own], n_sources, 1)
    n_shared = _integer("n_shared", n_shared, 0, "pass the rank of the shared part")
    ranks = _per_source("n_unique", n_unique, n_sources, 0)
    for i, (size, rank) in enumerate(zip(sizes, ranks, strict=True)):
        _check_ranks(i, n_shared, rank, {common: length, own: size})

    rng = _generator(random_state)
    # all directions first and all noise last: the knobs then leave every other draw as it was
    shared_basis = _orthonormal(rng.standard_normal((length, n_shared)))
    aim = _complement(rng.standard_normal((length, max(ranks))), shared_basis)
    unique_bases = []
    for rank in ranks:
        start = _complement(rng.standard_normal((length, rank)), shared_basis)
        unique_bases.append(_towards(start, aim[:, :rank], alignment))

    all_scores = []
    for size, rank in zip(sizes, ranks, strict=True):
        V: Array = rng.standard_normal((size, n_shared + rank))
        if scores == "orthonormal":
            V = _orthonormal(V)
        all_scores.append(V * np.r_[_strengths(n_shared, spread), _strengths(rank, spread)])

    names = [f"source{i}" for i in range(n_sources)]
    tables: dict[str, list[Array]] = {}
    for name, basis, V in zip(names, unique_bases, all_scores, strict=True):
        shared, unique = V[:, :n_shared] @ shared_basis.T, V[:, n_shared:] @ basis.T
        E: Array = np.zeros_like(shared)
        if noise > 0:
            E = rng.standard_normal(shared.shape)
            E *= noise * np.linalg.norm(shared + unique) / np.linalg.norm(E)
        parts = [part if features_shared else part.T for part in (shared, unique, E)]
        tables[name] = [np.ascontiguousarray(part, dtype=kind) for part in parts]

    return HeterogeneousData(
        sources={name: parts[0] + parts[1] + parts[2] for name, parts in tables.items()},
        shared_basis=shared_basis.astype(kind),
        unique_bases={n: b.astype(kind) for n, b in zip(names, unique_bases, strict=True)},
        shared_parts={name: parts[0] for name, parts in tables.items()},
        unique_parts={name: parts[1] for name, parts in tables.items()},
        noise_parts={name: parts[2] for name, parts in tables.items()},
        shared_axis=shared_axis,
    )


def _orthonormal(A: Array) -> Array:
    return np.linalg.qr(A)[0]


def _complement(A: Array, basis: Array) -> Array:
    """Orthonormal basis of what is left of `A` outside the span of `basis`."""
    for _ in range(2):  # once leaves an error of the condition number, twice none
        A = _orthonormal(A - basis @ (basis.T @ A))
    return A


def _towards(start: Array, aim: Array, alignment: float) -> Array:
    """Go from one subspace towards another; both bases orthonormal and of equal rank."""
    left, _, right = np.linalg.svd(start.T @ aim)
    nearest = start @ (left @ right)  # Procrustes: nearest'aim >= 0, so the sum has full rank
    return _orthonormal(alignment * aim + np.sqrt(1 - alignment**2) * nearest)


def _strengths(rank: int, spread: float) -> Array:
    """Geometric from sqrt(spread) down to its inverse."""
    exponents = np.linspace(0.5, -0.5, rank) if rank > 1 else np.zeros(rank)
    return np.asarray(spread**exponents)


def _precision(dtype: npt.DTypeLike) -> np.dtype[Any]:
    for known in (np.dtype(np.float64), np.dtype(np.float32)):
        with suppress(TypeError):  # what is no dtype at all is met by the error below
            if np.dtype(dtype) == known:
                return known
    raise ValueError(f"dtype={dtype!r} found; expected float64 or float32: pass one of the two.")


def _generator(random_state: Seed) -> np.random.Generator:
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1, size=4))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"random_state={random_state!r} found; expected an int of at least 0, a numpy "
            "Generator or RandomState, or None: pass an int for data that can be made again."
        ) from error


def _integer(name: str, value: object, least: int, advice: str) -> int:
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least:
        return int(value)
    raise ValueError(f"{name}={value!r} found; expected one int of at least {least}: {advice}.")


def _per_source(name: str, value: PerSource, n_sources: int, least: int) -> list[int]:
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        every = _integer(name, value, least, "pass an int, or a sequence of one per source")
        return [every] * n_sources
    if len(value) != n_sources:
        raise ValueError(
            f"{name} has {len(value)} entries; expected {n_sources}, one per source (n_sources): "
            "pass as many, or one int for all."
        )
    advice = "every entry of the sequence is the number for one source"
    return [_integer(f"{name}[{i}]", entry, least, advice) for i, entry in enumerate(value)]


def _number(name: str, value: object, least: float, below: float, advice: str) -> float:
    if isinstance(value, Real) and not isinstance(value, bool) and least <= float(value) < below:
        return float(value)
    raise ValueError(
        f"{name}={value!r} found; expected a number in [{least:g}, {below:g}): {advice}."
    )


def _choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        listed = " or ".join(repr(one) for one in known)
        raise ValueError(f"{name}={value!r} found; expected {listed}: pass one of them.")


def _check_ranks(i: int, n_shared: int, rank: int, lengths: dict[str, int]) -> None:
    total = n_shared + rank
    if total == 0:
        raise ValueError(
            f"source{i} has n_shared=0 and n_unique=0; expected at least one of them above 0: "
            "a source without signal has no noise level."
        )
    for name, length in lengths.items():
        if total > length:
            raise ValueError(
                f"source{i} has n_shared + n_unique = {n_shared} + {rank} = {total}, but "
                f"{name}={length}; expected a sum of at most {length}: lower a rank or raise "
                f"{name}."
            )
