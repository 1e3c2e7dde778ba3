"""Start of a run, or its refusal: the first problem of a StartRun, in the order of admission.

Before: services/core/run/decide.py, with what the owner found out about the request (StartCommand). After: RunStarted
with the intent of the first call (or of the compaction before it, when the inherited context is full enough), or
RunRefused with a code.
"""

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import Event, ModelCallRequested, RunRefused, RunStarted
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal, StartCommand
from loomlog.services.core.run.conversation import compaction as conversation_compaction
from loomlog.services.core.run.conversation.conversation import used_tokens
from loomlog.services.core.run.conversation.prompt import effective_segments, segments_error
from loomlog.services.core.run.lifecycle import budget_limits, pause
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Absent, State


def start_run(state: State, request: StartCommand) -> list[Event]:
    if not isinstance(state, Absent):
        return []  # the same start repeated: the run already has its events
    refusal = start_refusal(request, state.history)
    command = request.command
    if refusal is not None:
        return [
            RunRefused(
                session_id=request.session_id,
                agent_id=request.agent_id,
                agent=command.agent,
                code=refusal.code,
                message=refusal.message,
                limit=refusal.limit,
                about=refusal.about,
                cap=refusal.cap,
                trigger=command.options.trigger,
            )
        ]
    assert request.definition is not None
    definition = request.definition
    context_tokens, max_context_tokens = _inherited_context(request.previous_facts, state.history, definition)
    started: list[Event] = [
        RunStarted(
            session_id=request.session_id,
            agent_id=request.agent_id,
            subject=command.envelope.subject,
            user_id=command.user_id,
            definition=definition,
            segments=effective_segments(command.segments, command.prompt),
            options=replace(command.options, run_timeout_s=command.options.run_timeout_s or definition.run_timeout_s),
            idempotency_key=command.idempotency_key,
            request_sha256=command.request_sha256,
            continues=request.continues,
            traceparent=request.traceparent,
            parent_agent_id=request.parent.agent_id if request.parent is not None else "",
            parent=request.parent,
            seed=command.seed,
            context_tokens=context_tokens,
            max_context_tokens=max_context_tokens,
            memory_context=request.memory_context,
        ),
        *map(pause.pause_requested, request.pauses),
    ]
    if command.seed:
        return [*started, *conversation_compaction.begin_seed(state, started, request.at_ms)]
    if request.pauses:
        return [*started, pause.run_paused(request.pauses, 1)]
    if (
        compaction := conversation_compaction.due_before_first_turn(state, started, definition, request.at_ms)
    ) is not None:
        return [*started, compaction]
    return [*started, ModelCallRequested(turn=1, attempt=1, provider=definition.provider, model=definition.model)]


def _inherited_context(
    previous_facts: RunFacts | None, history: tuple[Message, ...], definition: AgentDefinition
) -> tuple[int, int]:
    """Return the size of the inherited context, and its window. Another model may have another window."""
    if previous_facts is None:
        return 0, 0
    is_same = (previous_facts.current_model.provider, previous_facts.current_model.model) == (
        definition.provider,
        definition.model,
    )
    return used_tokens(replace(previous_facts, messages=history)), previous_facts.max_context_tokens if is_same else 0


def handle_in_use(agent_id: str) -> CommandRefusal:
    """Refuse without naming the run that has the handle: it may belong to a user unknown to the caller."""
    return CommandRefusal(
        code="agent_id_in_use",
        message=f"agent_id_in_use: a live run has the handle {agent_id}; choose another or cancel it",
    )


def start_refusal(request: StartCommand, history: tuple[Message, ...]) -> CommandRefusal | None:
    """Return the first problem of the request, in the order of admission (runtime parity 1.2)."""
    if not request.session_exists:
        return CommandRefusal(code="not_found", message=f"session {request.session_id} does not exist")
    if request.session_live_run:
        return CommandRefusal(
            code="session_busy",
            message=f"session_busy: session {request.session_id} has the live run {request.session_live_run}; "
            "wait for it or cancel it",
        )
    if request.handle_live_run:
        return handle_in_use(request.agent_id)
    if request.definition_refusal is not None:
        return request.definition_refusal
    if request.command.seed:
        return conversation_compaction.seed_refusal(history, request.command, request.definition, request.pauses)
    wrong = _input_error(request.command)
    if wrong:
        return CommandRefusal(code="bad_request", message=wrong)
    if request.admission_refusal is not None:
        return request.admission_refusal
    return budget_limits.limit_refusal(request.exhausted_limit) if request.exhausted_limit is not None else None


def _input_error(command: StartRun) -> str:
    """Return the problem of the request's own texts; empty if there is none."""
    segments = effective_segments(command.segments, command.prompt)
    if not any(segment.role == "user" and segment.content for segment in segments):
        return "the run has no input: give a prompt or a segment with role user"
    return segments_error(segments)
