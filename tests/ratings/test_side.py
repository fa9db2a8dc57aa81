"""Side information for networks."""

import numpy as np
import pandas as pd

from heterofactor.ratings.reading import Columns, read_ratings
from heterofactor.ratings.side import unit_columns, unit_of, with_unrated


def test_columns_lie_between_zero_and_one_and_holes_in_the_mean() -> None:
    table = pd.DataFrame(
        {"year": [1990.0, np.nan, 2000.0, 1992.0], "same": 3, "empty": np.nan, "kind": list("abca")}
    )
    found = unit_columns(table, table.index, "item")
    # year, then a flag for each kind; what never changes says nothing
    np.testing.assert_allclose(found[:, 0], [0, 0.4, 1, 0.2])
    np.testing.assert_array_equal(found[:, 1:], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])


def test_no_features_are_no_columns() -> None:
    assert unit_columns(None, pd.Index([1, 2]), "item").shape == (2, 0)
    constant = pd.DataFrame({"same": [1, 1]})
    assert unit_columns(constant, constant.index, "item").shape == (2, 0)


def test_those_without_ratings_come_last() -> None:
    table = pd.DataFrame({"user": [5, 3], "item": list("ba"), "rating": [1, 2]})
    known = read_ratings(table, Columns())
    features = pd.DataFrame({"year": range(3)}, index=list("cab"))
    wider = with_unrated(known, pd.DataFrame({"age": [1, 2]}, index=[1, 5]), features)
    assert wider.items.tolist() == ["a", "b", "c"] and wider.users.tolist() == [3, 5, 1]
    np.testing.assert_array_equal(wider.values, known.values)


def test_equal_ratings_have_the_unit_one() -> None:
    table = pd.DataFrame({"user": [1, 2], "item": [1, 1], "rating": [3, 3]})
    assert unit_of(read_ratings(table, Columns())) == 1.0
