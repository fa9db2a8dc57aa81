"""How an experiment leaves its result: a table for programs, a page for people."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import pandas as pd

RESULTS = Path(__file__).parent / "results"
LIBRARIES = ("heterofactor", "numpy", "scipy")


def versions() -> str:
    """Name what the numbers were made with."""
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return f"Made with Python {platform.python_version()}, {libraries}, one BLAS thread."


def markdown(table: pd.DataFrame) -> str:
    """Write a table of finished cells, without its index."""
    lines = [list(table.columns), ["---"] * table.shape[1], *table.astype(str).to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(title: str, *paragraphs: str) -> str:
    """Put a title, and paragraphs or tables, on a page."""
    return "\n\n".join([f"# {title}", *paragraphs, versions()]) + "\n"
