"""Every loss keeps the contract of losses."""

import pytest

from heterofactor.checks import check_loss
from heterofactor.checks.source import LogCosh
from heterofactor.losses import LOSSES, at_noise

# What can be observed under losses that do not take any number.
OBSERVED: dict[str, list[float]] = {"logistic": [0, 1], "poisson": [0, 1, 2, 7]}


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name: str) -> None:
    check_loss(at_noise(LOSSES[name](), 1.0), observed=OBSERVED.get(name))


def test_the_loss_on_which_sources_are_checked() -> None:
    check_loss(LogCosh())
