"""Every byte that leaves a site: the documented sums, and nothing in which a row can be found."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from heterofactor import HMF, federation
from heterofactor.datasets import make_heterogeneous
from heterofactor.federation import InThreads, Site
from heterofactor.federation.messages import unpack
from heterofactor.files import load
from heterofactor.metrics import subspace_error

N1, R1, R2, N_SITES = 30, 2, 1, 4
NUMBER: tuple[int, ...] = ()
# The table in the docstring of `heterofactor.federation`.
SOLVING = {"gradient": (N1, R1), "curvature": (R1, R1)} | dict.fromkeys(
    ("value", "sources", "unsettled"), NUMBER
)
START = {"projection": (N1, R1 + R2 + 2), "sources": NUMBER, "columns": NUMBER}
LINES = {"schur": (N1, R1, R1), "right": (N1, R1), "tension": (R1, R1)} | dict.fromkeys(
    ("value", "scale", "size", "stiffness", "unsettled"), NUMBER
)
DOCUMENTED: dict[str, Mapping[str, tuple[int, ...]]] = {
    "Measuring": dict.fromkeys(("energy", "entries", "sources", "variance"), NUMBER),
    "Spectral": START,
    "OnGuess": START,
    "OnSketch": SOLVING,
    "Grassmann": SOLVING,
    "Alternating": LINES,
    "Averaging": {"basis": (N1, R1), "slope": (N1, R1)}
    | dict.fromkeys(("count", "value", "own", "scale"), NUMBER),
    "Scoring": {"covariance": (R1, R1)},
    "ScoringObserved": {"covariance": (R1, R1)},
}
HEADERS = {
    "described": {"kind", "n_features", "features", "dtype", "sources", "complete", "sparse"},
    "begun": {"kind"},
    "step": {"kind", "round"},
    "done": {"kind"},
    "key": {"kind", "public"},
    "unmasked": {"kind"},
}
OVERHEAD = 1000


class Recording:
    """A transport that keeps every question and every byte of the answers."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.names = inner, inner.names
        self.kept: list[tuple[str, dict[str, Any], bytes]] = []

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        replies: dict[str, bytes] = self.inner.send(messages, timeout)
        for name, data in replies.items():
            self.kept.append((name, unpack(messages[name])[0], data))
        return replies

    def close(self) -> None:
        self.inner.close()


def tables(missing: float) -> dict[str, Any]:
    data = make_heterogeneous(N_SITES, 50, N1, R1, R2, noise=0.1, random_state=0)
    rng = np.random.default_rng(0)
    return {
        name: np.where(rng.random(X.shape) < missing, np.nan, X) for name, X in data.sources.items()
    }


def recorded(
    folder: Path, model: HMF, missing: float = 0.0, *, secure: bool = False
) -> tuple[dict[str, Any], Recording]:
    data = tables(missing)
    assert next(iter(data.values())).shape[1] == N1
    with InThreads([Site(name, {name: X}, folder) for name, X in data.items()]) as inner:
        transport = Recording(inner)
        assert federation.fit(model, transport, secure=secure).converged
    return data, transport


KINDS = [
    pytest.param(HMF(R1, R2), 0.0, id="complete"),
    pytest.param(HMF(R1, R2, tol=1e-7), 0.3, id="holes"),
    pytest.param(HMF(R1, R2, solver="averaging", tol=1e-4, max_rounds=3000), 0.0, id="paper"),
]


@pytest.mark.parametrize(("model", "missing"), KINDS)
def test_only_the_documented_sums_leave(model: HMF, missing: float, tmp_path: Path) -> None:
    _, transport = recorded(tmp_path, model, missing)
    assert len(transport.kept) > 10 * N_SITES
    for _, asked, data in transport.kept:
        header, arrays = unpack(data)
        assert header.keys() == HEADERS[header["kind"]]
        found = {name: value.shape for name, value in arrays.items()}
        if header["kind"] == "step":
            (stage,) = asked["stage"]
            assert found == DOCUMENTED[stage]
            payload = sum(8 * int(np.prod(shape)) for shape in found.values())
            assert len(data) <= payload + OVERHEAD
        else:
            assert found == {}
            assert len(data) <= OVERHEAD


def test_a_round_of_the_default_solver_takes_no_more_bytes_than_promised(tmp_path: Path) -> None:
    _, transport = recorded(tmp_path, HMF(R1, R2))
    sizes = [
        len(data) for _, asked, data in transport.kept if "Grassmann" in asked.get("stage", {})
    ]
    assert max(sizes) <= 8 * (N1 * R1 + R1**2) + OVERHEAD


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(("model", "missing"), KINDS[:2])
def test_no_row_of_the_data_and_no_score_is_among_the_bytes(
    model: HMF, missing: float, secure: bool, tmp_path: Path
) -> None:
    if secure:
        pytest.importorskip("cryptography")
    data, transport = recorded(tmp_path, model, missing, secure=secure)
    for name, X in data.items():
        sent = [reply for site, _, reply in transport.kept if site == name]
        own = load(tmp_path / f"{name}.safetensors")
        private = [X, X - np.nanmean(X, axis=0), own.transform(X, sources=name)]
        private += [own.factors_.unique_bases[name], own.factors_.unique_scores[name]]
        values = np.concatenate([np.ravel(part) for part in private])
        values = values[np.isfinite(values) & (values != 0)]
        kept = np.concatenate([values, -values])
        # a number could stand at any byte of a message
        for reply in sent:
            for first in range(8):
                window = reply[first : first + (len(reply) - first) // 8 * 8]
                assert not np.isin(np.frombuffer(window, "<f8"), kept).any()
            arrays = unpack(reply)[1]
            columns = [a for a in arrays.values() if a.ndim == 2 and len(a) == N1]
            filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
            for column in np.hstack(columns).T if columns else ():
                rows = np.vstack([filled, filled - filled.mean(axis=0)])
                cosines = rows @ column / np.linalg.norm(rows, axis=1) / np.linalg.norm(column)
                # no row, in any scale; rows are near a space of three dimensions, in which some
                # direction is always rather near to one of fifty
                assert np.abs(cosines).max() < 1 - 1e-5


def test_unless_masked_a_curious_server_finds_the_leading_directions_of_a_site(
    tmp_path: Path,
) -> None:
    data, transport = recorded(tmp_path, HMF(R1, R2))
    (reply,) = [
        data
        for site, asked, data in transport.kept
        if (site, asked["kind"]) == ("source1", "step") and "Spectral" in asked["stage"]
    ][:1]
    learned = np.linalg.svd(unpack(reply)[1]["projection"])[0][:, : R1 + R2]
    X = data["source1"] - data["source1"].mean(axis=0)
    true = np.linalg.svd(X.T)[0][:, : R1 + R2]
    assert subspace_error(learned, true) < 1e-2  # as precisely as sketches are found


def test_masked_messages_are_noise(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    _, transport = recorded(tmp_path, HMF(R1, R2), secure=True)
    sent = [
        unpack(data)[1]
        for site, asked, data in transport.kept
        if site == "source1" and asked["kind"] == "step"
    ]
    assert all(arrays.keys() == {"masked", "shares"} for arrays in sent)
    noise = np.concatenate([arrays["masked"] for arrays in sent]).view(np.uint8)
    counts = np.bincount(noise, minlength=256)
    expected = noise.size / 256
    statistic = float(((counts - expected) ** 2 / expected).sum())
    # once in a hundred thousand draws of true noise it is beyond these
    assert chi2.ppf(5e-6, 255) < statistic < chi2.isf(5e-6, 255)
