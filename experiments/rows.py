"""The rows of the MovieLens table: what each is made of, and what others report."""

from __future__ import annotations

from dataclasses import dataclass

THREE = (0, 100, 200)


@dataclass(frozen=True)
class Row:
    """Some models of `fits.MODELS`, each averaged over seeds; several are a combination."""

    models: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    drift: bool = False  # corrected by the times of ratings
    cheap: bool = False
    paper: float | None = None
    reported: float | None = None  # by the authors of the method


BEST = ("gibbs 32", "HAE")
ROWS: dict[str, Row] = {
    "pooled, raw, rank 2": Row(("pooled 2",), cheap=True, paper=0.981),
    "pooled, raw, rank 4": Row(("pooled 4",), cheap=True, paper=0.981),
    "pooled, raw, rank 5": Row(("pooled 5",), cheap=True, paper=0.981),
    "pooled, raw, rank 5, Algorithm 1": Row(("pooled 5, Algorithm 1",), cheap=True, paper=0.981),
    "pooled, raw, rank 6, Algorithm 1": Row(("pooled 6, Algorithm 1",), cheap=True, paper=0.981),
    "HMF, raw, ranks 1 + 1": Row(("HMF 1 + 1",), cheap=True, paper=0.977),
    "HMF, raw, ranks 1 + 1, Algorithm 1": Row(("HMF 1 + 1, Algorithm 1",), cheap=True, paper=0.977),
    "HMF, raw, ranks 2 + 1, Algorithm 1": Row(("HMF 2 + 1, Algorithm 1",), cheap=True, paper=0.977),
    "offsets": Row(("offsets",), cheap=True),
    "AutoSVD": Row(("AutoSVD",), reported=0.901),
    "AutoSVD++": Row(("AutoSVD++",), paper=0.901, reported=0.904),
    "GHRS": Row(("GHRS",), paper=0.887, reported=0.887),
    "GraphRec": Row(("GraphRec",), paper=0.883, reported=0.883),
    "SparseFC": Row(("SparseFC",), paper=0.8838),
    "SparseFC, three fits": Row(("SparseFC",), THREE),
    "HAE": Row(("HAE",), paper=0.88),
    "HAE, random groups": Row(("HAE, random",)),
    "HAE, one group": Row(("HAE, one group",)),
    "HAE, three fits": Row(("HAE",), THREE),
    "RatingModel als, shared only": Row(("als, shared",), cheap=True),
    "RatingModel als, shared + unique, random groups": Row(("als, random",), cheap=True),
    "RatingModel als, shared + unique": Row(("als",), cheap=True),
    "RatingModel gibbs, ratings alone": Row(("gibbs, ratings alone",)),
    "RatingModel gibbs, features and implicit": Row(("gibbs",)),
    "RatingModel gibbs, features and implicit, times": Row(("gibbs",), drift=True),
    "best combination": Row(BEST),
    "best combination, times": Row(BEST, drift=True),
}
REFERENCE = "SparseFC"
# Measured on the published folds as well.
FOLDED = (
    "RatingModel als, shared + unique",
    "RatingModel gibbs, features and implicit",
    "RatingModel gibbs, features and implicit, times",
    "SparseFC",
    "HAE",
    "best combination",
    "best combination, times",
)
