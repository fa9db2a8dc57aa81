"""Where a fit of what is observed begins, and what is learned of sources one by one."""

import numpy as np
import pytest

from heterofactor import HMF
from heterofactor.datasets import make_heterogeneous
from heterofactor.engines import Serial
from heterofactor.guess import Reviving, newcomer_observed
from heterofactor.linalg import frame_near
from heterofactor.losses import Squared
from heterofactor.masked import Masked
from heterofactor.metrics import subspace_error
from heterofactor.rounds import run


def masked(data, missing: float, seed: int) -> Masked:
    rng = np.random.default_rng([seed, 1])  # the generator's own stream made the parts
    M = np.stack([table.T for table in data.sources.values()])
    seen = (rng.random(M.shape) >= missing).astype(float)
    return Masked(M * seen, seen)


@pytest.mark.parametrize(
    ("share", "spread", "start"), [(0.1, 1, "spectral"), (0.7, 10, "followed")]
)
def test_only_a_doubtful_start_is_followed(share: float, spread: float, start: str) -> None:
    data = make_heterogeneous(10, spread=spread, random_state=1)
    rng = np.random.default_rng([1, 1])
    tables = [np.where(rng.random(t.shape) < share, np.nan, t) for t in data.sources.values()]
    model = HMF(3, 3, centre=None, max_rounds=1000, random_state=0).fit(tables)
    assert model.diagnostics_.start.endswith(start)
    # the default tolerance of 1e-8 ends at its square or so
    assert subspace_error(model.shared_components_.T, data.shared_basis) < 1e-14


def test_a_source_that_is_stuck_finds_its_unique_part_anew() -> None:
    data = make_heterogeneous(4, n_samples=60, n_features=40, random_state=0)
    source, basis = masked(data, 0.3, 0), data.shared_basis
    truths = np.stack(list(data.unique_bases.values()))
    # three sources stand at the truth, and one at a direction that explains nothing
    wrong = frame_near(np.random.default_rng(0).standard_normal((1, 40, 3)), basis)
    unique = np.concatenate([truths[:3], wrong])
    W = np.concatenate([np.broadcast_to(basis, (4, 40, 3)), unique], axis=-1)
    point = {"unique": unique, "scores": source.scores((None, None), W, None, None)}
    engine = Serial([source], [point])
    shared = {"basis": basis, "value": np.array(0.0), "gradient": np.array(0.0)}
    result = run(Reviving(), engine, Squared(), shared, max_rounds=1)
    assert float(result.shared["revived"]) == 1
    (after,) = engine.locals()
    assert after["unique"][:3] == pytest.approx(truths[:3])
    # twenty sweeps of its own, without noise
    assert subspace_error(after["unique"][3], truths[3]) < 1e-6


def test_a_newcomer_with_holes_is_fitted_to_the_end(seed: int) -> None:
    data = make_heterogeneous(2, n_samples=60, n_features=40, random_state=seed)
    whole = masked(data, 0.4, seed)
    source = Masked(whole.matrix[:1], whole.weight[:1])
    found = newcomer_observed(source, 3, data.shared_basis, Squared(), 1e-12)
    assert subspace_error(found["unique"][0], data.unique_bases["source0"]) < 1e-16
