"""Tables of results, written once for people (Markdown) and once for programs (JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Seconds:
    """The best and the median of several turns."""

    best: float
    median: float

    def __str__(self) -> str:
        return f"{_number(self.best)} ({_number(self.median)})"


@dataclass(frozen=True)
class Bound:
    """A number, and what it must not exceed (`at_most`) or fall below (`at_least`)."""

    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool:
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)

    def __str__(self) -> str:
        sign, limit = ("≤", self.at_most) if self.at_least is None else ("≥", self.at_least)
        return f"{_number(self.value)} ({sign} {limit:g}: {'met' if self.met else '**missed**'})"


@dataclass(frozen=True)
class Table:
    """A table of results: what it shows, and a dict for each row, by column."""

    name: str
    title: str
    note: str
    rows: list[dict[str, Any]]

    def markdown(self) -> str:
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        lines = [
            [*columns],
            ["---" for _ in columns],
            *([_cell(row.get(name)) for name in columns] for row in self.rows),
        ]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"## {self.title}\n\n{self.note}\n\n{table}\n"


def write(
    folder: Path, name: str, title: str, machine: dict[str, str], tables: Iterable[Table]
) -> None:
    """Write a page of tables, ``name.md``, and the same for programs, ``name.json``, anew."""
    tables = list(tables)
    folder.mkdir(parents=True, exist_ok=True)
    text = [f"# {title}", "", *(f"- {k}: {v}" for k, v in machine.items()), ""]
    text += [table.markdown() for table in tables]
    (folder / f"{name}.md").write_text("\n".join(text))
    everything = {"machine": machine, "tables": [asdict(table) for table in tables]}
    stored = json.dumps(everything, indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(stored + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, Bound | Seconds | str):
        return str(value)
    return _number(value)


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
