from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.models.pricing import Price, cost_micros
from loomlog.schemas.generated.values import Usage

PRICE = Price(input=3_000_000, output=15_000_000, cache_write=3_750_000, cache_read=300_000)
COUNTS = st.integers(0, 10**9)


def test_each_kind_of_token_has_its_price() -> None:
    usage = Usage(input_tokens=1000, output_tokens=200, cache_creation_input_tokens=400, cache_read_input_tokens=10_000)
    assert cost_micros(PRICE, usage) == 3000 + 3000 + 1500 + 3000


@pytest.mark.parametrize(("micros", "cost"), [(499_999, 0), (500_000, 1), (1_499_999, 1), (1_500_000, 2), (0, 0)])
def test_a_cost_is_rounded_half_up_at_the_end(micros: int, cost: int) -> None:
    assert cost_micros(Price(input=micros, output=0), Usage(input_tokens=1)) == cost
    halves = Price(input=micros // 2, output=micros - micros // 2)
    assert cost_micros(halves, Usage(input_tokens=1, output_tokens=1)) == cost


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_it_is_exact_arithmetic(fresh: int, out: int, written: int, read: int) -> None:
    usage = Usage(
        input_tokens=fresh, output_tokens=out, cache_creation_input_tokens=written, cache_read_input_tokens=read
    )
    exact = Fraction(fresh * 3_000_000 + out * 15_000_000 + written * 3_750_000 + read * 300_000, 1_000_000)
    assert abs(cost_micros(PRICE, usage) - exact) <= Fraction(1, 2)


def test_a_negative_price_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="negative"):
        cost_micros(Price(input=-1, output=0), Usage(input_tokens=1))
