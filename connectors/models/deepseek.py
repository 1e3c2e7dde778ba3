"""DeepSeek: the OpenAI wire with reasoning in the open.

Its models think aloud in `reasoning_content` and, after a tool call, refuse a conversation in which that is missing. So
it is sent back, and when a message that called tools has none (another provider wrote it), thinking is switched off for
the turn. It takes an effort on the models that think; none of them sees.

Before: catalog. After: openai.
"""

from loomlog.connectors.models.openai_request import Dialect, matches_name

THINKING_MODELS = ("*-pro", "*reasoner", "*-r1", "*v4")
"""Parts of the names of models that think (runtime parity 1.9)."""
NON_THINKING_MODEL = "deepseek-chat"

DEEPSEEK = Dialect(
    base_url="https://api.deepseek.com/v1",
    max_context_tokens=128_000,
    supports_thinking=True,
    supports_vision=False,
    echoes_reasoning=True,
    switches_thinking=True,
    effort_models=THINKING_MODELS,
    max_completion_tokens_models=(),
)


def non_thinking_sibling(model: str) -> str:
    """The model to use where thinking cannot be replayed; the same one when it does not think."""
    return NON_THINKING_MODEL if matches_name(model, THINKING_MODELS) else model
