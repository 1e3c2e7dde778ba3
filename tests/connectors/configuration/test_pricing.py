from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.model import Configuration, ModelRates, Pricing
from loomlog.connectors.configuration.pricing import find_price
from loomlog.connectors.configuration.tree import parse_scalar
from loomlog.connectors.models.pricing import Price
from tests.connectors.configuration.conftest import Folder


def test_rates_become_whole_micro_units(folder: Folder):
    text = """\
    pricing:
      currency: EUR
      models:
        openai/a: {input: 1.25, output: 10, cache_write: 0, cache_read: 0.125}
        openai/b/c: {input: 3, output: 0.000001}
    """
    configuration = folder.load(text).configuration
    assert configuration.pricing.currency == "EUR"
    assert find_price(configuration, "openai", "a") == Price(
        input=1_250_000, output=10_000_000, cache_write=0, cache_read=125_000
    )
    assert find_price(configuration, "openai", "b/c") == Price(
        input=3_000_000, output=1, cache_write=3_000_000, cache_read=3_000_000
    )


def test_a_model_without_a_price_is_unpriced_and_not_free(folder: Folder):
    assert find_price(folder.load("agents: {}").configuration, "openai", "a") is None


@given(st.integers(0, 999_999), st.integers(0, 999_999))
def test_what_is_written_is_what_is_kept_to_the_last_digit(units: int, micros: int):
    rate = parse_scalar(f"{units}.{micros:06d}")
    assert isinstance(rate, Decimal)
    configuration = Configuration(pricing=Pricing(models={"p/m": ModelRates(input=rate, output=rate)}))
    price = find_price(configuration, "p", "m")
    assert price is not None
    assert price.input == units * 1_000_000 + micros
    assert type(price.input) is int


def test_a_rate_that_cannot_be_kept_exactly_or_is_a_typo_is_refused(folder: Folder):
    for rate in ("0.0000001", "-1", "1000001", "'3'", "true", ".nan"):
        (line,) = folder.problems(f"pricing: {{models: {{openai/a: {{input: {rate}, output: 1}}}}}}")
        assert line.startswith("loomlog.yaml:1: pricing.models.openai/a.input")
