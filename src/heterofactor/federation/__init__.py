"""Fits to data that may not leave their owners: sites answer with sums, over any transport."""

from heterofactor.federation.engine import Federated, Transport
from heterofactor.federation.quorum import Quorum, TooFewSites
from heterofactor.federation.server import SharedFit, fit
from heterofactor.federation.site import Site
from heterofactor.federation.trial import InProcesses, InThreads, serve

__all__ = [
    "Federated",
    "InProcesses",
    "InThreads",
    "Quorum",
    "SharedFit",
    "Site",
    "TooFewSites",
    "Transport",
    "fit",
    "serve",
]
