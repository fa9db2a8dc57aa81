"""Ratings of items by users: tastes for all items, and tastes unique to groups of them."""

from heterofactor.ratings.model import RatingModel

__all__ = ["RatingModel"]
