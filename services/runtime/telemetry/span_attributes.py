"""Span attributes of a run, named by OpenTelemetry's GenAI conventions; attributes these lack begin with loomlog.

Only names, kinds, ids and numbers: no text of a prompt, an answer, a tool or an error. A name invented by the model
counts as text. Pure. After: otel.py.
"""

from collections.abc import Mapping, Sequence

from loomlog.connectors.protocols import Reply
from loomlog.schemas.generated.values import Usage
from loomlog.services.core.run.react import CallModel, CallTool, Summarise
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools, Ended
from loomlog.services.runtime.telemetry.tracing import tool_name

WELL_KNOWN_PROVIDERS: Mapping[str, str] = {"gemini": "gcp.gemini"}
"""Provider ids of loomlog for which the conventions have another name."""

Attributes = dict[str, str | int | bool | Sequence[str]]


def model_call_attributes(effect: CallModel | Summarise, facts: RunFacts) -> Attributes:
    attributes = _common_attributes(facts) | {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _provider_name(effect.provider),
        "gen_ai.request.model": effect.model,
        "gen_ai.request.stream": True,
        "loomlog.turn": effect.turn,
        "loomlog.attempt": effect.attempt,
    }
    if isinstance(effect, Summarise):
        return attributes | {"loomlog.compaction": effect.number}
    if facts.definition.max_tokens:
        attributes["gen_ai.request.max_tokens"] = facts.definition.max_tokens
    return attributes


def reply_attributes(reply: Reply) -> Attributes:
    attributes = _usage_attributes(reply.usage) | {"gen_ai.response.finish_reasons": (reply.stop_reason,)}
    if reply.model:
        attributes["gen_ai.response.model"] = reply.model
    return attributes


def tool_call_attributes(effect: CallTool, state: AwaitingTools) -> Attributes:
    return _common_attributes(state.facts) | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool_name(effect, state),
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": effect.call_id,
        "loomlog.turn": effect.turn,
        "loomlog.attempt": effect.attempt,
        "loomlog.tool.effect_class": effect.effect_class,
    }


def turn_attributes(facts: RunFacts, turn: int) -> Attributes:
    return _common_attributes(facts) | {"loomlog.turn": turn}


def run_attributes(state: Ended, tenant: str) -> Attributes:
    facts, definition = state.facts, state.facts.definition
    attributes = (
        _common_attributes(facts)
        | _usage_attributes(facts.usage)
        | {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.version": definition.sha256,
            "gen_ai.provider.name": _provider_name(facts.current_model.provider),
            "gen_ai.request.model": facts.current_model.model,
            "loomlog.tenant": tenant,
            "loomlog.run.status": state.status,
            "loomlog.run.turns": facts.turns,
        }
    )
    if state.status == "completed":
        # For a run that failed or was cancelled the reason is free text.
        attributes["gen_ai.response.finish_reasons"] = (state.reason,)
    if facts.currency:
        attributes |= {"loomlog.cost.micros": facts.cost_micros, "loomlog.cost.currency": facts.currency}
    return attributes


def _common_attributes(facts: RunFacts) -> Attributes:
    return {
        "gen_ai.agent.name": facts.definition.name,
        "gen_ai.conversation.id": facts.session_id,
        "loomlog.run.id": facts.run_id,
    }


def _usage_attributes(usage: Usage) -> Attributes:
    """Return the token counts; the conventions count cached tokens as input, loomlog does not."""
    cached = usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens + cached,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
    }


def _provider_name(name: str) -> str:
    return WELL_KNOWN_PROVIDERS.get(name, name)
