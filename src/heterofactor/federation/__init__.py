"""Fits to data that may not leave their owners: sites answer with sums, over any transport.

`fit` is the server's end, a `Site` the other. What leaves a site, each a sum over its sources (n1
features, r1 shared and at most r2 unique directions):

===============  =================================================================================
stage            arrays
===============  =================================================================================
the size         ``energy``, ``entries``, ``sources``, ``variance``: numbers
the start        ``projection`` (n1, r1 + r2 + 2): of random directions on the leading ones of each
                 source; ``sources``, ``columns``: numbers
complete data    ``gradient`` (n1, r1), ``curvature`` (r1, r1); ``value``, ``sources``,
                 ``unsettled``: numbers
with holes, or   ``schur`` (n1, r1, r1), ``right`` (n1, r1): the least squares for each feature's
other losses     row of the shared basis; ``tension`` (r1, r1); ``value``, ``scale``, ``size``,
                 ``stiffness``, ``unsettled``: numbers
Algorithm 1      ``basis``, ``slope`` (n1, r1); ``count``, ``value``, ``own``, ``scale``: numbers
scoring          ``covariance`` (r1, r1): of the shared scores
===============  =================================================================================

and, once, how many features, which (a hash of their names), in which precision, how many sources,
and whether all entries are there.

What a curious server can infer from them, unless ``secure=True``: the leading directions of every
site, its unique ones among them, from the projection; how strong they are; how many sources and
samples it has. From many rounds, it learns the matrix of second moments on these directions. It
does not learn single samples or their scores, with two exceptions. A site with about as many
samples as directions are sought tells their span. And where not all is observed, the least squares
of two features differ by the samples that only one of them was observed in: where that is a single
sample, its shared scores can be found, up to their sign, and its entry from them. Such sites
should ask to be hidden (`Site` has `hidden_among`). With ``secure=True`` the server learns the same
of the sum over all sites that took part in a round, and who they are; `masking` says against whom
this holds.
"""

from heterofactor.federation.engine import Federated, Transport
from heterofactor.federation.quorum import Quorum, TooFewSites
from heterofactor.federation.server import SharedFit, fit, save_shared
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
    "save_shared",
    "serve",
]
