"""Conversion of tokens to money, in whole numbers.

A price is millionths of the currency's unit per million tokens (1.25 USD per million = 1_250_000), so a cost in
millionths is tokens * price / 1_000_000, rounded once, half up, at the end. With floats the sum over turns would differ
in the last digit from the cost of the summed tokens, and a ledger must not.

Before: the usage projection. After: nothing; it is pure.
"""

from dataclasses import dataclass

from loomlog.schemas.generated.values import Usage

TOKENS_PER_PRICE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Micro-units per million tokens of each kind."""

    input: int
    output: int
    cache_write: int = 0
    cache_read: int = 0


def cost_micros(price: Price, usage: Usage) -> int:
    """Return the cost in micro-units, rounded half up."""
    scaled = (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_creation_input_tokens * price.cache_write
        + usage.cache_read_input_tokens * price.cache_read
    )
    assert scaled >= 0, f"a negative price or token count: {price} {usage}"
    return (2 * scaled + TOKENS_PER_PRICE) // (2 * TOKENS_PER_PRICE)
