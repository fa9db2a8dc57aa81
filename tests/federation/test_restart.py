"""A server that is killed goes on from its checkpoint, with the sites as they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heterofactor import HMF, federation
from heterofactor.datasets import make_heterogeneous
from heterofactor.federation import InThreads, Site

# Two runs to a relative gradient of 1e-9; an angle is a few times what that leaves.
TOL, CLOSE = 1e-9, 1e-7


class Killed(BaseException):
    """What no part of the library catches."""


def tables(missing: float) -> dict[str, Any]:
    data = make_heterogeneous(4, 30, 20, 2, 1, noise=0.3, random_state=0)
    rng = np.random.default_rng(0)
    return {
        name: np.where(rng.random(X.shape) < missing, np.nan, X) for name, X in data.sources.items()
    }


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("together", [False, True], ids=["server alone", "with its sites"])
def test_a_server_that_is_killed_goes_on(
    missing: float, secure: bool, together: bool, tmp_path: Path
) -> None:
    if secure:
        pytest.importorskip("cryptography")
    data, model = tables(missing), HMF(2, 1, tol=TOL, random_state=0)
    options: dict[str, Any] = {"secure": secure, "checkpoint": tmp_path / "server.safetensors"}

    def kill(number: int, value: float, shared: Any) -> None:
        if number == 3:
            raise Killed

    def sites() -> list[Site]:
        return [Site(name, {name: X}, tmp_path) for name, X in data.items()]

    before = sites()
    with InThreads(before) as transport, pytest.raises(Killed):
        federation.fit(model, transport, watch=kill, **options)
    numbers: list[int] = []
    with InThreads(sites() if together else before) as transport:
        found = federation.fit(
            model, transport, watch=lambda number, value, shared: numbers.append(number), **options
        )
    expected = model.fit(data)
    assert numbers[0] == 4
    assert len(found.history) <= expected.n_rounds_ + 3
    assert not list(tmp_path.glob("*server*"))
    np.testing.assert_allclose(
        found.shared_components.T @ found.shared_components,
        expected.shared_components_.T @ expected.shared_components_,
        atol=CLOSE,
    )


class Anew:
    """A transport that starts every site anew for every message, as Flower does."""

    def __init__(self, data: Mapping[str, Any], folder: Path) -> None:
        self.names, self.data, self.folder = list(data), data, folder

    def send(self, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        return {
            name: Site(name, {name: self.data[name]}, self.folder).answer(data)
            for name, data in messages.items()
        }

    def close(self) -> None:
        """Hold nothing."""


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_all_that_a_site_knows_is_in_its_checkpoint(
    missing: float, secure: bool, tmp_path: Path
) -> None:
    if secure:
        pytest.importorskip("cryptography")
    data, model = tables(missing), HMF(2, 1, tol=TOL, random_state=0)
    found = federation.fit(model, Anew(data, tmp_path), secure=secure)
    expected = model.fit(data).shared_components_
    assert found.left_out == []
    np.testing.assert_allclose(
        found.shared_components.T @ found.shared_components, expected.T @ expected, atol=CLOSE
    )


def test_a_checkpoint_of_another_fit_is_refused(tmp_path: Path) -> None:
    data, path = tables(0.0), tmp_path / "server.safetensors"

    def kill(number: int, value: float, shared: Any) -> None:
        raise Killed

    with InThreads([Site(name, {name: X}, tmp_path) for name, X in data.items()]) as transport:
        with pytest.raises(Killed):
            federation.fit(HMF(2, 1), transport, checkpoint=path, watch=kill)
        with pytest.raises(ValueError, match="no checkpoint of this fit"):
            federation.fit(HMF(1, 1), transport, checkpoint=path)
        path.write_bytes(b"half of it")
        with pytest.raises(ValueError, match="damaged"):
            federation.fit(HMF(2, 1), transport, checkpoint=path)
