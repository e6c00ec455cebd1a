"""The cost of requests under each provider's prompt cache."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.errors import OptionError
from thresher.replay import CostMeter, Rates, RequestCost, rates_for_model
from thresher.tokens import ModelInfo, find_model

PLAIN = Rates(minimum=0)


def known(name: str) -> ModelInfo:
    model = find_model(name)
    assert model is not None
    return model


def request(*keys: str, tokens: int = 1000) -> list[tuple[str, int]]:
    return [(key, tokens) for key in keys]


@pytest.mark.parametrize(
    ("name", "hour", "read", "write", "output", "ttl", "minimum"),
    [
        ("claude-sonnet-4-5", False, 0.1, 1.25, 5, 300, 1024),
        ("claude-sonnet-4-5", True, 0.1, 2.0, 5, 3600, 1024),
        ("claude-haiku-4-5", False, 0.1, 1.25, 5, 300, 4096),
        ("gpt-5", False, 0.1, 1.0, 8, 300, 1024),
        ("gpt-4o", False, 0.5, 1.0, 4, 300, 1024),
        ("gpt-5.6", False, 0.1, 1.25, 5, 1800, 1024),
        ("gemini-2.5-pro", False, 0.1, 1.0, 8, 300, 2048),
    ],
)
def test_model_rates_are_relative_to_its_input_price(
    name: str, hour: bool, read: float, write: float, output: float, ttl: int, minimum: int
) -> None:
    rates = rates_for_model(known(name), hour=hour)
    assert (rates.read, rates.write, rates.output) == pytest.approx((read, write, output))
    assert (rates.input, rates.ttl, rates.minimum) == (1.0, ttl, minimum)


def test_model_without_a_longer_cache_is_an_error() -> None:
    with pytest.raises(OptionError, match="does not support a one-hour cache"):
        rates_for_model(known("gemini-2.5-pro"), hour=True)


@pytest.mark.parametrize(
    ("name", "hour", "first", "second"),
    [
        ("claude-sonnet-4-5", False, 1.25 * 5000, 0.1 * 5000 + 1.25 * 1000),
        ("claude-sonnet-4-5", True, 2.0 * 5000, 0.1 * 5000 + 2.0 * 1000),
        ("gpt-5", False, 5000, 0.1 * 5000 + 1000),
        ("gpt-5.6", False, 1.25 * 5000, 0.1 * 5000 + 1.25 * 1000),
        ("gemini-2.5-pro", False, 5000, 0.1 * 5000 + 1000),
    ],
)
def test_extended_request_reads_what_the_last_one_wrote(name: str, hour: bool, first: float, second: float) -> None:
    meter = CostMeter(rates_for_model(known(name), hour=hour))
    assert meter.charge(0, request(*"abcde")).cost == pytest.approx(first)
    charge = meter.charge(60, request(*"abcdef"))
    assert (charge.tokens, charge.cached, charge.is_prefix_broken) == (6000, 5000, False)
    assert charge.cost == pytest.approx(second)


def test_everything_after_the_first_changed_block_is_written_again() -> None:
    meter = CostMeter(PLAIN)
    meter.charge(0, request(*"abcd"))
    assert meter.charge(1, request(*"abXd")) == RequestCost(4000, 2000, 0.1 * 2000 + 1.25 * 2000, True)
    assert meter.charge(2, request(*"abXde")) == RequestCost(5000, 4000, 0.1 * 4000 + 1.25 * 1000, False)


def test_shorter_request_breaks_the_prefix() -> None:
    meter = CostMeter(PLAIN)
    meter.charge(0, request(*"abcd"))
    assert meter.charge(1, request(*"ab")) == RequestCost(2000, 2000, 200, True)


@pytest.mark.parametrize(
    ("before", "now", "cached"),
    [(0, 300, 1000), (0, 301, 0), (None, 10**9, 1000), (0, None, 1000), (500, 0, 1000)],
)
def test_cache_expires_after_its_ttl_and_unknown_times_count_as_warm(
    before: float | None, now: float | None, cached: int
) -> None:
    meter = CostMeter(PLAIN)
    meter.charge(before, request("a"))
    assert meter.charge(now, request("a", "b")) == RequestCost(
        2000, cached, 0.1 * cached + 1.25 * (2000 - cached), False
    )


def test_longer_cache_lasts_an_hour() -> None:
    for hour, cached in ((False, 0), (True, 5000)):
        meter = CostMeter(rates_for_model(known("claude-sonnet-4-5"), hour=hour))
        meter.charge(0, request(*"abcde"))
        assert meter.charge(3600, request(*"abcde")).cached == cached


def test_short_prefix_is_not_cached_and_short_prompt_is_plain_input() -> None:
    meter = CostMeter(Rates(minimum=1024))
    assert meter.charge(0, request("a")).cost == 1000
    assert meter.charge(1, request("a", "b")) == RequestCost(2000, 0, 1.25 * 2000, False)
    assert meter.charge(2, request("a", "b", "c")).cached == 2000


blocks = st.lists(st.tuples(st.sampled_from("abc"), st.just(100)), max_size=8)


@given(st.lists(st.tuples(st.none() | st.integers(0, 2000), blocks), max_size=8), st.sampled_from([0, 300]))
def test_charge_is_between_all_read_and_all_written(
    requests: list[tuple[int | None, list[tuple[str, int]]]], minimum: int
) -> None:
    meter = CostMeter(Rates(minimum=minimum))
    for at, texts in requests:
        charge = meter.charge(at, texts)
        assert charge.tokens == 100 * len(texts)
        assert 0 <= charge.cached <= charge.tokens
        assert 0.1 * charge.tokens - 1e-6 <= charge.cost <= 1.25 * charge.tokens + 1e-6
