"""Ratings of items by users: tastes for all items, and tastes unique to groups of them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from heterofactor.ratings.autosvd import AutoSVD
from heterofactor.ratings.blend import Blend
from heterofactor.ratings.completion import MatrixCompletion
from heterofactor.ratings.drift import TimeDrift
from heterofactor.ratings.model import RatingModel
from heterofactor.ratings.ranking import ranking_quality

if TYPE_CHECKING:
    from heterofactor.ratings.ghrs import GHRS
    from heterofactor.ratings.graphrec import GraphRec
    from heterofactor.ratings.hae_ratings import RatingHAE
    from heterofactor.ratings.sparsefc import SparseFC

__all__ = [
    "GHRS",
    "AutoSVD",
    "Blend",
    "GraphRec",
    "MatrixCompletion",
    "RatingHAE",
    "RatingModel",
    "SparseFC",
    "TimeDrift",
    "ranking_quality",
]

# Imported when they are asked for, because they need torch.
NETWORKS = {
    "GHRS": "ghrs",
    "GraphRec": "graphrec",
    "RatingHAE": "hae_ratings",
    "SparseFC": "sparsefc",
}


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for."""
    if name not in NETWORKS:
        raise AttributeError(f"module 'heterofactor.ratings' has no attribute {name!r}")
    try:
        return getattr(import_module(f"heterofactor.ratings.{NETWORKS[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"{name} needs torch: pip install 'heterofactor[hae]'.") from error
