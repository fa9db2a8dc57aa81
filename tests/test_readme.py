"""The lines that README gives for tables with holes do what it says."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heterofactor import HMF
from heterofactor.datasets import make_heterogeneous

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_lines_on_missing_entries_run() -> None:
    data = make_heterogeneous(
        2, n_samples=60, n_features=30, n_shared=2, n_unique=1, noise=0.3, random_state=0
    )
    rng = np.random.default_rng(0)
    complete = [pd.DataFrame(table) for table in data.sources.values()]
    north, south = (table.mask(rng.random(table.shape) < 0.2) for table in complete)
    hidden = {
        name: table.where(part.isna())
        for name, table, part in zip(("north", "south"), complete, (north, south), strict=True)
    }
    room: dict[str, Any] = {
        "HMF": HMF, "north": north, "south": south, "hidden": hidden, "new_samples": north[:5]
    }  # fmt: skip
    section = README.read_text(encoding="utf-8").split("## Missing entries")[1].split("\n## ")[0]
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(block, room)
    assert room["model"].score(room["tables"], hidden) > 0.8
    assert room["search"].best_params_ == {"n_shared": 2, "n_unique": 1, "ridge": 0.1}
