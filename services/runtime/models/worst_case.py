"""The worst case of a model call, which its budget reserves, and the tokens that it has used in the end.

It must be an upper bound: every token has at least a byte, so a request never has fewer bytes than tokens; the answer
is bounded by max_tokens, which is set for calls that set none.

Before: model_calls.py. After: services/families/ports/call_budgets.py.
"""

from loomlog.connectors.models.output_tool import OUTPUT_TOOL_TEXT
from loomlog.connectors.models.pricing import Price, cost_micros
from loomlog.connectors.protocols import ModelRequest
from loomlog.schemas.generated.values import Usage
from loomlog.services.families.ports.call_budgets import WorstCase

DEFAULT_MAX_TOKENS = 8_192
"""Output tokens of a call under a limit whose agent sets no maximum, so that there is a worst case."""


def worst_case(request: ModelRequest, price: Price | None, max_context_tokens: int) -> WorstCase:
    """Return the worst case of a request with max_tokens. `max_context_tokens` 0: the context window is not known."""
    assert request.max_tokens > 0, "without max_tokens there is no worst case"
    sent = len(repr((request.system, request.messages, request.tools)).encode(errors="replace"))
    if request.output_schema is not None:
        sent += len(repr((request.output_schema, OUTPUT_TOOL_TEXT)).encode(errors="replace"))
    if max_context_tokens:
        sent = min(sent, max_context_tokens)
    micros = 0
    if price is not None:
        dearest = Price(input=max(price.input, price.cache_write, price.cache_read), output=price.output)
        micros = cost_micros(dearest, Usage(input_tokens=sent, output_tokens=request.max_tokens)) + 1
    return WorstCase(sent + request.max_tokens, micros)


def total_tokens(usage: Usage) -> int:
    """Return the tokens of all kinds, as limits count them."""
    return usage.input_tokens + usage.output_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
