"""GraphRec: its objective, what goes in, and what it finds."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from heterofactor.ratings import graphrec  # noqa: E402
from heterofactor.ratings.graphrec import GraphRec  # noqa: E402
from heterofactor.ratings.reading import Columns, read_ratings  # noqa: E402

SETTINGS: dict[str, Any] = {
    "n_components": 8, "ridge": 0.02, "learning_rate": 0.01, "max_rounds": 300, "random_state": 0,
}  # fmt: skip


def made(seed: int = 0, share: float = 0.3) -> tuple[pd.DataFrame, ...]:
    """Return ratings, features of users and of items that say all, and the truth of all pairs."""
    rng = np.random.default_rng(seed)
    sorts, kinds = rng.integers(0, 3, 80), rng.integers(0, 3, 120)
    likes = np.array([[1.0, -1, 0], [-1, 0, 1], [0, 1, -1]])
    truth = 3 + likes[sorts][:, kinds]
    user, item = np.nonzero(rng.random(truth.shape) < share)
    values = truth[user, item] + 0.3 * rng.normal(size=len(user))
    table = pd.DataFrame({"user": user, "item": item, "rating": values})
    everything = pd.DataFrame(
        {"user": np.repeat(np.arange(80), 120), "item": np.tile(np.arange(120), 80)}
    ).assign(rating=truth.ravel())
    features = (pd.DataFrame({"kind": each}).astype(str) for each in (kinds, sorts))
    return table, *features, everything


def error(model: Any, table: pd.DataFrame) -> float:
    return -float(model.score(table))


def sides(known: Any, ridges: tuple[float, float] = (0.3, 0.2)) -> Any:
    generator = torch.Generator().manual_seed(0)
    features = np.arange(len(known.users))[:, None] / 10, np.zeros((len(known.items), 0))
    pairs = zip((known, known.turned()), features, ridges, strict=True)
    found = [graphrec._side(each, columns, 3, ridge, generator) for each, columns, ridge in pairs]
    with torch.no_grad():
        for side in found:
            side.weights.normal_(generator=generator)
            side.bias.normal_(generator=generator)
    return found


def small() -> Any:
    table = pd.DataFrame({"user": [0, 0, 1, 2], "item": [0, 1, 1, 0], "rating": [5.0, 2, 1, 3]})
    return read_ratings(table, Columns())


def test_what_goes_in_is_flag_row_number_and_features() -> None:
    users, items = sides(small())
    expected = [
        [1, 0, 0, 1, 0.4, 1, 0],
        [0, 1, 0, 0, 0.2, 0.5, 0.1],
        [0, 0, 1, 0.6, 0, 0.5, 0.2],
    ]
    np.testing.assert_allclose(users.batch.dense(), expected, rtol=1e-6)
    of_items = [[1, 0, 1, 0, 0.6, 1], [0, 1, 0.4, 0.2, 0, 1]]
    np.testing.assert_allclose(items.batch.dense(), of_items, rtol=1e-6)


def test_the_objective_is_the_sum_of_errors_and_penalties() -> None:
    known = small()
    users, items = sides(known)
    found = graphrec.objective(users, items)

    def scores(side: Any) -> Any:
        z = side.batch.dense().numpy() @ side.weights.detach().numpy() + side.bias.detach().numpy()
        return np.hstack([np.maximum(z, 0), np.maximum(-z, 0)])

    psi, phi = scores(users)[known.user], scores(items)[known.item]
    errors = known.values - (psi * phi).sum(axis=1)
    expected = ((errors**2).sum() + 0.3 * (psi**2).sum() + 0.2 * (phi**2).sum()) / 2
    assert found.item() == pytest.approx(expected, rel=1e-5)  # single precision


def test_its_slope_is_that_of_finite_differences() -> None:
    users, items = sides(small())
    graphrec.objective(users, items).backward()
    step = 1e-2
    for weights in (users.weights, users.bias, items.weights, items.bias):
        flat, slope = weights.detach().reshape(-1), weights.grad.reshape(-1)
        for k in range(0, len(flat), 2):
            before, values = flat[k].item(), []
            for moved in (before + step, before - step):
                flat[k] = moved
                values.append(graphrec.objective(users, items).item())
            flat[k] = before
            # single precision over the step, 1e-6 * 30 / 1e-2, and the cube of the step
            assert slope[k].item() == pytest.approx((values[0] - values[1]) / (2 * step), abs=0.05)


def test_the_truth_is_recovered() -> None:
    table, *_, everything = made()
    model = GraphRec(**SETTINGS).fit(table)
    # noise of 0.3; three tastes of each user in 36 ratings, of each item in 24
    assert error(model, everything) < 0.25
    assert model.history_["value"].iloc[-1] < 0.2 * model.history_["value"].iloc[0]


def test_features_help_where_ratings_are_few() -> None:
    table, kinds, sorts, everything = made(share=0.05)
    model = GraphRec(**SETTINGS)
    with_them = error(model.fit(table, kinds, sorts), everything)
    assert with_them < 0.8 * error(model.fit(table), everything)


def test_those_without_ratings_are_known_by_their_features() -> None:
    table, kinds, sorts, everything = made()
    rated = table[(table["item"] >= 10) & (table["user"] >= 10)]
    model = GraphRec(**SETTINGS).fit(rated, kinds, sorts)
    assert len(model.users_) == 80 and len(model.items_) == 120
    for cold in ("user < 10 <= item", "item < 10 <= user"):
        pairs = everything.query(cold)
        # the mean alone is off by sqrt(2/3) = 0.8
        assert error(model, pairs) < 0.6


def test_what_cannot_be_is_refused() -> None:
    table, kinds, sorts, _ = made()
    with pytest.raises(ValueError, match=r"user_features has no row for 1 of 80 users \(3\)"):
        GraphRec().fit(table, kinds, sorts.drop(index=3))
    with pytest.raises(TypeError, match="item_features is list: expected a DataFrame"):
        GraphRec().fit(table, [1])  # type: ignore[arg-type]
