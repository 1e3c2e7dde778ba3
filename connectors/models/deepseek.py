"""DeepSeek: the OpenAI wire with visible reasoning.

Its models return their reasoning in `reasoning_content` and, after a tool call, refuse a conversation that lacks it. So
it is sent back, and when a message that called tools has none (written by another provider), thinking is switched off
for the turn. The models that think take an effort, and refuse to be told that they must call a
tool; none has vision.

Before: catalog. After: openai.
"""

from loomlog.connectors.models.openai_request import Dialect, matches_name

THINKING_MODELS = ("*-pro", "*reasoner", "*-r1", "*v4")
"""Name patterns of models that think (runtime parity 1.9)."""
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
    requires_calls=False,
)


def non_thinking_sibling(model: str) -> str:
    """Return the model to use where thinking cannot be replayed; the same model when it does not think."""
    return NON_THINKING_MODEL if matches_name(model, THINKING_MODELS) else model
