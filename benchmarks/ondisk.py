"""Sources larger than a limit of memory: peak, passes and time, beside reading alone.

``python benchmarks/ondisk.py --help`` lists the options. Writes ``results/ondisk.md``. Pieces are
made in a temporary folder and removed. What the system still holds of a file is dropped whenever
it is opened, for the fit and for reading alone, so that all passes read from the disk.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from measure import describe_machine
from memory import resident
from report import Bound, Table, write

from heterofactor import HMF
from heterofactor.memory import bytes_of
from heterofactor.metrics import subspace_error

N_SHARED, N_UNIQUE, NOISE = 2, 1, 0.3
BLOCK_BYTES = 2**24
# What must not be exceeded: the time of reading the data as often.
TIMES_READING = 1.5


@dataclass(frozen=True)
class Case:
    """A set of sources: how long its shared axis is, and what of them is on the disk.

    Every one of `pieces` files stands for `times` sources, each of which reads it by itself.
    """

    title: str
    n_features: int
    gigabytes: float
    pieces: int
    times: int = 1

    @property
    def n_samples(self) -> int:
        return int(self.gigabytes * 1e9 / 8 / self.n_features / self.pieces / self.times)


def make(case: Case, folder: Path) -> tuple[list[Path], np.ndarray]:
    """Write the pieces, and return them with the shared basis."""
    rng = np.random.default_rng(0)
    rank = N_SHARED + N_UNIQUE
    shared = rng.standard_normal((case.n_features, N_SHARED))
    paths = []
    for number in range(case.pieces):
        unique = rng.standard_normal((case.n_features, N_UNIQUE))
        basis = np.linalg.qr(np.hstack([shared, unique]))[0] * case.n_features**0.5
        centre = rng.standard_normal(case.n_features)
        path = folder / f"piece{number}.npy"
        table = np.lib.format.open_memmap(path, "w+", float, (case.n_samples, case.n_features))
        del table  # the header is there
        width = BLOCK_BYTES // 8 // case.n_features
        with path.open("r+b") as file:
            file.seek(128)
            for first in range(0, case.n_samples, width):
                count = min(width, case.n_samples - first)
                block = rng.standard_normal((count, case.n_features), dtype=np.float32) * NOISE
                block = block + rng.standard_normal((count, rank)) @ basis.T + centre
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        paths.append(path)
    return paths, np.linalg.qr(shared)[0]


def dropped(path: Path) -> Path:
    """Return a path of whose file the system holds nothing."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def read(paths: list[Path], passes: int, threads: int) -> None:
    """Read the files as often as that, and do nothing else."""

    def once(path: Path) -> None:
        buffer = bytearray(BLOCK_BYTES)
        with dropped(path).open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    with ThreadPoolExecutor(threads) as pool:
        for _ in range(passes):
            list(pool.map(once, paths))


def counters() -> dict[str, int]:
    """Return how many bytes this process has read so far: in all, and from the disk."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {"asked": int(lines["rchar"]), "disk": int(lines["read_bytes"])}


def fit(sender: Any, paths: list[Path], limit: str, basis: np.ndarray) -> None:
    """Fit in a new process, and send what it took."""
    HMF(1, 1).fit([np.random.default_rng(0).normal(size=(60, 20))] * 2)  # what is loaded late
    held, before = resident("VmRSS"), counters()
    start, cpu = time.perf_counter(), time.process_time()
    sources = {f"source{number}": partial(dropped, path) for number, path in enumerate(paths)}
    model = HMF(N_SHARED, N_UNIQUE, max_memory=limit, tol=1e-6, random_state=0).fit(sources)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    after = counters()
    sender.send(
        {
            "seconds": seconds,
            "cpu": cpu,
            "held": held,
            "peak": resident("VmHWM"),
            "rounds": model.n_rounds_,
            "error": subspace_error(model.shared_components_.T, basis),
            **{name: after[name] - before[name] for name in before},
        }
    )


@contextmanager
def pieces(case: Case, folder: Path | None) -> Iterator[tuple[list[Path], np.ndarray]]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        yield make(case, Path(name))


def fitted(paths: list[Path], limit: str, basis: np.ndarray) -> dict[str, Any]:
    """Fit in a process of its own, and return what it took."""
    receiver, sender = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=fit, args=(sender, paths, limit, basis))
    process.start()
    sender.close()
    try:
        found: dict[str, Any] = receiver.recv()
    finally:
        process.join()
    return found


def measured(
    case: Case, limit: str, folder: Path | None, threads: int, repeats: int
) -> dict[str, Any]:
    """Fit the sources of a case and read them as often, in turns."""
    with pieces(case, folder) as (paths, basis):
        sources = paths * case.times  # so that two threads do not read one piece at a time
        size = sum(path.stat().st_size for path in sources)
        fits, alone = [], []
        for _ in range(repeats):
            fits.append(fitted(sources, limit, basis))
            passes = fits[-1]["asked"] / size
            start = time.perf_counter()
            read(sources, round(passes), threads)
            alone.append(time.perf_counter() - start)
    best = min(fits, key=lambda found: float(found["seconds"]))
    above = max(found["peak"] - found["held"] for found in fits)
    return {
        "sources": f"{case.title}: {len(sources)} of {case.n_samples:,} × {case.n_features}",
        "size (GB)": size / 1e9,
        "most memory of the fit (GB)": Bound(above / 1e9, at_most=bytes_of(limit) / 1e9),
        "of the process (GB)": max(found["peak"] for found in fits) / 1e9,
        "passes": passes,
        "read (GB)": best["asked"] / 1e9,
        "from the disk (GB)": best["disk"] / 1e9,
        "rounds": best["rounds"],
        "seconds": best["seconds"],
        "CPU seconds": best["cpu"],
        "reading alone (s)": min(alone),
        "ratio": Bound(best["seconds"] / min(alone), at_most=TIMES_READING),
        "subspace error": float(best["error"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=4, help="of the pieces on the disk")
    parser.add_argument("--times", type=int, default=1, help="sources that read each piece")
    parser.add_argument("--limit", default="0.5GB", help="max_memory of the fits")
    parser.add_argument("--repeats", type=int, default=2, help="turns; the best of each counts")
    parser.add_argument("--only", type=int, help="the number of one case, from 0")
    parser.add_argument("--folder", type=Path, help="where the pieces are made for the time")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()

    whole = options.gigabytes * options.times
    cases = [
        Case("short shared axis, normal matrices kept", 300, whole, 8, options.times),
        Case("long shared axis, streamed each round", 2000, options.gigabytes, 8),
    ]
    cases = cases if options.only is None else [cases[options.only]]
    machine = describe_machine()
    threads = os.cpu_count() or 1
    note = (
        f"HMF of {N_SHARED} shared and {N_UNIQUE} unique components to a relative gradient of "
        "1e-6, every file in double precision. Where --times is over 1, a piece on the disk stands "
        "for so many sources, each of which reads it by itself. Reading alone is on "
        f"{threads} threads, into one buffer each. Passes are bytes asked of the system over the "
        "size of the sources."
    )
    title = "Sources larger than the memory that is allowed"
    rows = []
    for case in cases:
        rows.append(measured(case, options.limit, options.folder, threads, options.repeats))
        print(*(f"{name}: {value}" for name, value in rows[-1].items()), "", sep="\n", flush=True)
        write(options.output, "ondisk", title, machine, [Table("ondisk", title, note, rows)])


if __name__ == "__main__":  # the process whose memory is measured imports this file, too
    main()
