"""The sources' steps side by side, on as many threads as BLAS itself would use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

from heterofactor.engines.serial import Serial
from heterofactor.rounds import State
from heterofactor.sources import Source


class Threads(Serial):
    """Run the sources' steps on several threads, with BLAS limited to one for each.

    The products of a step are too thin for BLAS to divide them well: on a busy machine its
    threads wait for each other, and a fit was seen to take twenty times as long. One source alone
    is left to BLAS, unless it has threads of its own. The messages are summed in the order of the
    sources, so that the answer is the same for any number of threads.

    Parameters
    ----------
    sources : sequence of Source
        Stacks of matrices.
    local : sequence of dict of arrays
        For each, its private state so far.
    n_threads : int, optional
        As many as BLAS would use unless given, which honours ``OMP_NUM_THREADS``, threadpoolctl
        and the workers of joblib.

    Examples
    --------
    >>> import numpy as np
    >>> from heterofactor import HMF
    >>> from heterofactor.datasets import make_heterogeneous
    >>> data = make_heterogeneous(noise=0.1, random_state=0)
    >>> one, two = (HMF(3, 3, engine=engine, random_state=0).fit(data.sources)
    ...             for engine in ("serial", "threads"))
    >>> bool(np.allclose(one.shared_components_, two.shared_components_, atol=1e-10))
    True
    """

    def __init__(
        self, sources: Sequence[Source], local: Sequence[State], n_threads: int | None = None
    ) -> None:
        super().__init__(sources, local)
        available = n_threads or blas_threads()
        self.n_threads = min(available, len(self.sources))
        self._pool: ThreadPoolExecutor | None = None
        if self.n_threads > 1:
            # the thread that asks works as well
            self._pool = ThreadPoolExecutor(self.n_threads - 1)
        own = any(hasattr(source, "has_threads") for source in self.sources)
        self._limits_blas = self.n_threads > 1 or (own and available > 1)
        if self._limits_blas:
            ONE_BLAS_THREAD.enter(available // self.n_threads)

    def close(self) -> None:
        """End the threads, and give BLAS its own back."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        if self._limits_blas:
            ONE_BLAS_THREAD.leave()
            self._limits_blas = False

    def _map(self, call: Callable[[Source, State], Any]) -> Iterable[Any]:
        if self._pool is None:
            return super()._map(call)
        answers: list[Any] = [None] * len(self.sources)
        places = iter(range(len(self.sources)))  # whoever is free takes the next; next() is atomic

        def work() -> None:
            try:
                for place in places:
                    answers[place] = call(self.sources[place], self._local[place])
            except BaseException:
                deque(places, maxlen=0)  # nothing is left for the other threads
                raise

        others = [self._pool.submit(work) for _ in range(self.n_threads - 1)]
        work()
        for other in others:
            other.result()
        return answers


@cache
def _controller() -> Any:
    # looking for the loaded libraries takes longer than a round on small sources
    return ThreadpoolController()


class _OneBlasThread:
    """Limit BLAS to one thread while any engine lives, in whatever order they end."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self.each = 0  # how many threads a source may use; 0 while BLAS has its own

    def enter(self, each: int = 1) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = _controller().limit(limits=1)
                self.each = each
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()
                self.each = 0


ONE_BLAS_THREAD = _OneBlasThread()


def blas_threads() -> int:
    """Return how many threads BLAS would use now."""
    found = [lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas"]
    return max(found, default=1)


def threads_for_a_source() -> int:
    """Return how many threads the loops of one source may use now."""
    return ONE_BLAS_THREAD.each or blas_threads()
