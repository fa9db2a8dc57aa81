"""heterofactor: what many related datasets share, and what is unique to each."""

__version__ = "0.1.0"
