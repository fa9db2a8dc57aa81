"""What a fitted model promises: orthogonal parts that add up, and one answer to one question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from heterofactor.checks.requirement import copied, require, require_close, require_same
from heterofactor.datasets.generator import make_heterogeneous
from heterofactor.linalg import Array
from heterofactor.model import SharedUniqueModel
from heterofactor.tables import SharedAxis

Tables = dict[str, Array]

ORTHOGONAL = 1e-12
ORTHOGONAL_SINGLE = 1e-5
# The same products in another order of rounding, relative to the size of the data.
ROUNDING = 1e-10
# Where a fit takes another path, its parts agree to this many times its tolerance.
CONDITION = 100
LENGTH, LENGTHS = 10, [12, 14, 16, 16]


def check_model(model: SharedUniqueModel) -> None:
    """Check that a model of shared and unique parts keeps its contract, on either shared axis.

    Bases are orthonormal, and unique ones orthogonal to the shared one; shares of variance are
    within 0 and 1 and add up, and the parts add up to the fitted table. Fitting changes neither
    the tables nor the parameters, and fitting again gives the same. A list, a dict and one table
    with labels are one fit, `fit_transform` is `fit` and `transform`, samples in another order
    have the same scores in that order, and the transposed problem has the same answer.

    Parameters
    ----------
    model : SharedUniqueModel
        Not fitted; clones of it are, with two shared components and one unique one, and the random
        state 0 where there is one. What depends on the path of the fit is compared to 100 times
        its ``tol``.

    Raises
    ------
    AssertionError
        Says which property failed, and by how much.

    Examples
    --------
    >>> from heterofactor import HMF
    >>> from heterofactor.checks import check_model
    >>> check_model(HMF())
    """
    _check_parameters(model)
    axes: tuple[SharedAxis, ...] = ("features", "samples")
    for shared_axis in axes:
        parameters: dict[str, Any] = {"n_shared": 2, "n_unique": 1, "shared_axis": shared_axis}
        if "random_state" in model.get_params():
            parameters["random_state"] = 0
        if shared_axis == "samples" and model.centre == "global":
            parameters["centre"] = (
                "source"  # features that no two sources share have no global mean
            )

        def make(parameters: dict[str, Any] = parameters) -> SharedUniqueModel:
            return clone(model).set_params(**parameters)  # type: ignore[no-any-return]

        _check_axis(make, shared_axis)
    _check_transposed(model)


def make_tables(shared_axis: SharedAxis, seed: int = 0) -> tuple[Tables, Array, Array]:
    """Return tables with a mean far from zero, the same as one table, and its labels."""
    own, common = ("n_samples", "n_features")[:: 1 if shared_axis == "features" else -1]
    sizes: dict[str, Any] = {own: LENGTHS, common: LENGTH}
    data = make_heterogeneous(
        4, n_shared=2, n_unique=1, noise=0.1, shared_axis=shared_axis, random_state=seed, **sizes
    )
    for table in data.sources.values():
        table += np.linspace(-1, 1, table.shape[1])
    return data.sources, *data.stacked()


def _check_parameters(model: SharedUniqueModel) -> None:
    copy = clone(model)
    one, two = model.get_params(), copy.get_params()
    require(one.keys() == two.keys(), "clone: the copy has other parameters")
    for name in one:
        require(repr(one[name]) == repr(two[name]), f"clone: the copy has another {name}")


def _check_axis(make: Callable[[], SharedUniqueModel], shared_axis: SharedAxis) -> None:
    tables, stacked, labels = make_tables(shared_axis)
    before, model = copied(tables), make()
    parameters = repr(model.get_params())
    require(model.fit(tables) is model, "fit does not return the model")
    require_same("the tables after fit", tables, before)
    after = repr(model.get_params())
    require(after == parameters, f"fit changes parameters, from {parameters} to {after}")
    require(list(model.source_names_) == list(tables), "source_names_ are not the sources' names")
    where, size = f"(shared {shared_axis})", _size(tables.values())

    _check_orthogonality(model, ORTHOGONAL, where)
    _check_variance(model, tables, where)
    _check_scores(model, make, tables, where)

    path = CONDITION * getattr(model, "tol", 1e-8) * size
    for what, other in (
        ("a list of tables", make().fit(list(tables.values()))),
        ("one table with labels", make().fit(stacked, sources=labels)),
    ):
        _require_same_fit(f"{what} {where} is another fit than a dict", other, model, path)

    other_tables, _, _ = make_tables(shared_axis, seed=1)
    again = model.fit(other_tables).fit(tables)
    first = make().fit(tables)
    _require_same_fit(f"fitting again {where}", again, first, ROUNDING * size)

    rng = np.random.default_rng(0)
    order = {name: rng.permutation(len(table)) for name, table in tables.items()}
    if shared_axis == "samples":
        order = dict.fromkeys(order, next(iter(order.values())))
    _check_order(first, make, tables, order, path, where)

    single = make().fit({name: table.astype(np.float32) for name, table in tables.items()})
    dtype = single.shared_components_.dtype
    require(dtype == np.float32, f"components of single precision come as {dtype}")
    _check_orthogonality(single, ORTHOGONAL_SINGLE, f"(single precision, shared {shared_axis})")


def _check_orthogonality(model: SharedUniqueModel, within: float, where: str) -> None:
    shared = model.shared_components_
    what = f"the shared components are not orthonormal {where}"
    require_close(what, shared @ shared.T, np.eye(len(shared)), within)
    for name, unique in model.unique_components_.items():
        what = f"the unique components of {name!r} are not orthonormal {where}"
        require_close(what, unique @ unique.T, np.eye(len(unique)), within)
        cosines = shared @ unique.T
        what = f"the unique components of {name!r} are not orthogonal to the shared ones {where}"
        require_close(what, cosines, cosines * 0, within)


def _check_variance(model: SharedUniqueModel, tables: Tables, where: str) -> None:
    """Shares add up, parts add up, and what they leave is the residual."""
    shares = model.explained_variance_ratio_.to_numpy()
    what = f"the shares of variance do not add up to one {where}"
    require_close(what, shares.sum(axis=1), np.ones(len(tables)), ORTHOGONAL)
    what = f"a share of variance is not within 0 and 1 {where}"
    require_close(what, shares, np.clip(shares, 0, 1), ORTHOGONAL)
    for name, table in tables.items():
        fitted = model.reconstruct(name)
        residual, total = map(float, model.explained_variance_.loc[name, ["residual", "total"]])
        parts = sum(model.reconstruct(name, part=part) for part in ("shared", "unique"))
        centre = model.centres_[name]
        parts = parts if centre is None else parts + centre
        size = ROUNDING * _size([table])
        require_close(f"the parts of {name!r} and its centre {where}", fitted, parts, size)
        left = float(((table - fitted) ** 2).sum())
        what = f"what the fit leaves of {name!r} is not its residual variance {where}"
        require_close(what, left, residual, ROUNDING * total)
    score = model.score(tables)
    require(score <= 1 + ORTHOGONAL, f"score is {score!r}, above 1 {where}")
    if model.shared_axis == "features":
        sums = model.explained_variance_.sum()
        what = f"score is not the share of variance that the fit explains {where}"
        require_close(what, score, 1 - sums["residual"] / sums["total"], ROUNDING)


def _check_scores(
    model: SharedUniqueModel, make: Callable[[], SharedUniqueModel], tables: Tables, where: str
) -> None:
    scores, at_once = _listed(model.transform(tables)), _listed(make().fit_transform(tables))
    for one, other in zip(at_once, scores, strict=True):
        size = ROUNDING * _size(tables.values())
        require_close(f"fit_transform is not fit and transform {where}", one, other, size)
    if model.shared_axis == "features":
        for name, found in zip(tables, scores, strict=True):
            kept = np.hstack(
                [model.factors_.shared_scores[name], model.factors_.unique_scores[name]]
            )
            what = f"transform of the tables fitted is not the scores of the fit {where}"
            require_close(what, found, kept, ROUNDING * _size(tables.values()))


def _check_order(
    model: SharedUniqueModel,
    make: Callable[[], SharedUniqueModel],
    tables: Tables,
    order: dict[str, Array],
    path: float,
    where: str,
) -> None:
    """Give samples in another order: they have the same scores and parts, in that order."""
    turned = {name: table[order[name]] for name, table in tables.items()}
    scores, found = _listed(model.transform(tables)), _listed(model.transform(turned))
    orders = list(order.values())[: len(scores)]
    for one, other, places in zip(found, scores, orders, strict=True):
        what = f"scores do not follow the order of the samples {where}"
        require_close(what, one, other[places], ROUNDING * _size(tables.values()))
    fit = make().fit(turned)
    for name in tables:
        for part in ("shared", "unique"):
            expected = model.reconstruct(name, part=part)[order[name]]
            what = f"the {part} part of {name!r} depends on the order of the samples {where}"
            require_close(what, fit.reconstruct(name, part=part), expected, path)


def _check_transposed(model: SharedUniqueModel) -> None:
    """Tables that share their features are, transposed, tables that share their samples."""
    tables, _, _ = make_tables("features")
    parameters: dict[str, Any] = {"n_shared": 2, "n_unique": 1, "centre": None}
    if "random_state" in model.get_params():
        parameters["random_state"] = 0
    one = clone(model).set_params(shared_axis="features", **parameters).fit(tables)
    other = clone(model).set_params(shared_axis="samples", **parameters)
    other.fit({name: table.T for name, table in tables.items()})
    path = CONDITION * getattr(model, "tol", 1e-8) * _size(tables.values())
    _require_same_fit("the transposed problem has another answer", other, one, path)


def _require_same_fit(
    what: str, one: SharedUniqueModel, other: SharedUniqueModel, within: float
) -> None:
    """Compare parts, which do not depend on how a basis is written."""
    for name, same in zip(one.source_names_, other.source_names_, strict=True):
        for part in ("shared", "unique"):
            found, expected = one.factors_.part(name, part), other.factors_.part(same, part)
            require_close(f"{what}: the {part} part of {same!r}", found, expected, within)


def _listed(scores: Any) -> list[Array]:
    """Return scores as a list; where the samples are shared there is one array for all."""
    return list(scores.values()) if isinstance(scores, dict) else [scores]


def _size(tables: Sequence[Array] | Any) -> float:
    return max(1.0, *(float(np.linalg.norm(table)) for table in tables))
