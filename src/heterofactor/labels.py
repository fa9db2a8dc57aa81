"""Names and labels as plain JSON and back, their types kept: text, numbers, times, tuples.

What JSON has stands for itself; anything else is an object whose one key is its kind.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pandas as pd

PLAIN = (bool, int, float, str)


def label_to_json(label: Any) -> Any:
    """Return one name or label as JSON.

    Parameters
    ----------
    label : None, bool, int, float, str, NumPy scalar, date, pandas time, or tuple of them
        Anything else is a TypeError.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.labels import label_to_json
    >>> label_to_json("north"), label_to_json(("north", 2))
    ('north', {'tuple': ['north', 2]})
    >>> label_to_json(pd.Timestamp("2013-03-01"))["stamp"]["values"]
    ['2013-03-01T00:00:00.000000']
    """
    if label is None or type(label) in PLAIN:
        return label
    if isinstance(label, tuple):
        return {"tuple": [label_to_json(item) for item in label]}
    if isinstance(label, np.generic) and label.dtype.kind not in "OV":
        plain = str(label) if label.dtype.kind in "mM" else label.item()
        return {"scalar": [label.dtype.str, plain]}
    if type(label) in (pd.Timestamp, pd.Timedelta, pd.Period):
        return {"stamp": index_to_json(pd.Index([label]))}
    if type(label) is date:
        return {"date": label.isoformat()}
    raise TypeError(f"{label!r:.60} ({type(label).__module__}.{type(label).__qualname__})")


def label_from_json(content: Any) -> Any:
    """Return the name or label that `label_to_json` wrote.

    Parameters
    ----------
    content
        What it returned.

    Examples
    --------
    >>> from heterofactor.labels import label_from_json
    >>> label_from_json({"tuple": ["north", 2]})
    ('north', 2)
    """
    if not isinstance(content, dict):
        return content
    ((kind, value),) = content.items()
    match kind:
        case "tuple":
            return tuple(label_from_json(item) for item in value)
        case "scalar":
            dtype = np.dtype(value[0])
            number = int(value[1].split()[0]) if dtype.kind == "m" else value[1]
            return np.array(number, dtype=dtype)[()]
        case "stamp":
            return index_from_json(value)[0]
        case "date":
            return date.fromisoformat(value)
    raise KeyError(kind)


def index_to_json(index: pd.Index) -> dict[str, Any]:
    """Return the labels of a table's rows or columns as JSON.

    Parameters
    ----------
    index : pandas.Index
        Of text, numbers, times, categories, mixed labels, or several levels of these; any other
        label is a TypeError.

    Examples
    --------
    >>> import pandas as pd
    >>> from heterofactor.labels import index_to_json
    >>> index_to_json(pd.RangeIndex(3, name="row"))
    {'kind': 'range', 'range': [0, 3, 1], 'names': ['row']}
    >>> index_to_json(pd.DatetimeIndex(["2013-03-01"], name="day"))["values"]
    ['2013-03-01T00:00:00.000000']
    """
    names = {"names": [label_to_json(name) for name in index.names]}
    if isinstance(index, pd.MultiIndex):
        levels = [index_to_json(level) for level in index.levels]
        return {
            "kind": "multi",
            "levels": levels,
            "codes": [list(map(int, c)) for c in index.codes],
        } | names
    if isinstance(index, pd.RangeIndex):
        return {"kind": "range", "range": [index.start, index.stop, index.step]} | names
    if isinstance(index, pd.CategoricalIndex):
        codes, ordered = index.codes.tolist(), bool(index.ordered)
        categories = index_to_json(index.categories)
        return {
            "kind": "category",
            "categories": categories,
            "codes": codes,
            "ordered": ordered,
        } | names
    if isinstance(index, pd.PeriodIndex):
        return {"kind": "period", "ordinals": index.asi8.tolist(), "freq": index.freqstr} | names
    if isinstance(index, pd.TimedeltaIndex):
        return {
            "kind": "duration",
            "dtype": index.to_numpy().dtype.str,
            "values": index.asi8.tolist(),
        } | names
    if isinstance(index, pd.DatetimeIndex):
        zone = index.tz
        stamps = (index if zone is None else index.tz_convert("UTC").tz_localize(None)).to_numpy()
        return {
            "kind": "time",
            "dtype": stamps.dtype.str,
            "zone": None if zone is None else str(zone),
            "freq": index.freqstr,
            "values": np.datetime_as_string(stamps).tolist(),
        } | names
    mixed = index.dtype == np.dtype(object)
    values = [None if not mixed and pd.isna(x) else label_to_json(x) for x in index.tolist()]
    return {"kind": "mixed" if mixed else str(index.dtype), "values": values} | names


def index_from_json(content: dict[str, Any]) -> pd.Index:
    """Return the labels that `index_to_json` wrote.

    Parameters
    ----------
    content : dict
        What it returned.

    Examples
    --------
    >>> from heterofactor.labels import index_from_json
    >>> index_from_json({"kind": "range", "range": [0, 3, 1], "names": ["row"]})
    RangeIndex(start=0, stop=3, step=1, name='row')
    """
    names = [label_from_json(name) for name in content["names"]]
    index: Any
    match content["kind"]:
        case "multi":
            levels: Any = [index_from_json(level) for level in content["levels"]]
            return pd.MultiIndex(levels, content["codes"], names=names)
        case "range":
            index = pd.RangeIndex(*content["range"])
        case "category":
            categories = index_from_json(content["categories"])
            index = pd.CategoricalIndex(
                pd.Categorical.from_codes(
                    content["codes"], categories=categories, ordered=content["ordered"]
                )
            )
        case "period":
            periods: Any = pd.PeriodIndex
            index = periods.from_ordinals(content["ordinals"], freq=content["freq"])
        case "duration":
            index = pd.TimedeltaIndex(np.array(content["values"], "i8").view(content["dtype"]))
        case "time":
            index = pd.DatetimeIndex(np.array(content["values"], dtype=content["dtype"]))
            if content["zone"] is not None:
                index = index.tz_localize("UTC").tz_convert(content["zone"])
            index.freq = content["freq"]
        case "mixed":
            values = np.empty(len(content["values"]), dtype=object)
            values[:] = [label_from_json(item) for item in content["values"]]
            index = pd.Index(values, dtype=object, tupleize_cols=False)
        case dtype:
            index = pd.Index(label_from_json({"tuple": content["values"]}), dtype=dtype)
    # rename() would take a tuple for several names
    return index.set_names(names)  # type: ignore[no-any-return]
