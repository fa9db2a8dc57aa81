"""Every solver keeps the contract of solvers."""

import pytest

from heterofactor.checks import check_solver
from heterofactor.solvers import SOLVERS, Averaging, Grassmann

# Algorithm 1 has a linear rate: hundreds of rounds to this tolerance, where others take ten.
TOLERANCE = 1e-6


@pytest.mark.parametrize("n_shared", [1, 3])
@pytest.mark.parametrize("name", SOLVERS)
def test_solver(name: str, n_shared: int) -> None:
    check_solver(SOLVERS[name](n_shared=n_shared, tol=TOLERANCE), max_rounds=20_000)


def test_algorithm_1_with_a_step_of_its_own() -> None:
    # singular values near one: the paper's step is of order one
    check_solver(Averaging(n_shared=2, step_size=0.3, tol=1e-5), max_rounds=20_000)


@pytest.mark.parametrize(
    "solver", [Grassmann(2, tol=1e-300), Grassmann(2, memory=1, max_inner=0)], ids=repr
)
def test_quasi_newton_with_extreme_settings(solver: Grassmann) -> None:
    check_solver(solver)
