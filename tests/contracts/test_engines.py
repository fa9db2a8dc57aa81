"""Every engine keeps the contract of engines."""

import pytest

from heterofactor.checks import check_engine
from heterofactor.engines import ENGINES, Threads


@pytest.mark.parametrize("name", ENGINES)
def test_engine(name: str) -> None:
    check_engine(ENGINES[name])


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_threads_of_any_number(n_threads: int) -> None:
    check_engine(lambda sources, local: Threads(sources, local, n_threads))
