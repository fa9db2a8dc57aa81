"""Every model of shared and unique parts keeps their contract."""

import importlib
import importlib.util
from typing import Any

import pytest

from heterofactor import HMF
from heterofactor.checks import check_model
from heterofactor.engines import ENGINES
from heterofactor.model import SharedUniqueModel
from heterofactor.solvers import SOLVERS

# Enough for Algorithm 1 to finish; its answers are compared to its tolerance.
PATIENT = {"max_rounds": 20_000, "tol": 1e-6}


def models() -> dict[str, type[SharedUniqueModel]]:
    """Find all models of the library, those of the folder of methods included."""
    if importlib.util.find_spec("heterofactor.methods"):
        importlib.import_module("heterofactor.methods")
    found: dict[str, type[SharedUniqueModel]] = {}
    left = [SharedUniqueModel]
    while left:
        kinds = left.pop().__subclasses__()
        left += kinds
        found |= {
            kind.__name__: kind for kind in kinds if kind.__module__.startswith("heterofactor")
        }
    return found


MODELS = models()


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    check_model(MODELS[name]())


@pytest.mark.parametrize("solver", SOLVERS)
def test_hmf_with_every_solver(solver: str) -> None:
    check_model(HMF(solver=solver, **PATIENT))


@pytest.mark.parametrize("engine", ENGINES)
def test_hmf_with_every_engine(engine: str) -> None:
    check_model(HMF(engine=engine))


@pytest.mark.parametrize(
    "parameters",
    [{"centre": None}, {"centre": "global"}, {"scale": "source"}, {"n_restarts": 2}],
    ids=str,
)
def test_hmf_with_other_settings(parameters: dict[str, Any]) -> None:
    check_model(HMF(**parameters))
