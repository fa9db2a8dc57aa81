"""Contracts that anyone can run on a loss, source, solver, engine or model of their own.

Each check raises an `AssertionError` that says which property failed, and by how much.
"""

from heterofactor.checks.engine import check_engine
from heterofactor.checks.loss import check_loss
from heterofactor.checks.model import check_model
from heterofactor.checks.observed import check_observed
from heterofactor.checks.solver import check_solver
from heterofactor.checks.source import check_source

__all__ = [
    "check_engine",
    "check_loss",
    "check_model",
    "check_observed",
    "check_solver",
    "check_source",
]
