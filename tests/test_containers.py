"""Results come back in the container that was asked for, with the labels that were brought."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from heterofactor.containers import as_brought, configured_output, contain

ARRAY = np.arange(6.0).reshape(3, 2)
INDEX = pd.Index(["x", "y", "z"], name="sample")
NAMES = np.array(["shared0", "unique0"], dtype=object)


def test_by_default_an_array_stays_the_very_same():
    assert contain(ARRAY, INDEX, NAMES) is ARRAY


def test_pandas_output_has_names_and_row_labels():
    expected = pd.DataFrame(ARRAY, index=INDEX, columns=["shared0", "unique0"])
    pd.testing.assert_frame_equal(contain(ARRAY, INDEX, NAMES, "pandas"), expected)


def test_pandas_output_counts_rows_without_labels():
    assert contain(ARRAY, None, NAMES, "pandas").index.equals(pd.RangeIndex(3))


def test_polars_output_has_names():
    polars = pytest.importorskip("polars")
    found = contain(ARRAY, INDEX, NAMES, "polars")
    assert isinstance(found, polars.DataFrame)
    assert found.columns == list(NAMES)
    np.testing.assert_array_equal(found.to_numpy(), ARRAY)


def test_torch_becomes_pandas_only_where_asked():
    torch = pytest.importorskip("torch")
    tensor = torch.asarray(ARRAY)
    assert contain(tensor, INDEX, NAMES) is tensor
    np.testing.assert_array_equal(contain(tensor, INDEX, NAMES, "pandas"), ARRAY)


def test_what_came_without_labels_goes_without():
    assert as_brought(ARRAY, None, None) is ARRAY


@pytest.mark.parametrize("index", [INDEX, None])
@pytest.mark.parametrize(
    "columns", [pd.Index(["p", "q"]), pd.MultiIndex.from_product([[1], ["a", "b"]])]
)
def test_labels_come_back_as_they_were(index, columns):
    found = as_brought(ARRAY, index, columns)
    pd.testing.assert_frame_equal(found, pd.DataFrame(ARRAY, index=index, columns=columns))


def test_an_estimators_own_choice_goes_before_the_configuration():
    assert configured_output(None) == "default"
    with config_context(transform_output="pandas"):
        assert configured_output(None) == "pandas"
        assert configured_output("default") == "default"
