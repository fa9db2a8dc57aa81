"""How the factors are found; each solver is one file with `init`, `step` and `merge`."""

from heterofactor.rounds import Solver
from heterofactor.solvers.alternating import Alternating
from heterofactor.solvers.averaging import Averaging
from heterofactor.solvers.grassmann import Grassmann

SOLVERS: dict[str, type[Alternating] | type[Averaging] | type[Grassmann]] = {
    "alternating": Alternating,
    "averaging": Averaging,
    "grassmann": Grassmann,
}

__all__ = ["SOLVERS", "Alternating", "Averaging", "Grassmann", "Solver"]
