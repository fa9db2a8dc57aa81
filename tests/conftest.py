"""What all tests share: options, seeds, reference data, the folder of real data."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from reference import Linear, linear

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("HETEROFACTOR_DATA") or ROOT.parent / "shared" / "data")
NO_DATA = f"needs the real data sets: no folder {DATA} (set HETEROFACTOR_DATA to choose another)"

# No deadline and no complaint about slow draws: compiling a kernel or a busy machine is no failure.
# CI draws the same examples each time, so that it fails only for what a change did.
settings.register_profile(
    "heterofactor",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("heterofactor")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "slow" in item.keywords and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: runs with --slow only"))
        if "real" in item.keywords and not DATA.is_dir():
            item.add_marker(pytest.mark.skip(reason=NO_DATA))


@pytest.fixture(params=range(3), ids="seed{}".format)
def seed(request: pytest.FixtureRequest) -> int:
    """Run the test once for each of several seeds."""
    return request.param


@pytest.fixture
def reference() -> Linear:
    """Make the reference data anew; reference.py says what their best fit is."""
    return linear()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of the real data sets; skip the test where there is none."""
    if not DATA.is_dir():
        pytest.skip(NO_DATA)
    return DATA
