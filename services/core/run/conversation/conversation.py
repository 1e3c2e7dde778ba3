"""The conversation of a run as a model reads it next, and the fill of its context.

User texts wait while a turn is under way and join at its boundary. A run that ended in the middle of its tool calls
leaves calls without results; these get an error result, because no provider accepts open calls.

Before: the facts of a state. After: evolve at turn boundaries, the runs that continue this one, and forks.
"""

from typing import assert_never

from loomlog.schemas.conversation import Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import replace
from loomlog.services.core.run.conversation.compaction_split import estimate_text, estimate_tokens
from loomlog.services.core.run.run_facts import RunFacts, with_compaction_requested
from loomlog.services.core.run.state import (
    Absent,
    AwaitingModel,
    AwaitingTools,
    CallResult,
    Compacting,
    Ended,
    Parked,
    Paused,
    Refused,
    State,
)
from loomlog.services.core.run.turns import code_agents

NO_RESULT = "no result: the run ended before this call returned; the call may or may not have had its effect"
NOT_YET = "not returned yet"
"""For display only: no run continues a conversation whose calls are open."""


def build_conversation(state: State) -> tuple[Message, ...]:
    """Return the conversation, closed so that any provider accepts it: every call has a result.

    Open calls of a run that ended get an error result. Those of a live run are shown as not returned yet.
    """
    match state:
        case Absent(history=history):
            return history
        case Refused():
            return ()
        case AwaitingTools(facts=facts, results=answers):
            return join_waiting_inputs(
                replace(facts, messages=close_open_calls(facts.messages, answers, is_over=False))
            ).messages
        case Ended(facts=facts, results=answers):
            return close_open_calls(facts.messages, answers, is_over=True)
        case AwaitingModel(facts=facts) | Parked(facts=facts) | Paused(facts=facts) | Compacting(facts=facts):
            # Waiting texts are part of it: only a fork reads a live run.
            return join_waiting_inputs(facts).messages
        case _:
            assert_never(state)


def used_tokens(facts: RunFacts) -> int:
    """Return the fill of the context: the provider's last count, and an estimate of what came after.

    Before the first count, or if the provider counts nothing, all of it is an estimate.
    """
    known = facts.context
    system = 0 if known.messages else sum(map(estimate_text, facts.system))
    return known.tokens + system + estimate_tokens(facts.messages[known.messages :])


def has_reasoning(message: Message) -> bool:
    """Whether it is an answer with reasoning, or with a signature of reasoning."""
    return message.role == "assistant" and bool(message.reasoning or message.reasoning_signature)


def without_reasoning(message: Message) -> Message:
    return replace(message, reasoning="", reasoning_signature="") if has_reasoning(message) else message


def join_waiting_inputs(facts: RunFacts) -> RunFacts:
    """Append waiting user texts to the conversation, one message each, and clear the compaction request of the
    boundary.
    """
    if facts.compactions.is_requested:
        facts = with_compaction_requested(facts, is_requested=False)
    if not facts.waiting_inputs:
        return facts
    texts = tuple(Message(role="user", blocks=(_text_block(text),)) for text in facts.waiting_inputs)
    return replace(facts, messages=(*facts.messages, *texts), waiting_inputs=())


def _text_block(text: str | BlobRef) -> TextBlock:
    return TextBlock(text=text) if isinstance(text, str) else TextBlock(text="", blob=text)


def prepare_next_turn(facts: RunFacts) -> RunFacts:
    """Return the facts as the next turn reads them. A script is executed for one text, and to its
    end: all others wait.
    """
    if not code_agents.is_code_agent(facts.definition):
        return join_waiting_inputs(facts)
    if code_agents.is_mid_script(facts):
        return facts
    one, others = facts.waiting_inputs[:1], facts.waiting_inputs[1:]
    return replace(join_waiting_inputs(replace(facts, waiting_inputs=one)), waiting_inputs=others)


def result_block(result: CallResult) -> ToolResultBlock:
    return ToolResultBlock(
        tool_use_id=result.call.id,
        name=result.call.name,
        text=result.text,
        is_error=result.is_error,
        blob=result.blob,
        whole=result.whole,
    )


def close_open_calls(
    messages: tuple[Message, ...], answers: tuple[CallResult, ...], *, is_over: bool
) -> tuple[Message, ...]:
    """Give every call of the last message a result: its own, or one that says it is unknown."""
    if not messages or messages[-1].role != "assistant":
        return messages
    calls = [block for block in messages[-1].blocks if isinstance(block, ToolUseBlock)]
    if not calls:
        return messages
    blocks = {answer.index: result_block(answer) for answer in answers}
    results = tuple(
        blocks.get(index)
        or ToolResultBlock(
            tool_use_id=call.id, name=call.name, text=NO_RESULT if is_over else NOT_YET, is_error=is_over
        )
        for index, call in enumerate(calls)
    )
    return (*messages, Message(role="user", blocks=results))
