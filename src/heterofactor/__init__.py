"""heterofactor: what many related datasets share, and what is unique to each."""

from typing import TYPE_CHECKING, Any

from heterofactor.factors import Factors
from heterofactor.hmf import HMF
from heterofactor.ratings import RatingModel
from heterofactor.splitting import EntryKFold, ObservedEntries

if TYPE_CHECKING:
    from heterofactor.hae import HAE

__version__ = "0.1.0"

__all__ = [
    "HAE",
    "HMF",
    "EntryKFold",
    "Factors",
    "ObservedEntries",
    "RatingModel",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for."""
    if name != "HAE":
        raise AttributeError(f"module 'heterofactor' has no attribute {name!r}")
    try:
        from heterofactor.hae import HAE
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("HAE needs torch: pip install 'heterofactor[hae]'.") from error
    return HAE
