"""The lines that README gives for ratings do what it says."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from heterofactor.datasets import load_movielens_100k

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.real
def test_the_lines_on_ratings_run(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETEROFACTOR_DATA", str(shared_data))
    pairs = load_movielens_100k().ratings.head(10)
    new = pd.DataFrame({"user": [2_000, 2_000], "item": [50, 181], "rating": [5, 5]})
    room: dict[str, Any] = {"pairs": pairs, "new_ratings": new}
    section = README.read_text(encoding="utf-8").split("## Ratings")[1].split("\n## ")[0]
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(block, room)
    model = room["model"]
    assert model.predict(pairs).shape == (10,)
    assert 2_000 in model.users_
    # who likes two parts of Star Wars will like the third
    assert 172 in model.similar_items(50, n=5).index
