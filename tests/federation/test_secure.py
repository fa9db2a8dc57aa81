"""Masked federations: the answer of plain ones, whoever drops out, and no message to be read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from heterofactor import HMF, federation
from heterofactor.datasets import make_heterogeneous
from heterofactor.federation import InThreads, Quorum, Site, TooFewSites
from heterofactor.federation.messages import pack, unpack
from heterofactor.solvers import Averaging

# Sums are rounded to 2^-40 of the mean source's size, and to 2^-60 of an entry's with holes; at a
# relative gradient of 1e-7 a shared subspace is known to a few times that.
TOL, CLOSE = 1e-7, 1e-6


def tables(missing: float = 0.0) -> dict[str, Any]:
    data = make_heterogeneous(4, 30, 20, 2, 1, noise=0.1, random_state=0)
    rng = np.random.default_rng(0)
    return {
        name: np.where(rng.random(X.shape) < missing, np.nan, X) for name, X in data.sources.items()
    }


def sites(found: Mapping[str, Any], folder: Path, **settings: Any) -> list[Site]:
    return [Site(name, {name: X}, folder, **settings) for name, X in found.items()]


def projection(components: Any) -> Any:
    return components.T @ components


class Dropping:
    """A transport that loses replies of some kind, of some sites, from some round on."""

    def __init__(self, inner: Any, losses: Mapping[str, str], first: int, last: int) -> None:
        self.inner, self.losses, self.first, self.last = inner, losses, first, last
        self.names, self.seen = inner.names, []

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        replies = self.inner.send(messages, timeout)
        for name, data in messages.items():
            header, _ = unpack(data)
            if self.losses.get(name) != header["kind"]:
                continue
            number = header["round"] if header["kind"] == "step" else header["place"][0]
            if self.first <= number <= self.last:
                del replies[name]
        return replies

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("unit", [1.0, 1e4])
def test_the_answer_is_that_of_serial(missing: float, unit: float, tmp_path: Path) -> None:
    data = {name: unit * X for name, X in tables(missing).items()}
    with InThreads(sites(data, tmp_path)) as transport:
        found = federation.fit(HMF(2, 1, tol=TOL), transport, secure=True)
    assert found.converged
    expected = HMF(2, 1, tol=TOL).fit(data).shared_components_
    np.testing.assert_allclose(
        projection(found.shared_components), projection(expected), atol=CLOSE
    )


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize(
    "losses",
    [
        {"source1": "step"},
        {"source1": "unmask"},
        {"source1": "step", "source2": "step"},
        {"source1": "step", "source2": "unmask"},
    ],
    ids=["before", "after", "two before", "one before, one after"],
)
def test_sites_that_drop_out_change_nothing(
    losses: dict[str, str], missing: float, tmp_path: Path
) -> None:
    data = tables(missing)
    with InThreads(sites(data, tmp_path)) as inner:
        transport = Dropping(inner, losses, first=4, last=6)
        found = federation.fit(
            HMF(2, 1, tol=TOL), transport, quorum=Quorum(need=2, timeout=30), secure=True
        )
    assert found.converged
    assert {site for _, site, _ in found.left_out} == set(losses)
    expected = HMF(2, 1, tol=TOL).fit(data).shared_components_
    np.testing.assert_allclose(
        projection(found.shared_components), projection(expected), atol=CLOSE
    )


def test_a_site_that_is_gone_is_done_without(tmp_path: Path) -> None:
    data = tables()
    with InThreads(sites(data, tmp_path)) as inner:
        transport = Dropping(inner, {"source3": "step"}, first=1, last=10**6)
        found = federation.fit(
            HMF(2, 1, tol=TOL), transport, quorum=Quorum(need=3, timeout=30), secure=True
        )
        transport = Dropping(inner, {"source3": "step"}, first=1, last=10**6)
        with pytest.raises(TooFewSites, match=r"'source3'.*no answer"):
            federation.fit(HMF(2, 1, tol=TOL), transport, secure=True)
    del data["source3"]
    expected = HMF(2, 1, tol=TOL).fit(data).shared_components_
    np.testing.assert_allclose(
        projection(found.shared_components), projection(expected), atol=CLOSE
    )


def test_a_site_that_hides_answers_to_no_plain_question(tmp_path: Path) -> None:
    with InThreads(sites(tables(), tmp_path, hidden_among=3)) as transport:
        with pytest.raises(TooFewSites, match="ValueError"):
            federation.fit(HMF(2, 1, tol=TOL), transport)
        with pytest.raises(TooFewSites, match="ValueError"):
            federation.fit(HMF(2, 1, tol=TOL), transport, quorum=Quorum(need=2), secure=True)
        assert federation.fit(HMF(2, 1, tol=TOL), transport, secure=True).converged


def test_a_site_masks_no_two_messages_alike_and_tells_of_no_other_sum(tmp_path: Path) -> None:
    asked: list[bytes] = []

    class Recording(Dropping):
        def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
            asked.append(messages["source0"])
            return super().send(messages, timeout)

    def stop(number: int, value: float, shared: Any) -> None:
        raise KeyboardInterrupt

    data, found = tables(), sites(tables(), tmp_path)
    with InThreads(found) as inner, pytest.warns(UserWarning, match="not converged"):
        federation.fit(HMF(2, 1, tol=TOL), Recording(inner, {}, 1, 1), secure=True, watch=stop)
    steps = [m for m in asked if unpack(m)[0]["kind"] == "step"]
    told = [m for m in asked if unpack(m)[0]["kind"] == "unmask"]

    site = Site("source0", {"source0": data["source0"]}, tmp_path)
    refused = [unpack(site.answer(told[-1]))[0]["kind"]]  # it has sent nothing yet
    site.answer(pack({"kind": "key", "setup": unpack(steps[-1])[0]["setup"]}, {}))
    refused.append(unpack(site.answer(steps[-1]))[0]["kind"])  # its key is another one now
    assert refused == ["refused", "refused"]


def test_what_cannot_be_masked_is_refused(tmp_path: Path) -> None:
    with InThreads(sites(tables(), tmp_path)) as transport:
        with pytest.raises(ValueError, match="cannot be masked"):
            federation.fit(HMF(2, 1, solver="averaging"), transport, secure=True)
        with pytest.raises(ValueError, match="at least two"):
            federation.fit(HMF(2, 1, tol=TOL), transport, quorum=Quorum(need=1), secure=True)
        model = HMF(2, 1, solver=Averaging(2, step_size=1e-3), max_rounds=5)
        with pytest.warns(UserWarning, match="not converged"):
            assert len(federation.fit(model, transport, secure=True).history) == 5
