"""Speed and memory of HMF beside PCA and beside other methods; writes ``results/speed.md``.

``python benchmarks/speed.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import against_pca
import against_peers
from measure import describe_machine
from report import Table, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="how often each fit is timed")
    parser.add_argument(
        "--published", type=Path, metavar="PATH", help="a copy of github.com/UMDataScienceLab/hmf"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="TABLE", help="few many memory paper text noise"
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()

    makers: dict[str, Callable[[], Table]] = {
        "few": lambda: against_pca.few_sources(options.repeats),
        "many": lambda: against_pca.many_sources(options.repeats),
        "memory": against_pca.memory,
        "paper": lambda: against_peers.paper_setting(options.repeats, options.published),
        "text": lambda: against_peers.paper_setting(options.repeats, None, "gaussian"),
        "noise": lambda: against_peers.with_noise(options.repeats),
    }
    machine, tables = describe_machine(), []
    for name in options.only or makers:
        start = time.perf_counter()
        table = makers[name]()
        print(f"{table.markdown()}\n({name}: {time.perf_counter() - start:.0f} s)\n", flush=True)
        tables.append(table)
    write(options.output, "speed", "Speed and memory", machine, tables)


if __name__ == "__main__":  # the processes whose memory is measured import this file, too
    main()
