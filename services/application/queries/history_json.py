"""A run at a given event, a replay and a comparison as JSON, one shape for every transport.

Before: run_history.py. After: a transport writes it.
"""

from typing import Any, assert_never

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.conversation import Block, ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import AgentDefinition, BlobRef
from loomlog.services.application.queries.json_types import (
    BlobText,
    ComparedCall,
    ComparedRun,
    ComparedStep,
    ConversationMessage,
    ForkPointJson,
    MessageBlock,
    OpenToolCall,
    RunComparison,
    RunCounters,
    RunPhase,
    RunReplay,
    RunStateAt,
    SharedEvent,
    StepPair,
    TimelineEvent,
    ValueDifference,
)
from loomlog.services.application.queries.run_history import ReplayProof, RunAt, RunPair
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.history.comparison import (
    CallStep,
    CommonPoint,
    ConversationStep,
    Difference,
    Figures,
    accepted_facts,
    fork_point_of,
)
from loomlog.services.core.run.history.replay import ReplayResult, TimelineEntry
from loomlog.services.core.run.lifecycle.fork import fork_point_error, needs_text
from loomlog.services.core.run.state import (
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    OpenCall,
    Parked,
    Paused,
    Refused,
    State,
)


def run_at_json(run_at: RunAt) -> RunStateAt:
    """Return the JSON of a run as it was."""
    replayed, row = run_at.replayed, run_at.row
    state = replayed.state
    last = replayed.entries[-1] if replayed.entries else None
    shared = build_conversation(state)
    unfit = fork_point_error(state)
    return {
        "run_id": replayed.run_id,
        "session_id": row.session_id,
        "at": replayed.seq,
        "last_seq": row.last_seq,
        "event": None if last is None else entry_json(last),
        "status": replayed.status,
        **_phase(state),
        **_counters(state),
        "messages": [message_json(message) for message in shared],
        "forked_from": _forked_from(replayed),
        "forkable": not unfit,
        "not_forkable": unfit or None,
        "fork_needs_prompt": not unfit and needs_text(shared),
        "state_sha256": replayed.state_sha256,
        "tail_digest": replayed.tail_digest.hex(),
        "drift": list(replayed.drift),
    }


def proof_json(proof: ReplayProof) -> RunReplay:
    """Return the JSON of a replay; the same names as `loomlog replay --json`."""
    replayed = proof.replayed
    return {
        "run_id": replayed.run_id,
        "partition": proof.row.partition,
        "first_offset": replayed.entries[0].offset if replayed.entries else None,
        "last_offset": replayed.last_offset,
        "seq": replayed.seq,
        "status": replayed.status,
        "state_sha256": replayed.state_sha256,
        "tail_digest": replayed.tail_digest.hex(),
        "stale": proof.stale,
        "continues": proof.ancestor_count,
        "compared": not proof.not_compared,
        "not_compared": proof.not_compared or None,
        "drift": list(proof.drift),
        "first_drift_seq": replayed.first_drift_seq or None,
        "events": [entry_json(entry) for entry in replayed.entries],
    }


def comparison_json(run_pair: RunPair) -> RunComparison:
    """Return the JSON of two runs compared; `first` is the first step that differs."""
    comparison = run_pair.comparison
    first = None if comparison.first_difference is None else comparison.steps[comparison.first_difference]
    return {
        "a": _side_json(run_pair.a, comparison.figures_a),
        "b": _side_json(run_pair.b, comparison.figures_b),
        "common": None if comparison.common is None else _common_json(comparison.common),
        "same": comparison.is_same,
        "shared_steps": len(comparison.steps) if comparison.first_difference is None else comparison.first_difference,
        "first": None if first is None else _step_pair_json(first.place, first.a, first.b, first.differing_fields),
        "definition": [_difference_json(one) for one in comparison.definition],
        "system": [_difference_json(one) for one in comparison.system],
        "outcome": [_difference_json(one) for one in comparison.outcome],
        "steps": [_step_pair_json(pair.place, pair.a, pair.b, pair.differing_fields) for pair in comparison.steps],
    }


def entry_json(entry: TimelineEntry) -> TimelineEvent:
    """Return the JSON of an event on the timeline."""
    return {
        "seq": entry.seq,
        "offset": entry.offset,
        "term": entry.term,
        "at": format_rfc3339(entry.at_ms),
        "type": entry.type,
        "cause_id": entry.cause_id or None,
        "payload": entry.payload,
    }


def message_json(message: Message) -> ConversationMessage:
    """Return the JSON of a message as a model sees it; payloads in the blob store are named."""
    shown: ConversationMessage = {"role": message.role, "content": [_block_json(block) for block in message.blocks]}
    if message.reasoning:
        shown["reasoning"] = message.reasoning
    return shown


def _block_json(block: Block) -> MessageBlock:
    match block:
        case TextBlock():
            return _with_blob({"type": "text", "text": block.text}, block.blob)
        case ImageBlock():
            return _with_blob({"type": "image", "media_type": block.media_type}, block.blob)
        case ToolUseBlock():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        case ToolResultBlock():
            result: MessageBlock = {
                "type": "tool_result",
                "tool_use_id": block.tool_use_id,
                "name": block.name,
                "text": block.text,
                "is_error": block.is_error,
            }
            return _with_blob(result, block.blob)
        case _:
            assert_never(block)


def _with_blob(block: MessageBlock, ref: BlobRef | None) -> MessageBlock:
    if ref is not None:
        block["blob"] = ref.to_avro()
    return block


def _open_call(call: OpenCall) -> OpenToolCall:
    shown: OpenToolCall = {
        "index": call.index,
        "id": call.call.id,
        "name": call.call.name,
        "attempt": call.attempt,
    }
    if call.wait is not None:
        shown["channels"] = [queue.channel for queue in call.wait.queues]
    return shown


def _phase(state: State) -> RunPhase:
    """Return what the run waited for."""
    match state:
        case AwaitingModel():
            return {"phase": "awaiting_model", "turn": state.turn, "attempt": state.attempt, "open_calls": []}
        case AwaitingTools():
            opened = list(map(_open_call, state.open))
            return {"phase": "awaiting_tools", "turn": state.turn, "attempt": None, "open_calls": opened}
        case Parked(facts=facts):
            return {"phase": "parked", "turn": facts.turns, "attempt": None, "open_calls": []}
        case Paused(facts=facts):
            return {"phase": "paused", "turn": facts.turns, "attempt": None, "open_calls": []}
        case Compacting(facts=facts):
            return {"phase": "compacting", "turn": facts.turns, "attempt": state.attempt, "open_calls": []}
        case Ended(facts=facts):
            return {"phase": "ended", "turn": facts.turns, "attempt": None, "open_calls": []}
        case Refused():
            return {"phase": "refused", "turn": 0, "attempt": None, "open_calls": []}
        case Absent():
            return {"phase": "absent", "turn": 0, "attempt": None, "open_calls": []}
        case _:
            assert_never(state)


def _counters(state: State) -> RunCounters:
    facts = accepted_facts(state)
    if facts is None:
        return {}
    return {
        "reason": state.reason if isinstance(state, Ended) else None,
        "turns": facts.turns,
        "usage": facts.usage.to_avro(),
        "cost_micros": facts.cost_micros,
        "currency": facts.currency or None,
        "model_errors": facts.model_errors,
        "definition": facts.definition.to_avro(),
        "system": [_text_json(text) for text in facts.system],
        "inherited_messages": facts.inherited_messages,
        "waiting_inputs": [_text_json(text) for text in facts.waiting_inputs],
        "interactive": facts.options.interactive,
        "quarantined": facts.quarantine_error or None,
    }


def _text_json(text: str | BlobRef) -> str | BlobText:
    return text if isinstance(text, str) else {"blob": text.to_avro()}


def _forked_from(replayed: ReplayResult) -> ForkPointJson | None:
    point = fork_point_of(replayed)
    return None if point is None else point.to_avro()


def _common_json(common: CommonPoint) -> SharedEvent:
    return {"run_id": common.run_id, "seq": common.seq}


def _side_json(run_at: RunAt, figures: Figures) -> ComparedRun:
    facts = accepted_facts(run_at.replayed.state)
    definition: AgentDefinition | None = None if facts is None else facts.definition
    return {
        "run_id": run_at.replayed.run_id,
        "at": run_at.replayed.seq,
        "status": run_at.replayed.status,
        "stop_reason": state.reason if isinstance(state := run_at.replayed.state, Ended) else None,
        "failed_children": run_at.row.failed_children,
        "agent": None if definition is None else definition.name,
        "definition_sha256": None if definition is None else definition.sha256,
        "turns": figures.turns,
        "input_tokens": figures.input_tokens,
        "output_tokens": figures.output_tokens,
        "cost_micros": figures.cost_micros,
        "currency": None if facts is None else facts.currency or None,
        "forked_from": _forked_from(run_at.replayed),
        "state_sha256": run_at.replayed.state_sha256,
    }


def _step_pair_json(
    index: int, a: ConversationStep | None, b: ConversationStep | None, differs: tuple[str, ...]
) -> StepPair:
    return {"place": index, "differs": list(differs), "a": _step_json(a), "b": _step_json(b)}


def _step_json(step: ConversationStep | None) -> ComparedStep | None:
    if step is None:
        return None
    return {
        "who": step.who,
        "turn": step.turn or None,
        "seq": step.seq or None,
        "text": step.text,
        "calls": [_call_json(call) for call in step.calls],
        "model": step.model or None,
        "stop_reason": step.stop_reason or None,
        "input_tokens": step.input_tokens,
        "output_tokens": step.output_tokens,
        "cost_micros": step.cost_micros,
    }


def _call_json(call: CallStep) -> ComparedCall:
    return {"name": call.name, "text": call.text, "is_error": call.is_error}


def _difference_json(difference: Difference) -> ValueDifference:
    return {"name": difference.name, "a": _to_json(difference.a), "b": _to_json(difference.b)}


def _to_json(value: Any) -> Any:
    if hasattr(value, "to_avro"):
        return value.to_avro()
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value
