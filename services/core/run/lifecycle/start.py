"""How a run begins, or why it does not: the first thing wrong with a StartRun, in the order of admission.

Before: decide.py, with what the owner found out about the request (orders.Start). After: RunStarted with the intent of
the first call (or of the compaction before it, when the session is as full as that), or RunRefused with a code.
"""

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import Event, ModelCallRequested, RunRefused, RunStarted
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.services.core.changing import changed
from loomlog.services.core.run.commands import Refusal, Start
from loomlog.services.core.run.conversation import compaction as conversation_compaction
from loomlog.services.core.run.conversation.conversation import used_tokens
from loomlog.services.core.run.conversation.prompt import segments_of, wrong_segments
from loomlog.services.core.run.lifecycle import budget_limits, pause
from loomlog.services.core.run.run_facts import Facts
from loomlog.services.core.run.state import Absent, State


def start(state: State, order: Start) -> list[Event]:
    if not isinstance(state, Absent):
        return []  # the same run again: it already has its events
    refusal = refusal_of(order, state.history)
    command = order.command
    if refusal is not None:
        return [
            RunRefused(
                session_id=order.session_id,
                agent_id=order.agent_id,
                agent=command.agent,
                code=refusal.code,
                message=refusal.message,
                limit=refusal.limit,
                about=refusal.about,
                cap=refusal.cap,
            )
        ]
    assert order.definition is not None
    definition = order.definition
    context_tokens, max_context_tokens = _context_of(order.before, state.history, definition)
    started: list[Event] = [
        RunStarted(
            session_id=order.session_id,
            agent_id=order.agent_id,
            subject=command.envelope.subject,
            user_id=command.user_id,
            user_tier=command.user_tier,
            definition=definition,
            segments=segments_of(command.segments, command.prompt),
            allowed_hosts=command.allowed_hosts,
            metadata=command.metadata,
            parent_context=command.parent_context,
            interactive=command.interactive,
            idempotency_key=command.idempotency_key,
            request_sha256=command.request_sha256,
            continues=order.continues,
            traceparent=order.traceparent,
            credentials=command.credentials,
            run_timeout_s=command.run_timeout_s or definition.run_timeout_s,
            parent_agent_id=order.parent.agent_id if order.parent is not None else "",
            parent=order.parent,
            web_search_filter=command.web_search_filter,
            payload_metadata=command.payload_metadata,
            seed=command.seed,
            operator_key_restricted=command.operator_key_restricted,
            context_tokens=context_tokens,
            max_context_tokens=max_context_tokens,
        ),
        *map(pause.requested, order.pauses),
    ]
    if command.seed:
        return [*started, *conversation_compaction.first_of_seed(state, started, order.at_ms)]
    if order.pauses:
        return [*started, pause.held_back(order.pauses, 1)]
    if (compaction := conversation_compaction.due_first(state, started, definition, order.at_ms)) is not None:
        return [*started, compaction]
    return [*started, ModelCallRequested(turn=1, attempt=1, provider=definition.provider, model=definition.model)]


def _context_of(before: Facts | None, history: tuple[Message, ...], definition: AgentDefinition) -> tuple[int, int]:
    """How full the context is that the run goes on with, and its window. Another model may have another window."""
    if before is None:
        return 0, 0
    is_same = (before.current.provider, before.current.model) == (definition.provider, definition.model)
    return used_tokens(changed(before, messages=history)), before.max_context_tokens if is_same else 0


def handle_in_use(agent_id: str) -> Refusal:
    """Not which run has it: it may be that of a user of whom the one who asks knows nothing."""
    return Refusal(
        code="agent_id_in_use",
        message=f"agent_id_in_use: a live run has the handle {agent_id}; choose another or cancel it",
    )


def refusal_of(order: Start, history: tuple[Message, ...]) -> Refusal | None:
    """The first thing wrong with the request, in the order of admission (runtime parity 1.2)."""
    if not order.session_found:
        return Refusal(code="not_found", message=f"session {order.session_id} does not exist")
    if order.session_live_run:
        return Refusal(
            code="session_busy",
            message=f"session_busy: session {order.session_id} has the live run {order.session_live_run}; "
            "wait for it or cancel it",
        )
    if order.handle_live_run:
        return handle_in_use(order.agent_id)
    if order.unresolved is not None:
        return order.unresolved
    if order.command.seed:
        return conversation_compaction.wrong_seed(history, order.command, order.definition, order.pauses)
    wrong = _wrong_input(order.command)
    if wrong:
        return Refusal(code="bad_request", message=wrong)
    if order.turned_away is not None:
        return order.turned_away
    return budget_limits.refusal(order.exhausted) if order.exhausted is not None else None


def _wrong_input(command: StartRun) -> str:
    """What is wrong with the request's own words; empty when nothing is."""
    segments = segments_of(command.segments, command.prompt)
    if not any(segment.role == "user" and segment.content for segment in segments):
        return "the run has no input: give a prompt or a segment with role user"
    return wrong_segments(segments)
