"""Masked sums: right for whoever drops out, and each masked message alone is noise."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

pytest.importorskip("cryptography")

from heterofactor.federation.fixed import FixedPoint, flat, shaped
from heterofactor.federation.masking import Masker, generated, new_key, public_key, unmasked
from heterofactor.federation.shamir import joined_shares, shares


def maskers(n_sites: int, need: int, label: str = "1") -> dict[str, Masker]:
    keys = {f"site{k}": new_key() for k in range(n_sites)}
    public = {name: public_key(key) for name, key in keys.items()}
    return {name: Masker(name, key, public, label, need) for name, key in keys.items()}


def words(rng: np.random.Generator, size: int = 5) -> Any:
    return rng.integers(0, 2**64, size, dtype=np.uint64)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[int, int, list[int], list[int]]:
    """How many sites, how many are needed, whose message comes, and who then tells."""
    n_sites = draw(st.integers(2, 7))
    need = draw(st.integers(2, n_sites))
    came = draw(st.permutations(range(n_sites)))[: draw(st.integers(need, n_sites))]
    told = draw(st.permutations(came))[: draw(st.integers(need, len(came)))]
    return n_sites, need, came, told


@given(rounds(), st.integers(0, 2**32))
def test_the_sum_is_right_for_any_dropouts_above_the_threshold(
    drawn: tuple[int, int, list[int], list[int]], seed: int
) -> None:
    n_sites, need, came, told = drawn
    rng = np.random.default_rng(seed)
    sites = maskers(n_sites, need)
    messages = {name: words(rng) for name in sites}
    sent = {name: site.mask(messages[name]) for name, site in sites.items()}
    survivors = [f"site{k}" for k in came]
    answers = {
        name: sites[name].tell({other: sent[other][1][name] for other in survivors})
        for name in (f"site{k}" for k in told)
    }
    total = unmasked({name: sent[name][0] for name in survivors}, answers, list(sites), need)
    if len(came) < n_sites and len(told) < len(came):
        assert total is None  # one dropped out before its message and another after it
    else:
        expected = np.sum([messages[name] for name in survivors], axis=0, dtype=np.uint64)
        assert np.array_equal(total, expected)


@given(st.integers(0, 2**128 - 1), st.integers(1, 6), st.data())
def test_any_shares_of_the_needed_number_tell_the_secret(
    secret: int, need: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(need, 8))
    points = dict(enumerate(shares(secret, count, need), start=1))
    chosen = data.draw(st.permutations(sorted(points)))[:need]
    assert joined_shares({k: points[k] for k in chosen}, need) == secret
    if need > 1:
        fewer = {k: points[k] for k in chosen[:-1]}
        assert joined_shares(fewer, need) != secret


def test_a_masked_message_is_uniform() -> None:
    site = maskers(3, 2)["site1"]
    masked, _ = site.mask(np.zeros(1 << 16, np.uint64))
    for shift in (0, 28, 56):  # low, middle and high bytes of the words
        counts = np.bincount(((masked >> np.uint64(shift)) & np.uint64(255)).astype(int))
        expected = masked.size / 256
        statistic = float(((counts - expected) ** 2 / expected).sum())
        # once in a hundred thousand draws of true noise it is beyond these
        assert chi2.ppf(5e-6, 255) < statistic < chi2.isf(5e-6, 255)


def test_no_two_messages_have_the_same_mask() -> None:
    site = maskers(3, 2)["site1"]
    again = Masker(site.name, site.key, site.public, "2", 2)
    zero = np.zeros(4, np.uint64)
    found = [site.mask(zero)[0], site.mask(zero)[0], again.mask(zero)[0]]
    assert len({word for one in found for word in one.tolist()}) == 12


def test_without_its_own_seed_a_late_message_stays_hidden() -> None:
    sites = maskers(3, 2)
    sent = {name: site.mask(np.zeros(4, np.uint64)) for name, site in sites.items()}
    came = ["site0", "site1"]
    told = {
        name: sites[name].tell({other: sent[other][1][name] for other in came}) for name in came
    }
    late = sent["site2"][0]
    for name in came:  # take away all that was told of the third
        late = late + generated(told[name][1]["site2"], 4)
    assert not (late == 0).any()


def test_a_share_can_be_read_by_its_receiver_only() -> None:
    from cryptography.exceptions import InvalidTag

    sites = maskers(3, 2)
    sent = {name: site.mask(np.zeros(1, np.uint64))[1] for name, site in sites.items()}
    with pytest.raises(InvalidTag):
        sites["site0"].tell({name: sent[name]["site1"] for name in sites})


def test_sums_over_too_few_are_not_told() -> None:
    sites = maskers(4, 3)
    sent = {name: site.mask(np.zeros(1, np.uint64))[1] for name, site in sites.items()}
    for came in (["site0", "site1"], ["site1", "site2", "site3"], ["site0", "site1", "other"]):
        with pytest.raises(ValueError, match="Asked to unmask"):
            sites["site0"].tell({name: sent.get(name, sent["site1"])["site0"] for name in came})
    with pytest.raises(ValueError, match="at least two sites"):
        maskers(3, 1)
    with pytest.raises(ValueError, match="not its own"):
        Masker("site0", new_key(), sites["site0"].public, "1", 2)


NUMBERS = st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=4)


@given(NUMBERS, NUMBERS, st.sampled_from([(40, 1), (60, 2), (84, 3)]))
def test_sums_are_rounded_to_the_stated_step(
    one: list[float], other: list[float], kind: tuple[int, int]
) -> None:
    size = min(len(one), len(other))
    fixed = FixedPoint(*kind)
    a, b = (np.array(numbers[:size]) for numbers in (one, other))
    found = fixed.numbers_of(fixed.words_of(a, 2) + fixed.words_of(b, 2))
    # half a step for each, and what double precision rounds of the sum
    np.testing.assert_allclose(found, a + b, rtol=4e-16, atol=2.0 ** -kind[0] + 1e-300)


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="rescale the tables"):
        FixedPoint(40).words_of(np.array([5e6]), n_sites=2)
    with pytest.raises(ValueError, match="NaN"):
        FixedPoint(40).words_of(np.array([np.nan]))


def test_messages_are_flattened_and_back() -> None:
    message = {"b": np.arange(6.0).reshape(2, 3), "a": np.array(7.0), "c": np.zeros((0, 2))}
    again = shaped(flat(message), message)
    for name, value in message.items():
        assert np.array_equal(again[name], value)
        assert again[name].shape == value.shape
