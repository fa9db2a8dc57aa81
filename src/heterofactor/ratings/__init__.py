"""Ratings: users, items, and what the ones think of the others."""
