"""Federations: the answer of one machine, whoever is late, hostile, killed or back again."""

import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from heterofactor import HMF, federation
from heterofactor.datasets import make_heterogeneous
from heterofactor.federation import InProcesses, InThreads, Quorum, Site, TooFewSites
from heterofactor.federation.messages import pack, unpack
from heterofactor.files import load
from heterofactor.losses import Huber

TOL = 1e-11
# Sums over sites in place of stacks round otherwise; at convergence, both are as near to the answer
# as their tolerance says, times the conditioning of the problem.
CLOSE = 1e-10

SERVE = """
import sys
import numpy as np
from heterofactor.federation import Site, serve
name, table, folder = sys.argv[1:]
serve(Site(name, {name: np.load(table)}, folder))
"""


def tables(missing: float = 0.0, n_sources: int = 4) -> dict[str, Any]:
    data = make_heterogeneous(n_sources, 30, 20, 2, 1, noise=0.1, random_state=0)
    rng = np.random.default_rng(0)
    return {
        name: np.where(rng.random(X.shape) < missing, np.nan, X) for name, X in data.sources.items()
    }


def sites(found: Mapping[str, Any], folder: Path) -> list[Site]:
    return [Site(name, {name: X}, folder) for name, X in found.items()]


def projection(components: Any) -> Any:
    return components.T @ components


class Meddling:
    """A transport that changes what some sites answer to the steps of some rounds."""

    def __init__(self, inner: Any, meddle: Any, first: int = 1, last: int = 10**6) -> None:
        self.inner, self.meddle, self.first, self.last = inner, meddle, first, last
        self.names = inner.names

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        replies = self.inner.send(messages, timeout)
        for name, data in list(replies.items()):
            header, arrays = unpack(data)
            if header["kind"] == "step" and self.first <= header["round"] <= self.last:
                changed = self.meddle(name, arrays)
                if changed is None:
                    del replies[name]
                else:
                    replies[name] = pack(header, changed)
        return replies

    def close(self) -> None:
        self.inner.close()


def only(victim: str, change: Any) -> Any:
    """Meddle with one site alone."""
    return lambda name, arrays: change(arrays) if name == victim else arrays


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_answer_is_that_of_serial(missing: float, tmp_path: Path) -> None:
    data = tables(missing)
    model = HMF(2, 1, tol=TOL, engine="serial", random_state=0)
    with InThreads(sites(data, tmp_path)) as transport:
        found = federation.fit(model, transport)
    expected = HMF(2, 1, tol=TOL, engine="serial", random_state=0).fit(data)
    assert found.converged
    np.testing.assert_allclose(
        projection(found.shared_components), projection(expected.shared_components_), atol=CLOSE
    )
    for name, X in data.items():
        own = load(tmp_path / f"{name}.safetensors")
        np.testing.assert_allclose(
            own.reconstruct(name, part="unique"),
            expected.reconstruct(name, part="unique"),
            atol=100 * CLOSE,
        )
        np.testing.assert_allclose(
            own.transform(X, sources=name), expected.transform(X, sources=name), atol=100 * CLOSE
        )
        assert own.source_names_ == [name]


@pytest.mark.parametrize(
    "model",
    [
        HMF(2, 1, solver="averaging", tol=1e-7, max_rounds=3000),
        HMF(2, 1, loss="huber", tol=1e-9),
        HMF(2, 1, loss=Huber(0.3), tol=1e-9),
        HMF(2, 1, ridge=0.1, tol=1e-9),
        HMF(2, 1, scale="source", tol=1e-9),
        HMF(2, {"source0": 2, "source1": 1, "source2": 0, "source3": 1}, tol=1e-9),
        HMF(0, 1),
    ],
    ids=["averaging", "open", "huber", "ridge", "scaled", "ranks", "nothing shared"],
)
def test_every_kind_of_fit_goes_by_messages(model: HMF, tmp_path: Path) -> None:
    model.set_params(random_state=0)
    data = tables()
    with InThreads(sites(data, tmp_path)) as transport:
        found = federation.fit(model, transport)
    expected = HMF(**model.get_params()).fit(data)
    assert found.converged
    # two runs to a tolerance of at most 1e-7, and an angle is a few times what it leaves
    np.testing.assert_allclose(
        projection(found.shared_components), projection(expected.shared_components_), atol=1e-5
    )


def test_a_site_may_have_several_sources(tmp_path: Path) -> None:
    data = tables()
    names = list(data)
    pairs = [
        Site(f"site{k}", {name: data[name] for name in names[k::2]}, tmp_path) for k in range(2)
    ]
    with InThreads(pairs) as transport:
        found = federation.fit(HMF(2, 1, tol=TOL), transport)
    expected = HMF(2, 1, tol=TOL).fit(data).shared_components_
    np.testing.assert_allclose(
        projection(found.shared_components), projection(expected), atol=CLOSE
    )
    assert load(tmp_path / "site1.safetensors").source_names_ == names[1::2]


FAULTS = {
    "nan": (lambda arrays: {k: v * np.nan for k, v in arrays.items()}, "not finite"),
    "shape": (lambda arrays: {k: np.zeros((3, 3, 3)) for k in arrays}, "has shape"),
    "names": (lambda arrays: {"rows": np.zeros(3)}, "it sent ['rows']"),
    "dtype": (lambda arrays: {k: v.astype("f4") for k, v in arrays.items()}, "dtype float32"),
    "scaled": (lambda arrays: {k: v * 1e6 for k, v in arrays.items()}, "the norm of its"),
    "late": (lambda arrays: None, "no answer within"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_site_that_is_hostile_throughout_is_left_out(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change, reason = FAULTS[kind]
    data = tables()
    with (
        InThreads(sites(data, tmp_path)) as inner,
        caplog.at_level(logging.WARNING, logger="heterofactor.federation"),
    ):
        transport = Meddling(inner, only("source1", change))
        found = federation.fit(
            HMF(2, 1, tol=TOL), transport, quorum=Quorum(need=3, timeout=30, clip=100.0)
        )
    rest = {name: X for name, X in data.items() if name != "source1"}
    expected = HMF(2, 1, tol=TOL).fit(rest).shared_components_
    np.testing.assert_allclose(
        projection(found.shared_components), projection(expected), atol=CLOSE
    )
    assert {site for _, site, _ in found.left_out} == {"source1"}
    assert all(reason in why for _, _, why in found.left_out)
    assert any("'source1' is left out of round" in message for message in caplog.messages)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_site_that_misses_some_rounds_changes_nothing(missing: float, tmp_path: Path) -> None:
    data = tables(missing)
    model = HMF(2, 1, tol=TOL)
    with InThreads(sites(data, tmp_path)) as inner:
        transport = Meddling(inner, only("source1", lambda arrays: None), first=4, last=6)
        found = federation.fit(model, transport, quorum=Quorum(need=3, timeout=30))
    expected = model.fit(data).shared_components_
    assert len(found.left_out) == 3
    np.testing.assert_allclose(
        projection(found.shared_components), projection(expected), atol=CLOSE
    )


def test_below_the_quorum_the_error_says_who_and_why(tmp_path: Path) -> None:
    with InThreads(sites(tables(), tmp_path)) as inner:
        transport = Meddling(inner, only("source2", FAULTS["nan"][0]))
        with pytest.raises(TooFewSites, match=r"3 of 4.*need=4.*'source2'.*not finite"):
            federation.fit(HMF(2, 1), transport)


def test_a_site_with_other_features_is_left_out(tmp_path: Path) -> None:
    columns = [f"f{k}" for k in range(20)]
    data = {name: pd.DataFrame(X[:, :20], columns=columns) for name, X in tables().items()}
    other = data | {"source0": data["source0"][columns[::-1]]}
    with InThreads(sites(other, tmp_path)) as transport:
        with pytest.raises(TooFewSites, match=r"'source0'.*other names"):
            federation.fit(HMF(2, 1), transport)
        found = federation.fit(HMF(2, 1, tol=TOL), transport, quorum=Quorum(need=3))
    assert found.sites == ["source1", "source2", "source3"]
    short = data | {"source0": data["source0"][columns[:7]]}
    with (
        InThreads(sites(short, tmp_path)) as transport,
        pytest.raises(TooFewSites, match=r"'source0': it has 7 features.*expected 20"),
    ):
        federation.fit(HMF(2, 1), transport)


def test_an_error_at_a_site_tells_the_server_nothing_of_the_data(tmp_path: Path) -> None:
    data = {"north": np.array([[0.0, 1.0], [77.125, 1.0]]), "south": np.eye(2)}
    with (
        InThreads(sites(data, tmp_path)) as transport,
        pytest.raises(TooFewSites, match=r"'north'.*ValueError, see the log") as caught,
    ):
        federation.fit(HMF(1, 0, loss="logistic"), transport)
    assert "77" not in str(caught.value)


def test_what_needs_more_than_sums_is_refused(tmp_path: Path) -> None:
    with InThreads(sites(tables(), tmp_path)) as transport:
        for settings in ({"n_restarts": 1}, {"shared_axis": "samples"}, {"centre": "global"}):
            with pytest.raises(ValueError, match=r"a federation cannot do|needs features"):
                federation.fit(HMF(2, 1, **settings), transport)
        with pytest.raises(ValueError, match="have no order"):
            federation.fit(HMF(2, [1, 1, 1, 1]), transport)
        with pytest.raises(ValueError, match="need is 9, but there are 4 sites"):
            federation.fit(HMF(2, 1), transport, quorum=Quorum(need=9))


def in_processes(data: Mapping[str, Any], folder: Path) -> InProcesses:
    commands = {}
    for name, X in data.items():
        np.save(folder / f"{name}.npy", X)
        program = [sys.executable, "-c", SERVE]
        commands[name] = [*program, name, str(folder / f"{name}.npy"), str(folder)]
    return InProcesses(commands)


def kill(transport: InProcesses, name: str) -> None:
    os.kill(transport.processes[name].pid, signal.SIGKILL)
    transport.processes[name].wait()


def test_a_process_that_is_killed_is_done_without(tmp_path: Path) -> None:
    data = tables(n_sources=3)
    with in_processes(data, tmp_path) as transport:

        def watch(number: int, value: float, shared: Any) -> None:
            if number == 2:
                kill(transport, "source1")

        found = federation.fit(HMF(2, 1, tol=TOL), transport, quorum=Quorum(need=2), watch=watch)
        assert found.sites == ["source0", "source2"]
        with pytest.raises(TooFewSites, match="'source1'"):
            federation.fit(HMF(2, 1), transport)
    rest = {name: X for name, X in data.items() if name != "source1"}
    expected = HMF(2, 1, tol=TOL).fit(rest).shared_components_
    np.testing.assert_allclose(
        projection(found.shared_components), projection(expected), atol=CLOSE
    )


def test_a_process_that_comes_back_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    data = tables(0.3, n_sources=3)
    model = HMF(2, 1, tol=TOL)
    with in_processes(data, tmp_path) as transport:

        def watch(number: int, value: float, shared: Any) -> None:
            if number == 5:
                kill(transport, "source1")
                _, kept = unpack((tmp_path / "source1.checkpoint.safetensors").read_bytes())
                assert {"0/unique", "0/scores"} <= kept.keys()
                transport.start("source1")

        found = federation.fit(model, transport, watch=watch)
    expected = model.fit(data)
    assert found.left_out == []
    assert found.sites == list(data)
    # the same point is gone on from: only what is mixed with it may be remembered otherwise
    assert abs(len(found.history) - expected.n_rounds_) <= 3
    np.testing.assert_allclose(
        projection(found.shared_components), projection(expected.shared_components_), atol=CLOSE
    )
    assert not list(tmp_path.glob("*.checkpoint.*"))


def test_a_message_that_is_sent_again_is_answered_alike(tmp_path: Path) -> None:
    class Twice(Meddling):
        def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
            first = self.inner.send(messages, timeout)
            again = self.inner.send(messages, timeout)
            assert again == first
            return first

    with InThreads(sites(tables(), tmp_path)) as inner:
        assert federation.fit(HMF(2, 1), Twice(inner, None)).converged


def test_those_that_are_missing_are_asked_again(tmp_path: Path) -> None:
    sent: list[bytes] = []

    class Forgetful(Meddling):
        def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
            replies = self.inner.send(messages, timeout)
            if messages["source1"] not in sent:
                sent.append(messages["source1"])
                del replies["source1"]
            return replies

    data = tables()
    with InThreads(sites(data, tmp_path)) as inner:
        transport = Forgetful(inner, None)
        found = federation.fit(HMF(2, 1), transport, quorum=Quorum(need=4, retries=1))
    assert found.converged
    assert {what.split()[0] for what, _, _ in found.left_out} == {"the"}  # no round


def test_quorums_that_cannot_be_meant_are_refused() -> None:
    for wrong in ({"need": 0}, {"timeout": -1}, {"clip": 0}, {"retries": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            replace(Quorum(), **wrong)


def test_bytes_that_are_no_message_are_refused(tmp_path: Path) -> None:
    site = Site("north", np.eye(3), tmp_path)
    for data in (b"", b"hello", pack({"kind": "shell"}, {}), pack({"kind": "step"}, {})):
        assert unpack(site.answer(data))[0]["kind"] == "refused"
