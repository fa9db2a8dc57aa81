"""Threads: as many as BLAS would use, the same answer for any number, and BLAS given back."""

from dataclasses import dataclass

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from heterofactor import HMF
from heterofactor.datasets import make_heterogeneous
from heterofactor.engines import Threads
from heterofactor.engines.threads import blas_threads
from heterofactor.sources import Dense


def blas_limits() -> set[int]:
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


def engine(n_threads: int | None = None) -> Threads:
    sources = [Dense(np.ones((1, 3, 4))) for _ in range(3)]
    return Threads(sources, [{"unique": np.zeros((1, 3, 1))}] * 3, n_threads)


def test_blas_gets_its_threads_back_in_whatever_order_engines_end() -> None:
    with threadpool_limits(2):
        before = blas_limits()
        first, second = engine(2), engine(2)
        assert blas_limits() == {1}
        first.close()
        assert blas_limits() == {1}
        second.close()
        second.close()
        assert blas_limits() == before


def test_limits_of_blas_are_honoured() -> None:
    with threadpool_limits(1):
        assert blas_threads() == 1
        assert engine().n_threads == 1


def test_an_error_at_a_source_reaches_the_caller_and_blas_gets_its_threads_back() -> None:
    before = blas_limits()
    data = make_heterogeneous(3, 700, 60, 2, 1, random_state=0)  # too large for one stack
    with pytest.raises(AttributeError, match="broken"):
        HMF(2, 1, loss="squared", solver=Broken(2)).fit(data.sources)
    assert blas_limits() == before


def test_any_number_of_threads_gives_the_same_bits() -> None:
    data = make_heterogeneous(5, 700, 60, 2, 1, noise=0.1, random_state=0)
    fits = []
    for number in (1, 2, 3):
        with threadpool_limits(number):
            fits.append(HMF(2, 1, random_state=0).fit(data.sources).shared_components_)
    assert np.array_equal(fits[0], fits[1])
    assert np.array_equal(fits[1], fits[2])


@dataclass(frozen=True)
class Broken:
    """A solver that fails where its sources are."""

    n_shared: int
    scale_free: bool = True
    spread: float = 1.0

    def start(self, basis: np.ndarray) -> dict[str, np.ndarray]:
        return {"basis": basis}

    def init(self, source: Dense, shared: dict, local: dict) -> dict:
        raise AttributeError("broken")
