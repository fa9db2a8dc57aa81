"""Data to try the method on: made ones, whose truth is known, and real ones."""

from heterofactor.datasets.bundled import RealData, load_beijing_air, load_mice_protein
from heterofactor.datasets.cinema import Cinema, load_cinema
from heterofactor.datasets.generator import HeterogeneousData, make_heterogeneous
from heterofactor.datasets.movielens import MovieLens, load_movielens_100k
from heterofactor.datasets.ratings import MadeRatings, make_ratings

__all__ = [
    "Cinema",
    "HeterogeneousData",
    "MadeRatings",
    "MovieLens",
    "RealData",
    "load_beijing_air",
    "load_cinema",
    "load_mice_protein",
    "load_movielens_100k",
    "make_heterogeneous",
    "make_ratings",
]
