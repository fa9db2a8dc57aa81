"""Ratings that are left out of what goes into HAE, and what users' items add to its decoder."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from heterofactor.batches import Pattern, times  # noqa: E402
from heterofactor.losses import Squared  # noqa: E402
from heterofactor.networks import AutoEncoder, Layer, Layers  # noqa: E402
from heterofactor.ratings.unseen import (  # noqa: E402
    DAMPED,
    SLOW,
    RatingBatch,
    RatingDecoder,
    Unseen,
)
from heterofactor.solvers.autoencoder import Objective  # noqa: E402

ITEMS, USERS, SCORES = 30, 20, 6
# Sums of some ten numbers in single precision, in another order.
SINGLE = 1e-5


def table() -> Any:
    """Return ratings as a dense matrix, items in rows, 0 where there is none; all are rated."""
    rng = np.random.default_rng(0)
    rated = rng.random((ITEMS, USERS)) < 0.4
    rated[np.arange(ITEMS), np.arange(ITEMS) % USERS] = True
    return torch.from_numpy((rated * rng.integers(1, 6, rated.shape)).astype(np.float32))


def batch() -> RatingBatch:
    dense = table()
    rows, columns = (places.numpy() for places in dense.nonzero(as_tuple=True))
    pattern = Pattern(rows, columns, (ITEMS, USERS))
    values = dense[rows, columns]
    return RatingBatch([12, 18], pattern, values, torch.full_like(values, 3.0))


def network() -> AutoEncoder:
    chance = torch.Generator().manual_seed(0)
    shared = Layers([Layer(2 * USERS, SCORES, chance, activation="sigmoid")])
    unique = Layers([Layer(2 * USERS, SCORES, chance, activation="sigmoid", n_sources=2)])
    made = AutoEncoder(shared, unique, RatingDecoder(Layer(SCORES, USERS, chance), ITEMS))
    with torch.no_grad():
        made.decoder.items += torch.randn(ITEMS, SCORES, generator=chance)
    return made


@pytest.mark.parametrize("turned", [False, True])
def test_a_sparse_product_is_the_dense_one_and_so_is_its_slope(turned: bool) -> None:
    dense = table()
    rows, columns = dense.nonzero(as_tuple=True)
    pattern = Pattern(rows.numpy(), columns.numpy(), (ITEMS, USERS))
    other = torch.randn(ITEMS if turned else USERS, 4, requires_grad=True)
    found = times(pattern, dense[rows, columns], other, turned=turned)
    expected = (dense.mT if turned else dense) @ other
    torch.testing.assert_close(found, expected, atol=SINGLE, rtol=SINGLE)
    slopes = [torch.autograd.grad((x**2).sum(), other)[0] for x in (found, expected)]
    torch.testing.assert_close(*slopes, atol=SINGLE, rtol=SINGLE)


def test_inputs_are_ratings_and_ones_by_the_root_of_their_number() -> None:
    dense = table()
    number = (dense > 0).sum(dim=1, keepdim=True)
    size = (number.float().mean() / number) ** DAMPED
    expected = torch.cat([dense, (dense > 0).float()], dim=1) * size
    torch.testing.assert_close(batch().dense(), expected)


def test_users_are_sums_of_the_items_they_have_rated() -> None:
    rated = (table() > 0).float()
    vectors = torch.randn(ITEMS, SCORES)
    expected = SLOW * (rated / rated.sum(dim=0).sqrt()).mT @ vectors
    torch.testing.assert_close(batch().summed(vectors), expected)


def test_what_is_left_out_of_ratings_is_left_out_of_everything() -> None:
    whole = batch()
    torch.manual_seed(0)
    seen, stayed = whole.without(0.25)
    there = torch.zeros(ITEMS, USERS)
    there[whole.asked.rows, whole.asked.columns] = stayed / 0.75
    assert 0.6 < float(stayed.mean()) < 0.9  # three errors of a share of 240
    torch.testing.assert_close(seen.dense(), whole.dense() * torch.cat([there, there], dim=1))
    rated = (table() > 0).float()
    expected = SLOW * (there * rated / rated.sum(dim=0).sqrt()).mT
    torch.testing.assert_close(seen.summed(torch.eye(ITEMS)), expected)
    stack = torch.randn(2, 2 * USERS, SCORES)  # as the groups' encoders have it
    dense = seen.dense()
    expected = torch.cat([dense[:12] @ stack[0], dense[12:] @ stack[1]])
    torch.testing.assert_close(seen.product(stack), expected, atol=SINGLE, rtol=SINGLE)


def test_with_nothing_left_out_it_is_the_plain_objective() -> None:
    made, ratings, ridge = network(), batch(), (0.5, 2.0)
    plain = Objective(Squared(), ridge)(made, ratings)
    found = Unseen(Squared(), ridge, left_out=0.0, known_weight=0.3)(made, ratings)
    assert float(found.detach()) == pytest.approx(float(plain.detach()), rel=SINGLE)
    more = Unseen(Squared(), ridge, ridge_seen=4.0, left_out=0.0)(made, ratings)
    penalty = 2 * float((made.decoder.items**2).sum().detach())
    assert float((more - plain).detach()) == pytest.approx(penalty, rel=1e-3)


def test_ratings_that_stay_count_for_less() -> None:
    """With no weight at all, what the networks see can be as wrong as it likes."""
    made, ratings = network(), batch()
    torch.manual_seed(0)
    seen, stayed = ratings.without(0.25)
    errors = (made(seen) + 3 - ratings.targets).detach() ** 2
    torch.manual_seed(0)
    found = Unseen(Squared(), left_out=0.25, known_weight=0.0)(made, ratings)
    expected = float(errors[stayed == 0].mean()) * len(errors) / 2
    assert float(found.detach()) == pytest.approx(expected, rel=SINGLE)
