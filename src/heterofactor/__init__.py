"""heterofactor: what many related datasets share, and what is unique to each."""

from heterofactor.factors import Factors
from heterofactor.hmf import HMF
from heterofactor.splitting import EntryKFold, ObservedEntries

__version__ = "0.1.0"

__all__ = ["HMF", "EntryKFold", "Factors", "ObservedEntries", "__version__"]
