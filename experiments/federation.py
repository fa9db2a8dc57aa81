"""What a federation costs: rounds, and bytes that leave a site, of the default and of Algorithm 1.

    OMP_NUM_THREADS=1 python experiments/federation.py

20 sites of 100 features x 60 samples, ranks 3 + 3, noise of a tenth, singular values alike or
spread 10x, and with 30 % missing; to a relative gradient of 1e-6, or for 300 rounds. Every byte
that goes up is counted. Writes ``results/federation.csv`` and ``.md``.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from record import RESULTS, markdown, page

from heterofactor import HMF, federation
from heterofactor.datasets import make_heterogeneous
from heterofactor.federation import InThreads, Site
from heterofactor.federation.messages import unpack

SITES, N1, N2, RANK, TOL = 20, 100, 60, 3, 1e-6
PROMISED = 8 * (N1 * RANK + RANK**2) + 1000
METHODS = {
    "default": ("auto", False),
    "default, masked": ("auto", True),
    "Algorithm 1": ("averaging", False),
}
CASES = {"alike": (1.0, 0.0), "spread 10x": (10.0, 0.0), "30 % missing": (1.0, 0.3)}
MAX_ROUNDS = 300


class Counting:
    """A transport that counts the bytes of one site's answers."""

    def __init__(self, inner: Any, site: str) -> None:
        self.inner, self.site, self.names = inner, site, inner.names
        self.exchanges, self.up = 0, 0
        self.steps: list[tuple[str, int]] = []

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        replies: dict[str, bytes] = self.inner.send(messages, timeout)
        header, size = unpack(messages[self.site])[0], len(replies[self.site])
        self.exchanges, self.up = self.exchanges + 1, self.up + size
        if header["kind"] == "step":
            self.steps.append((next(iter(header["stage"])), size))
        return replies

    def close(self) -> None:
        self.inner.close()


def measured(case: str, method: str) -> dict[str, Any]:
    """Fit once; return what it took, and how far it is from the fit on one machine."""
    (spread, missing), (solver, secure) = CASES[case], METHODS[method]
    data = make_heterogeneous(
        SITES, N2, N1, RANK, RANK, noise=0.1, spread=spread, random_state=0
    ).sources
    rng = np.random.default_rng(0)
    tables = {k: np.where(rng.random(X.shape) < missing, np.nan, X) for k, X in data.items()}
    model = HMF(RANK, RANK, solver=solver, tol=TOL, max_rounds=MAX_ROUNDS, random_state=0)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it has not converged, the table says so
        sites = [Site(name, {name: X}, folder) for name, X in tables.items()]
        with InThreads(sites) as inner:
            transport = Counting(inner, "source0")
            found = federation.fit(model, transport, secure=secure)
    best = HMF(RANK, RANK, tol=1e-10, random_state=0).fit(tables).shared_components_
    shared = found.shared_components
    names = {"Grassmann", "Alternating", "Averaging"}
    return {
        "case": case,
        "method": method,
        "converged": found.converged,
        "rounds of the solver": len(found.history),
        "rounds in all": found.n_rounds,
        "exchanges": transport.exchanges,
        "largest message of the solver": max(
            size for stage, size in transport.steps if stage in names
        ),
        "bytes up in all": transport.up,
        "off by": float(np.abs(shared.T @ shared - best.T @ best).max()),
    }


def main() -> None:
    """Measure all, and write the table."""
    rows = []
    for case in CASES:
        for method in METHODS:
            rows.append(measured(case, method))
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(RESULTS / "federation.csv", index=False)
    shown = table.assign(**{"off by": [f"{value:.0e}" for value in table["off by"]]})
    text = page(
        "What a federation costs",
        f"{SITES} sites of {N1} features x {N2} samples, ranks {RANK} + {RANK}, noise of a tenth, "
        f"to a relative gradient of {TOL:.0e} or for {MAX_ROUNDS} rounds. Bytes are "
        "those that leave one site. With complete tables, a message of the default holds "
        "8 (n1 r1 + r1^2) bytes and at most 1000 more, "
        f"here {PROMISED}; the others send a matrix or two of n1 x r1 more, or, where entries are "
        "missing, n1 matrices of r1 x r1. *Off by* is the largest entry of the difference of the "
        "projections on the shared subspace, found and best.",
        markdown(shown),
    )
    (RESULTS / "federation.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
