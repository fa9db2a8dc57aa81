"""The lines that README gives for ratings do what it says."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from heterofactor.datasets import load_cinema

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_lines_on_ratings_run() -> None:
    pytest.importorskip("torch")
    cinema = load_cinema()
    pairs = cinema.ratings.head(10)
    liked = cinema.item_groups.index[:2]
    room: dict[str, Any] = {
        "pairs": pairs,
        "new_ratings": pd.DataFrame({"user": 2_000, "item": liked, "rating": 5}),
        "features_of_a_new_film": cinema.item_features.iloc[:1].set_axis(["A New Film"]),
        "held_ratings": pairs,
    }
    section = README.read_text(encoding="utf-8").split("## Ratings")[1].split("\n## ")[0]
    first, second, third = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(first, room)
    assert room["model"].predict(pairs).shape == (10,)
    assert 2_000 in room["model"].users_
    exec(second, room)
    assert "A New Film" in room["model"].recommend(78, n=200).index
    exec(third, room)
    assert room["blend"].weights_.sum() > 0.5
