"""Ratings: HMF beside the alternating least squares of others; writes ``results/ratings.md``.

``python benchmarks/ratings.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import against_als
from measure import describe_machine
from report import write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="how often each fit is timed")
    parser.add_argument("--only", nargs="+", metavar="TABLE", help="sweeps error growth")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()

    makers = {
        "sweeps": against_als.sweeps,
        "error": against_als.error,
        "growth": against_als.growth,
    }
    machine, tables = describe_machine(), []
    for name in options.only or makers:
        start = time.perf_counter()
        table = makers[name](options.repeats)
        print(f"{table.markdown()}\n({name}: {time.perf_counter() - start:.0f} s)\n", flush=True)
        tables.append(table)
    write(options.output, "ratings", "Ratings", machine, tables)


if __name__ == "__main__":  # the processes whose memory is measured import this file, too
    main()
