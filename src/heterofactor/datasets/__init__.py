"""Data to try the method on: made ones, whose truth is known, and two real ones."""

from heterofactor.datasets.bundled import RealData, load_beijing_air, load_mice_protein
from heterofactor.datasets.generator import HeterogeneousData, make_heterogeneous

__all__ = [
    "HeterogeneousData",
    "RealData",
    "load_beijing_air",
    "load_mice_protein",
    "make_heterogeneous",
]
