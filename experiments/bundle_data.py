"""Make the bundled datasets: two from raw ones, hours to days, no value missing; one of our own.

    python experiments/bundle_data.py RAW_FOLDER [OUT_FOLDER]

RAW_FOLDER holds `mice-protein/mice_protein.npz` and `beijing-air/beijing_air.npz`, the UCI tables
as arrays (see LICENSE-DATA.md beside the results). Writes the same bytes each time.
"""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from heterofactor.datasets import make_ratings

DATA = Path(__file__).parents[1] / "src" / "heterofactor" / "datasets" / "data"
HOURS_NEEDED = 12
# digits kept of each variable's daily mean: below the instruments' own, and every value fits int16
DECIMALS = {
    "PM2.5": 1, "PM10": 1, "SO2": 1, "NO2": 1, "CO": 0, "O3": 1,
    "TEMP": 2, "PRES": 1, "DEWP": 2, "RAIN": 3, "WSPM": 2,
}  # fmt: skip

GENRES = ["Drama", "Comedy", "Thriller", "Western"]
# Any of the first, with any of the second: 150 titles, of which we know no film.
FIRST = (
    "The Amber", "A Borrowed", "Cold", "The Crooked", "Every Second", "The Gilded", "Half the",
    "The Hollow", "Last", "Midnight", "The Painted", "A Quiet", "The Salted", "Thirteen",
    "Under a Paper",
)  # fmt: skip
SECOND = (
    "Harbour", "Accordion", "Orchard", "Witness", "Station", "Umbrella", "Verdict", "Lantern",
    "Parade", "Sparrow",
)  # fmt: skip
JOBS = ["baker", "engineer", "nurse", "student"]
LANGUAGES = ["Danish", "English", "Hindi"]


def bundle_cinema(out: Path) -> None:
    """Make ratings of films that do not exist, and what is known of these and of who rates."""
    made = make_ratings(
        200, 150, n_ratings=6_000, n_groups=len(GENRES), n_shared=2, n_unique=1, noise=0.4,
        random_state=1,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    titles = np.array([f"{one} {other}" for one in FIRST for other in SECOND])[rng.permutation(150)]
    genre = made.item_groups.str.removeprefix("group").astype(int).to_numpy()
    flags = rng.random((150, len(GENRES))) < 0.1
    flags[np.arange(150), genre] = True
    by_user, by_item = made.user_features.to_numpy(), made.item_features.to_numpy()
    # a part of n columns is the product of n scores of users and of items, in each genre
    shared = _factors(made.shared_parts.to_numpy(), 2)
    unique = [_factors(made.unique_parts.to_numpy()[:, genre == g], 1) for g in range(len(GENRES))]
    unique_items = np.zeros(150)
    for g, (_, items) in enumerate(unique):
        unique_items[genre == g] = items[:, 0]
    np.savez_compressed(
        out,
        titles=titles,
        genres=np.array(GENRES),
        genre=genre.astype(np.int8),
        flags=flags,
        user=pd.Index(made.user_offsets.index).get_indexer(made.ratings["user"]).astype(np.int16),
        item=pd.Index(made.item_offsets.index).get_indexer(made.ratings["item"]).astype(np.int16),
        rating=made.ratings["rating"].to_numpy().astype(np.int8),
        time=made.ratings["time"].to_numpy().astype(np.int32),
        age=np.clip(np.round(42 + 11 * by_user[:, 0]), 16, 90).astype(np.int8),
        job=np.array(JOBS)[2 * (by_user[:, 1] > 0) + (by_user[:, 2] > 0)],
        year=np.clip(np.round(1990 + 11 * by_item[:, 0]), 1930, 2025).astype(np.int16),
        minutes=np.clip(np.round(105 + 12 * by_item[:, 1]), 60, 200).astype(np.int16),
        language=np.array(LANGUAGES)[np.digitize(by_item[:, 2], [-0.8, 0.8])],
        mean=made.mean,
        user_offsets=made.user_offsets.to_numpy(),
        item_offsets=made.item_offsets.to_numpy(),
        shared_users=shared[0],
        shared_items=shared[1],
        unique_users=np.stack([users[:, 0] for users, _ in unique]),
        unique_items=unique_items,
    )
    print(f"cinema: {len(made.ratings)} ratings of {len(titles)} films")


def _factors(part: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    left, sizes, right = np.linalg.svd(part, full_matrices=False)
    return left[:, :rank] * sizes[:rank], right[:rank].T


def bundle_mice(raw: Path, out: Path) -> None:
    """Drop the proteins, then the measurements, that leave the most values and none missing."""
    with np.load(raw, allow_pickle=False) as table:
        X, proteins = table["X"], table["proteins"]
        measurements, groups = table["mouse"], table["group"]
    missing = np.isnan(X)

    # Three measurements lack 43 proteins each: dropping those proteins costs far more than the
    # three rows, so only proteins missing elsewhere too can be worth dropping. All subsets.
    candidates = np.flatnonzero(missing.sum(axis=0) > 3)
    best = (0, np.ones(X.shape[1], dtype=bool))
    for size in range(len(candidates) + 1):
        for dropped in combinations(candidates, size):
            columns = np.ones(X.shape[1], dtype=bool)
            columns[list(dropped)] = False
            kept = int((~missing[:, columns].any(axis=1)).sum() * columns.sum())
            if kept > best[0]:
                best = (kept, columns)
    columns = best[1]
    rows = ~missing[:, columns].any(axis=1)

    np.savez_compressed(
        out,
        values=X[np.ix_(rows, columns)].astype(np.float32),
        proteins=proteins[columns],
        measurements=measurements[rows],
        groups=groups[rows],
    )
    print(f"mice protein: {missing.sum()} of {X.size} values missing in {X.shape}")
    for j in np.flatnonzero(~columns):
        print(f"  dropped {proteins[j]}, missing in {missing[:, j].sum()} measurements")
    print(f"  kept {rows.sum()} measurements x {columns.sum()} proteins = {best[0]} values")
    for group in np.unique(groups):
        print(f"  {group}: {(rows & (groups == group)).sum()} of {(groups == group).sum()}")


def bundle_beijing(raw: Path, out: Path) -> None:
    """Average hours to days, where each variable was observed long enough."""
    with np.load(raw, allow_pickle=False) as table:
        hours, stations, variables = table["values"], table["stations"], table["variables"]
        first_day = np.datetime64(str(table["first_hour"])[:10], "D")
    by_day = hours.astype(np.float64).reshape(len(stations), -1, 24, len(variables))
    observed = ~np.isnan(by_day)
    hours_observed = observed.sum(axis=2)
    means = np.nansum(by_day, axis=2) / np.maximum(hours_observed, 1)
    kept = (hours_observed >= HOURS_NEEDED).all(axis=2)

    decimals = np.array([DECIMALS[name] for name in variables], dtype=np.int16)
    values = np.round(means[kept] * 10.0**decimals)
    if np.abs(values).max() > np.iinfo(np.int16).max:
        raise ValueError("a daily mean does not fit int16: keep fewer decimals of its variable")
    station_of_row, day_of_row = np.nonzero(kept)
    np.savez_compressed(
        out,
        values=np.ascontiguousarray(values.T, dtype=np.int16),  # by variable: packs a fifth better
        decimals=decimals,
        variables=variables,
        stations=stations,
        station_of_row=station_of_row.astype(np.int16),
        day_of_row=day_of_row.astype(np.int16),
        first_day=first_day.astype(str),
    )
    full = (hours_observed[kept] == 24).all(axis=1).sum()
    print(f"Beijing air: kept {kept.sum()} of {kept.size} station-days, {full} of them observed in")
    print(f"  every hour; {kept.all(axis=0).sum()} days are kept at every station")
    for i, station in enumerate(stations):
        print(f"  {station}: {kept[i].sum()} of {kept.shape[1]} days")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    raw_folder = Path(sys.argv[1])
    out_folder = Path(sys.argv[2]) if len(sys.argv) == 3 else DATA
    bundle_cinema(out_folder / "cinema.npz")
    bundle_mice(raw_folder / "mice-protein" / "mice_protein.npz", out_folder / "mice_protein.npz")
    bundle_beijing(raw_folder / "beijing-air" / "beijing_air.npz", out_folder / "beijing_air.npz")
