"""Ranks are taken in every form, and refused where they cannot be had."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heterofactor.brought import read_tables
from heterofactor.ranks import resolve_ranks
from heterofactor.tables import Tables

LENGTHS = {"north": 4, "south": 3, "west": 7}


def tables(axis: Any = "features", shared: int = 6) -> Tables:
    found = {name: np.ones((length, shared)) for name, length in LENGTHS.items()}
    if axis == "samples":
        found = {name: table.T for name, table in found.items()}
    return read_tables(found, shared_axis=axis)


def refused(message: str) -> Any:
    return pytest.raises(ValueError, match=re.escape(message))


@pytest.mark.parametrize(
    "given_",
    [
        [1, 2, 3],
        (1, 2, 3),
        np.array([1, 2, 3]),
        {"north": 1, "south": 2, "west": 3},
        {"west": np.int64(3), "north": np.uint8(1), "south": 2},
    ],
    ids=repr,
)
def test_ranks_come_in_any_form(given_):
    found = resolve_ranks(2, given_, tables())
    assert found == [1, 2, 3]
    assert {type(rank) for rank in found} == {int}


@given(st.integers(0, 3), st.sampled_from(["features", "samples"]))
def test_one_rank_is_for_all(rank, axis):
    assert resolve_ranks(2, rank, tables(axis)) == [rank] * 3


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "1", None, np.float64(2)])
@pytest.mark.parametrize("place", ["one", "list", "dict"])
def test_what_is_no_rank_is_named_with_its_source(wrong, place):
    many = {"north": 1, "south": wrong, "west": 1}
    given_ = {"one": wrong, "list": list(many.values()), "dict": many}[place]
    name = "north" if place == "one" else "south"
    with refused(f"n_unique is {wrong!r} for source {name!r}: expected an integer of at least 0."):
        resolve_ranks(1, given_, tables())


def test_a_name_that_is_no_source():
    with refused("n_unique names 'east', which is no source: the sources are 'north', 'south'"):
        resolve_ranks(1, {"east": 1, "north": 1}, tables())


def test_a_source_without_a_rank():
    with refused("n_unique has no entry for source 'west'"):
        resolve_ranks(1, {"north": 1, "south": 1}, tables())


def test_another_number_of_ranks_than_sources():
    with refused("n_unique gives 2 ranks, but there are 3 sources"):
        resolve_ranks(1, [1, 1], tables())


@pytest.mark.parametrize("axis", ["features", "samples"])
def test_ranks_that_fill_the_shared_axis_are_the_last_allowed(axis):
    assert resolve_ranks(3, 3, tables(axis)) == [3, 3, 3]
    with refused(
        f"n_shared=4 and n_unique=3 of source 'north' need 7 {axis}, but the sources share 6 "
        f"{axis[:-1]}(s)"
    ):
        resolve_ranks(4, 3, tables(axis))


@pytest.mark.parametrize(("axis", "own"), [("features", "sample"), ("samples", "feature")])
def test_a_unique_rank_above_the_own_length_names_the_source(axis, own):
    with refused(f"n_unique=4 of source 'south', which has only 3 {own}(s)"):
        resolve_ranks(1, 4, tables(axis))


@pytest.mark.parametrize(("axis", "own"), [("features", "sample"), ("samples", "feature")])
def test_a_shared_rank_above_all_lengths_together(axis, own):
    assert resolve_ranks(14, 0, tables(axis, shared=20)) == [0, 0, 0]
    with refused(f"n_shared=15, but all sources together have only 14 {own}(s)"):
        resolve_ranks(15, 0, tables(axis, shared=20))
