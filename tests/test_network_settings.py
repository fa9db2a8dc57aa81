"""Settings that cannot be, and networks that do not answer as they must, are refused."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from heterofactor import HAE  # noqa: E402

FAST: dict[str, Any] = {"n_scores": 8, "hidden": (12,), "max_rounds": 10, "random_state": 0}


def tables() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(20, 12)) for name in ("north", "south")}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"n_scores": 0}, "n_scores is 0: expected an integer of at least 1"),
        ({"n_scores": 4, "n_folds": 2}, "n_folds is 2: expected a divisor of n_scores=4"),
        ({"solver": "adam"}, "solver is 'adam': expected one of 'joint', 'averaging'"),
        ({"engine": "dusk"}, "engine is 'dusk': expected one of 'serial', 'threads'"),
        ({"kernel": "wide"}, "kernel is 'wide'"),
        ({"validation": 1}, "validation is 1"),
        ({"ridge": -1.0}, "ridge is -1.0"),
        ({"ridge": (1.0, 2.0, 3.0)}, "ridge is .*expected a number from zero on, or two"),
        ({"ridge": "large"}, "ridge is 'large'"),
        ({"ridge_kernel": -1.0}, "ridge_kernel is -1.0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0: expected a positive number"),
        ({"loss": "hinge"}, "loss is 'hinge'"),
        ({"hidden": 64}, r"hidden is 64: expected the units of each hidden layer"),
        ({"hidden": (64, 0)}, r"hidden is \(64, 0\)"),
        ({"batch_size": 0}, "batch_size is 0: expected an integer of at least 1, or None"),
        ({"n_local_steps": 0}, "n_local_steps is 0"),
        ({"device": "abacus"}, "device is 'abacus', where torch cannot compute here"),
        ({"device": "meta"}, "device is 'meta', where torch cannot compute here"),
    ],
)
def test_wrong_settings_are_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HAE(**changed).fit(tables())


@pytest.mark.parametrize("changed", [{"engine": 3}, {"loss": 3}])
def test_objects_that_are_none_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(changed))} is 3"):
        HAE(**changed).fit(tables())


SAME = torch.nn.Linear(12, 8)


class Answering(torch.nn.Module):
    """A network that answers what a function says."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"encoder": lambda n_in, n_out: torch.nn.Linear(n_in, n_out + 1)},
            r"encoder\(12, 8\) returned makes an output of shape \(2, 9\) .* expected \(2, 8\)",
        ),
        (
            {"decoder": lambda n_in, n_out: torch.nn.Linear(n_in, n_in)},
            r"decoder\(8, 12\) returned makes an output of shape \(2, 8\) .* expected \(2, 12\)",
        ),
        (
            {"encoder": lambda n_in, n_out: torch.nn.Linear(n_out, n_in)},
            r"encoder\(12, 8\) returned fails on two samples of 12 numbers each",
        ),
        (
            {"decoder": lambda n_in, n_out: Answering(lambda x: (x @ torch.ones(8, 12)).log())},
            r"decoder\(8, 12\) returned makes numbers that are not finite",
        ),
        (
            {"encoder": lambda n_in, n_out: Answering(lambda x: [x])},
            "makes list, expected a tensor",
        ),
        (
            {"encoder": lambda n_in, n_out: SAME},
            "encoder returned the same network more than once",
        ),
    ],
)
def test_networks_that_answer_otherwise_are_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HAE(**FAST, **changed).fit(tables())


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(TypeError, match=r"returned Tensor: expected .* torch\.nn\.Module"):
        HAE(**FAST, encoder=lambda n_in, n_out: torch.ones(n_in, n_out)).fit(tables())


@pytest.mark.parametrize("solver", ["joint", "averaging"])
def test_numbers_that_are_not_finite_in_training_are_refused(solver: str) -> None:
    def decoder(n_in: int, n_out: int) -> Any:
        """Answer well for two samples, and not for more."""
        bad = Answering(lambda x: x * (1.0 if len(x) < 3 else float("nan")))
        return torch.nn.Sequential(torch.nn.Linear(n_in, n_out), bad)

    with pytest.raises(ValueError, match=r"ran away: .* nan in round 1.* networks of your own"):
        HAE(**FAST, decoder=decoder, solver=solver).fit(tables())
