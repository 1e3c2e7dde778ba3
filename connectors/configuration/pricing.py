"""Prices of models in whole micro-units of money: floats are never used for an amount.

A rate of 3.00 per million tokens is 3_000_000 micro-units per million tokens, the unit of connectors.models.pricing. A
cache rate that no file sets is the input rate: a bill may then be too high, never silently too low.

Before: model.py. After: resolve.py.
"""

from decimal import Decimal

from loomlog.connectors.configuration.model import MICROS, Configuration
from loomlog.connectors.models.pricing import Price


def find_price(configuration: Configuration, provider: str, model: str) -> Price | None:
    """Return the price of a model; None when the files have none, which makes its calls `unpriced`, not free.

    The currency is configuration.pricing.currency.
    """
    rates = configuration.pricing.models.get(f"{provider}/{model}")
    if rates is None:
        return None
    return Price(
        input=_to_micros(rates.input),
        output=_to_micros(rates.output),
        cache_write=_to_micros(rates.input if rates.cache_write is None else rates.cache_write),
        cache_read=_to_micros(rates.input if rates.cache_read is None else rates.cache_read),
    )


def _to_micros(rate: Decimal) -> int:
    micros = rate * MICROS
    assert micros == micros.to_integral_value(), rate
    return int(micros)
