"""How the factors are found; each solver is one file with `init`, `step` and `merge`."""

from heterofactor.rounds import Solver
from heterofactor.solvers.averaging import Averaging
from heterofactor.solvers.grassmann import Grassmann

SOLVERS: dict[str, type[Averaging] | type[Grassmann]] = {
    "averaging": Averaging,
    "grassmann": Grassmann,
}

__all__ = ["SOLVERS", "Averaging", "Grassmann", "Solver"]
