"""Entries are split as scikit-learn splits rows, and what was hidden is what is predicted."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, learning_curve

from heterofactor import HMF, EntryKFold, ObservedEntries
from heterofactor.datasets import make_heterogeneous


def made(noise: float = 0.3, **sizes: Any) -> Any:
    sizes = {"n_samples": 40, "n_features": 30} | sizes
    return make_heterogeneous(4, n_shared=2, n_unique=1, noise=noise, random_state=0, **sizes)


def with_holes(tables: dict[Any, Any], share: float = 0.1) -> dict[Any, Any]:
    rng = np.random.default_rng(0)
    return {n: np.where(rng.random(t.shape) < share, np.nan, t) for n, t in tables.items()}


def containers() -> dict[str, Any]:
    tables = with_holes(made().sources)
    rows = np.repeat(list(tables), [len(table) for table in tables.values()])
    stored = {name: np.nan_to_num(table) for name, table in tables.items()}
    return {
        "dict": (tables, None),
        "list": (list(tables.values()), None),
        "named list": (list(tables.values()), list(tables)),
        "3-d array": (np.stack(list(tables.values())), None),
        "one table": (np.concatenate(list(tables.values())), rows),
        "frames": ({n: pd.DataFrame(t).add_prefix("p") for n, t in tables.items()}, None),
        "nullable": ({n: pd.DataFrame(t).astype("Float64") for n, t in tables.items()}, None),
        "masked": ({n: np.ma.masked_invalid(t) for n, t in tables.items()}, None),
        "sparse": ({n: scipy.sparse.csc_array(t) for n, t in stored.items()}, None),
    }


CONTAINERS = containers()


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_entry_is_hidden_once_and_a_table_is_given_back_as_it_came(name: str) -> None:
    X, sources = CONTAINERS[name]
    entries = ObservedEntries(X, sources)
    observed = np.isfinite(np.stack(list(with_holes(made().sources).values())))
    assert entries.tables is X
    assert len(entries) == observed.sum()
    hidden = np.zeros(len(entries), dtype=int)
    for train, test in EntryKFold(3, random_state=0).split(entries):
        hidden[test] += 1
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), range(len(entries)))
        kept, held = entries[train].tables, entries[test].tables
        assert type(kept) is (list if isinstance(X, np.ndarray) and X.ndim == 3 else type(X))
        one, other, whole = (filled(tables) for tables in (kept, held, X))
        # what is kept and what is hidden are apart, and together they are all
        assert not (np.isfinite(one) & np.isfinite(other)).any()
        np.testing.assert_array_equal(np.where(np.isfinite(one), one, other), whole)
    assert (hidden == 1).all()


def filled(X: Any) -> np.ndarray[Any, Any]:
    """Return all tables below each other, NaN where an entry is missing."""
    tables = X.values() if isinstance(X, dict) else [X] if getattr(X, "ndim", 0) == 2 else X
    found = []
    for table in tables:
        if scipy.sparse.issparse(table):
            dense = np.full(table.shape, np.nan)
            dense[table.nonzero()] = table.tocsr()[table.nonzero()]
            found.append(dense)
        elif isinstance(table, pd.DataFrame):
            found.append(table.to_numpy(dtype=float, na_value=np.nan))
        else:
            found.append(np.ma.filled(table, np.nan))
    return np.concatenate(found)


def test_frames_keep_their_labels() -> None:
    X, _ = CONTAINERS["frames"]
    part = ObservedEntries(X)[:100].tables
    for name, table in X.items():
        assert part[name].index.equals(table.index)
        assert part[name].columns.equals(table.columns)


def test_a_row_loses_its_share_of_entries_and_never_all() -> None:
    rng = np.random.default_rng(0)
    tables = [np.where(rng.random((50, 8)) < 0.7, np.nan, 1.0) for _ in range(3)]
    entries = ObservedEntries(tables)
    counts = np.concatenate([np.isfinite(table).sum(axis=1) for table in tables])
    for train, test in EntryKFold(4, random_state=0).split(entries):
        kept = np.concatenate([np.isfinite(t).sum(axis=1) for t in entries[train].tables])
        assert (abs(kept - counts * 3 / 4) < 1).all()
        assert (kept[counts > 1] > 0).all()
        assert abs(len(test) - len(entries) / 4) < 1


def test_same_seed_same_folds() -> None:
    entries = ObservedEntries(made().sources)
    one, two, other = (
        [test for _, test in EntryKFold(3, random_state=seed).split(entries)] for seed in (0, 0, 1)
    )
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("shared_axis", ["features", "samples"])
def test_score_of_hidden_entries_is_what_reconstructions_leave_of_them(shared_axis: Any) -> None:
    own = {"features": "n_samples", "samples": "n_features"}[shared_axis]
    data = made(shared_axis=shared_axis, **{own: [30, 35, 40, 45]})
    tables = {name: table + 1 for name, table in data.sources.items()}
    entries = ObservedEntries(tables)
    train, test = next(iter(EntryKFold(4, random_state=0).split(entries)))
    model = HMF(2, 1, shared_axis=shared_axis, random_state=0).fit(entries[train])
    left = total = 0.0
    for name, held in entries[test].tables.items():
        left += np.nansum((held - model.reconstruct(name)) ** 2)
        total += np.nansum((held - model.centres_[name]) ** 2)
    assert model.score(entries[test]) == pytest.approx(1 - left / total, rel=1e-12)
    # the scores of a fit are those that its own samples get, so this is the other way to ask
    held_out = model.score(entries[train].tables, entries[test].tables)
    assert model.score(entries[test]) == pytest.approx(held_out, rel=1e-6)


@pytest.mark.parametrize("name", ["dict", "named list", "one table", "sparse"])
def test_grid_search_finds_ranks_and_refits_on_all_entries(name: str) -> None:
    X, sources = CONTAINERS[name]
    # without a ridge, ranks that are too large predict nothing, and take many rounds to do so
    model = HMF(missing="absent", ridge=0.5, tol=1e-3, random_state=0)
    grid = {"n_shared": [1, 2, 3], "n_unique": [0, 1, 2]}
    search = GridSearchCV(model, grid, cv=EntryKFold(3, random_state=0))
    search.fit(ObservedEntries(X, sources))
    assert search.best_params_ == {"n_shared": 2, "n_unique": 1}
    again = model.set_params(**search.best_params_).fit(X, sources=sources)
    np.testing.assert_array_equal(
        search.best_estimator_.shared_components_, again.shared_components_
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_ridge_is_chosen_where_the_ranks_are_too_large() -> None:
    entries = ObservedEntries(with_holes(made(noise=1.0).sources, 0.5))
    search = GridSearchCV(
        HMF(3, 3, tol=1e-4, random_state=0),
        {"ridge": [0.0, 1.0, 3.0]},
        cv=EntryKFold(3, random_state=0),
    ).fit(entries)
    assert search.best_params_["ridge"] > 0


def test_other_splitters_and_scorers_of_scikit_learn_take_entries() -> None:
    entries = ObservedEntries(made(noise=0.1).sources)
    model = HMF(2, 1, tol=1e-4, random_state=0)
    folds = KFold(3, shuffle=True, random_state=0)
    assert (cross_val_score(model, entries, cv=folds) > 0.9).all()
    sizes, _, scores = learning_curve(
        model, entries, None, cv=folds, train_sizes=[0.5, 1.0], shuffle=True, random_state=0
    )
    assert sizes.tolist() == [1600, 3200]
    assert (scores > 0.9).all()


def test_what_cannot_be_meant_is_refused() -> None:
    tables = made().sources
    entries = ObservedEntries(tables)
    with pytest.raises(TypeError, match=r"X is a dict.*give ObservedEntries\(X\)"):
        next(EntryKFold(3).split(tables))
    for n_splits in (1, 4801):
        with pytest.raises(ValueError, match="at least 2, and no more than the 4800 entries"):
            next(EntryKFold(n_splits).split(entries))
    model = HMF(2, 1, random_state=0)
    with pytest.raises(ValueError, match="give it to these"):
        model.fit(ObservedEntries(list(tables.values())), sources=list(tables))
    sparse = {name: scipy.sparse.csr_array(table) for name, table in tables.items()}
    with pytest.raises(ValueError, match="missing='absent'"):
        model.fit(ObservedEntries(sparse)[:4000])
    model.fit(tables)
    shorter = {name: table[:10] for name, table in tables.items()}
    with pytest.raises(ValueError, match="has 10 samples, but 40 were fitted"):
        model.score(ObservedEntries(shorter))


def test_hidden_entries_are_matched_by_name_and_refused_where_they_do_not_fit() -> None:
    tables = made().sources
    entries = ObservedEntries(tables)
    train, test = next(iter(EntryKFold(4, random_state=0).split(entries)))
    kept, held = entries[train].tables, entries[test].tables
    model = HMF(2, 1, random_state=0).fit(kept)
    backwards = dict(reversed(held.items()))
    assert model.score(kept, backwards) == model.score(kept, held)
    for wrong in (
        {name: table[:, :5] for name, table in held.items()},
        {name: table for name, table in held.items() if name != "source1"},
        [table[:7] for table in held.values()],
    ):
        with pytest.raises(ValueError, match="tables of the same names and shapes"):
            model.score(kept, wrong)
    held["source0"][0, 0] = np.inf
    with pytest.raises(ValueError, match="Source 'source0' contains infinity"):
        model.score(kept, held)


def test_torch_tables_are_split() -> None:
    torch = pytest.importorskip("torch")
    X = {name: torch.asarray(table) for name, table in with_holes(made().sources).items()}
    entries = ObservedEntries(X)
    train, test = next(iter(EntryKFold(4, random_state=0).split(entries)))
    part = entries[train].tables["source0"]
    assert isinstance(part, torch.Tensor)
    assert int(torch.isfinite(part).sum()) == (entries.table_of[train] == 0).sum()
    assert HMF(2, 1, tol=1e-4, random_state=0).fit(entries[train]).score(entries[test]) > 0.8
