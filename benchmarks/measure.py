"""How time and memory are measured, and on which machine.

Contestants take turns, so that a busy minute of the machine slows all of them alike. Memory is
the high-water mark of a fresh process above what it held once the data were there: the data are
loaded from a file, because making them would raise the mark.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import sklearn.decomposition  # noqa: F401  loads the BLAS and OpenMP that threadpoolctl reports
from memory import resident
from report import Seconds
from threadpoolctl import threadpool_info

LIBRARIES = (
    "heterofactor",
    "numpy",
    "scipy",
    "scikit-learn",
    "tensorly",
    "torch",
    "implicit",
    "cmfrec",
)
THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Timing:
    """How long the repeats took, and what the last one returned."""

    seconds: Seconds
    answer: Any

    @property
    def best(self) -> float:
        return self.seconds.best


def race(contestants: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """Time every contestant `repeats` times, in turns, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    answers: dict[str, Any] = {}
    for _ in range(1 + repeats):
        for name, run in contestants.items():
            answers[name] = None  # its memory is free before it runs again
            start = time.perf_counter()
            answers[name] = run()
            seconds[name].append(time.perf_counter() - start)
    return {
        name: Timing(Seconds(min(taken[1:]), statistics.median(taken[1:])), answers[name])
        for name, taken in seconds.items()
    }


def peak_memory(
    load: Callable[[], Any], warm_up: Callable[[], Any], use: Callable[[Any], Any]
) -> int:
    """Return the bytes that ``use(load())`` needs at most above what `load` left, in a new process.

    Parameters
    ----------
    load, warm_up, use : callable
        Must be picklable. `load` must not need more than what it returns; `warm_up` makes libraries
        take what they keep for good, such as the buffers of BLAS, before anything is counted.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure_peak, args=(sender, load, warm_up, use))
    process.start()
    sender.close()
    try:
        return int(receiver.recv())
    except EOFError as error:
        raise RuntimeError("The process whose memory is measured has died.") from error
    finally:
        process.join()


def _measure_peak(
    sender: Connection,
    load: Callable[[], Any],
    warm_up: Callable[[], Any],
    use: Callable[[Any], Any],
) -> None:
    warm_up()
    data = load()
    before = resident("VmRSS")
    answer = use(data)
    sender.send(resident("VmHWM") - before)
    del answer


def describe_machine() -> dict[str, str]:
    """Say on what, with what and when the measurements were made."""
    pools = [
        f"{pool['internal_api']} {pool['version'] or ''} ({pool['num_threads']} threads)"
        for pool in threadpool_info()
    ]
    # where things lie on this machine is nobody's business
    words = [f"…/{Path(word).name}" if Path(word).is_absolute() else word for word in sys.argv]
    settings = [f"{name}={os.environ[name]}" for name in THREAD_SETTINGS if name in os.environ]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["python", *words]),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {_version(name)}" for name in LIBRARIES),
        "BLAS and OpenMP": ", ".join(dict.fromkeys(pools)),
        "thread settings": ", ".join(settings) or "none: the libraries' defaults",
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
