"""Two real sets of sources, small enough to travel with the library.

Their terms, and what was changed, are in `data/LICENSE-DATA.md`; the script that made the files
from the published tables is `experiments/bundle_data.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

_LICENCE = (
    "CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/): free to share and adapt when the "
    "authors are named and changes are stated"
)


@dataclass(frozen=True, eq=False)
class RealData:
    """Observed sources that share their features.

    Attributes
    ----------
    sources : dict of str to DataFrame
        Samples in rows, features in columns, no value missing, float64. The columns are the same
        in every source.
    description : str
        What was measured, what the rows and columns are, what was left out and how much.
    licence : str
        The terms of the data (not of this library).
    citation : str
        What to cite.
    url : str
        Where the whole dataset is published.

    Examples
    --------
    >>> from heterofactor.datasets import load_mice_protein
    >>> load_mice_protein().licence[:9]
    'CC BY 4.0'
    """

    sources: dict[str, pd.DataFrame]
    description: str
    licence: str
    citation: str
    url: str


def load_mice_protein() -> RealData:
    """Load the protein levels of eight groups of mice.

    The groups (sources) are genotype, behaviour and treatment in one name, as in ``c-CS-s``:
    ``c`` control or ``t`` trisomic, ``CS`` stimulated to learn or ``SC`` not, ``m`` memantine or
    ``s`` saline.

    Returns
    -------
    RealData
        Eight sources of 105 to 150 measurements x 70 proteins, indexed by mouse and measurement.

    Notes
    -----
    Of the 1,080 x 77 published values 1,396 are missing. Among all choices of proteins to drop,
    followed by dropping every measurement that still lacks a value, the one that keeps the most
    values was taken: without BAD, BCL2, Bcatenin, EGR1, H3AcK18, H3MeK4 and pCFOS (missing in 18
    to 285 measurements) there remain 1,062 measurements x 70 proteins, 89 % of all values. Lost
    are all 15 measurements of one of the 72 mice, in ``c-CS-s``, and 3 of another in ``t-SC-s``.

    The 15 measurements of one mouse are repeats, not independent samples: when rows are held out,
    hold out whole mice.

    Examples
    --------
    >>> from heterofactor.datasets import load_mice_protein
    >>> mice = load_mice_protein()
    >>> {group: len(table) for group, table in mice.sources.items()}
    {'c-CS-m': 150, 'c-CS-s': 120, 'c-SC-m': 150, 'c-SC-s': 135, 't-CS-m': 135, ...}
    >>> mice.sources["c-CS-m"].iloc[:2, :3].round(3)
    protein            DYRK1A_N  ITSN1_N  BDNF_N
    mouse measurement
    309   1               0.504    0.747   0.430
          2               0.515    0.689   0.412
    """
    data = arrays("mice_protein.npz")
    mouse_and_number = [name.rsplit("_", 1) for name in data["measurements"].tolist()]
    index = pd.MultiIndex.from_arrays(
        [[mouse for mouse, _ in mouse_and_number], [int(number) for _, number in mouse_and_number]],
        names=["mouse", "measurement"],
    )
    columns = pd.Index(data["proteins"].tolist(), name="protein")
    table = pd.DataFrame(data["values"].astype(np.float64), index=index, columns=columns)
    groups = data["groups"]
    return RealData(
        sources={str(group): table[groups == group] for group in np.unique(groups)},
        description=(
            "Levels of 70 proteins and protein modifications in the nuclear fraction of the "
            "cortex of 71 mice, up to 15 measurements of each, in eight groups (sources) by "
            "genotype (c control, t trisomic), behaviour (CS stimulated to learn, SC not) and "
            "treatment (m memantine, s saline). Of 1,080 measurements x 77 proteins, those kept "
            "are the 1,062 x 70 that leave the most values and none missing. Values as published, "
            "in single precision."
        ),
        licence=_LICENCE,
        citation=(
            "Higuera C, Gardiner KJ, Cios KJ (2015). Self-Organizing Feature Maps Identify "
            "Proteins Critical to Learning in a Mouse Model of Down Syndrome. PLoS ONE 10(6): "
            "e0129126. Data: Higuera C, Gardiner K, Cios K (2015). Mice Protein Expression. UCI "
            "Machine Learning Repository. https://doi.org/10.24432/C50S3Z"
        ),
        url="https://archive.ics.uci.edu/dataset/342/mice+protein+expression",
    )


def load_beijing_air() -> RealData:
    """Load daily air quality and weather at twelve stations in Beijing.

    Returns
    -------
    RealData
        Twelve sources (stations) of 1,300 to 1,428 days x 11 variables, indexed by day, from
        2013-03-01 to 2017-02-28.

    Notes
    -----
    Daily means of hourly values. A day is kept for a station when every variable was observed in
    at least 12 of its hours: 16,639 of 17,532 station-days, of which 10,600 were observed in every
    hour. The mean of a half-observed day leans towards the hours observed. Days differ between
    stations; 964 are kept at all of them. Means are rounded: TEMP, DEWP and WSPM to 0.01, RAIN to
    0.001, CO to 1, the others to 0.1. Wind direction is left out, since an angle has no mean of
    this kind.

    The variables' scales differ by orders of magnitude, so standardise them. Weather comes from
    the nearest weather station, which several air stations have in common.

    Examples
    --------
    >>> from heterofactor.datasets import load_beijing_air
    >>> air = load_beijing_air()
    >>> list(air.sources)[:3]
    ['Aotizhongxin', 'Changping', 'Dingling']
    >>> air.sources["Changping"][["PM2.5", "CO", "TEMP"]].head(2)
    variable    PM2.5     CO  TEMP
    day
    2013-03-01    5.1  388.0  0.81
    2013-03-02   33.3  970.0 -0.40

    The days that all stations have, as sources that share their samples:

    >>> from functools import reduce
    >>> days = reduce(lambda one, other: one.intersection(other),
    ...               [table.index for table in air.sources.values()])
    >>> air.sources["Changping"].loc[days].shape
    (964, 11)
    """
    data = arrays("beijing_air.npz")
    values = data["values"].T / 10.0 ** data["decimals"]
    days = np.datetime64(str(data["first_day"]), "D") + data["day_of_row"].astype("m8[D]")
    table = pd.DataFrame(
        values,
        index=pd.DatetimeIndex(days, name="day"),
        columns=pd.Index(data["variables"].tolist(), name="variable"),
    )
    stations = data["stations"].tolist()
    return RealData(
        sources={name: table[data["station_of_row"] == i] for i, name in enumerate(stations)},
        description=(
            "Daily means at twelve air-quality stations (sources) in Beijing, 2013-03-01 to "
            "2017-02-28: PM2.5, PM10, SO2, NO2, CO and O3 in micrograms per cubic metre, TEMP and "
            "DEWP (dew point) in degrees Celsius, PRES in hPa, RAIN in mm per hour, WSPM (wind "
            "speed) in m/s. Kept are the 16,639 of 17,532 station-days with at least 12 observed "
            "hours of every variable. Means are rounded; wind direction is left out."
        ),
        licence=_LICENCE,
        citation=(
            "Zhang S, Guo B, Dong A, He J, Xu Z, Chen SX (2017). Cautionary tales on air-quality "
            "improvement in Beijing. Proceedings of the Royal Society A 473(2205): 20170457. "
            "Data: Chen S (2017). Beijing Multi-Site Air Quality. UCI Machine Learning "
            "Repository. https://doi.org/10.24432/C5RK5G"
        ),
        url="https://archive.ics.uci.edu/dataset/501/beijing+multi+site+air+quality+data",
    )


def arrays(name: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a bundled file.

    Examples
    --------
    >>> from heterofactor.datasets.bundled import arrays
    >>> arrays("beijing_air.npz")["variables"].tolist()[:3]
    ['PM2.5', 'PM10', 'SO2']
    """
    path = files("heterofactor.datasets").joinpath("data", name)
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}
