"""Forks: a new run that shares the events 1 to SEQ of another and makes new calls from there.

    where      after any event at which no tool call of the prefix is open: a call is never made twice, so a turn
               with missing results cannot be shared. After the last result, after an answer, before a model call,
               at the end, whatever the status.
    what       the conversation up to there, including texts that waited for the next turn. Turns, tokens and cost
               start at zero: they count what the fork itself did.
    with what  the definition of the origin, or another; overrides change it field by field. Tools only ever narrow.
    for whom   the user of the origin. If the origin was imported and not restored, its definition and user are
               unverified content of a file: the fork is for the user in the command, and has what its agent has here.

Where the prefix ends with an answer, the model would have nothing to respond to, so the fork must bring a text.

Before: services/runtime/run/command_handler.py has read the prefix from the log. After: the events are appended, then
react. Not chosen: repeating open calls under new keys (an effect of the origin could happen twice), copying the
conversation into the event (a fork of a long run would not fit one append, and the origin is kept for ever anyway).
"""

import hashlib
import json
from typing import Any, assert_never

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_commands import ForkRun
from loomlog.schemas.generated.run_events import Event, ModelCallRequested, RunRefused, RunStarted
from loomlog.schemas.generated.values import (
    AgentDefinition,
    BlobRef,
    DefinitionOverrides,
    ForkPoint,
    RunOptions,
    RunPosition,
    Sampling,
    Segment,
    SkillPin,
)
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import CommandRefusal, ForkCommand
from loomlog.services.core.run.conversation import compaction
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.conversation.prompt import effective_segments, segments_error
from loomlog.services.core.run.lifecycle import pause
from loomlog.services.core.run.lifecycle.start import handle_in_use
from loomlog.services.core.run.state import (
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    Parked,
    Paused,
    Refused,
    State,
)

BAD_POINT = "bad_fork_point"
"""Refusal code for the fork point, as opposed to the request."""
LONG_TEXTS = (
    ("system_prompt", "system_prompt_blob"),
    ("code_body", "code_blob"),
    ("output_schema", "output_schema_blob"),
)
"""Texts of a definition with the fields of their references, which are set when the text is long."""
OUTPUT_FIELDS = ("output_schema", "output_schema_blob", "output_schema_sha256", "output_retries")
DIGEST_PREFIX_MIN = 8
"""Hex digits needed to name a definition by its hash; fewer could match two by accident."""


def fork_run(state: State, request: ForkCommand) -> list[Event]:
    """Return the first events of a fork, or its refusal."""
    if not isinstance(state, Absent):
        return []  # the same fork repeated: it already has its events
    refusal = _fork_refusal(request)
    command = request.command
    if refusal is not None:
        return [
            RunRefused(
                session_id=request.session_id,
                agent_id=request.agent_id,
                agent=request.definition.name if request.definition is not None else command.agent,
                code=refusal.code,
                message=refusal.message,
            )
        ]
    origin, definition = request.origin, request.definition
    assert origin is not None
    assert definition is not None
    before = origin.started
    started: list[Event] = [
        RunStarted(
            session_id=request.session_id,
            agent_id=request.agent_id,
            subject=command.envelope.subject,
            user_id=fork_user_id(command, before),
            definition=definition,
            # A seed has no text: each run that continues it brings its own.
            segments=()
            if command.seed
            else (*system_segments(before.segments), *effective_segments(command.segments, command.prompt)),
            options=_fork_options(command, before, definition),
            idempotency_key=command.idempotency_key,
            request_sha256=command.request_sha256,
            forked_from=origin.point,
            traceparent=request.traceparent,
            seed=command.seed,
            skill_pins=() if is_foreign_event(before) else shared_skill_pins(origin.state),
            memory_context=request.memory_context,
        ),
        *map(pause.pause_requested, request.pauses),
    ]
    if command.seed:
        return [*started, *compaction.begin_seed(state, started, request.at_ms)]
    return [
        *started,
        pause.run_paused(request.pauses, 1)
        if request.pauses
        else ModelCallRequested(turn=1, attempt=1, provider=definition.provider, model=definition.model),
    ]


def conversation_origin(first: Event | None) -> RunPosition | ForkPoint | None:
    """Return the source of the inherited conversation of a run with this first event; None if it inherits none."""
    return first.forked_from or first.continues if isinstance(first, RunStarted) else None


def is_foreign_event(started: RunStarted) -> bool:
    """Whether definition and user of a run with this first event are untrusted: it was imported from a file of unknown
    author, and not as the restored state of an installation.
    """
    return started.imported_from is not None and not started.imported_from.restored


def fork_user_id(command: ForkRun, origin: RunStarted) -> str:
    """Return the end user of a fork."""
    return command.user_id if is_foreign_event(origin) else origin.user_id


def system_segments(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return the system segments of a request. They are no part of the conversation, so a fork repeats them."""
    return tuple(segment for segment in segments if segment.role == "system")


def fork_point_error(state: State) -> str:
    """Return why a run cannot be forked in this state; empty if it can."""
    match state:
        case Absent():
            return "there is nothing to share before the first event"
        case Refused():
            return "the run was refused, so it never began"
        case AwaitingTools(turn=turn, requested_calls=asked, results=answers):
            missing = len(asked) - len(answers)
            if missing:
                return f"{missing} of {len(asked)} tool calls of turn {turn} have no result yet"
            return ""
        case AwaitingModel() | Parked() | Paused() | Compacting() | Ended():
            return ""
        case _:
            assert_never(state)


def shared_skill_pins(state: State) -> tuple[SkillPin, ...]:
    """Return the versions of skills that a fork keeps to because its prefix has used them."""
    return () if isinstance(state, Absent | Refused) else state.facts.skill_pins


def needs_text(shared: tuple[Message, ...]) -> bool:
    """Whether a model would have nothing to respond to in this conversation."""
    return not shared or shared[-1].role != "user"


def _fork_refusal(request: ForkCommand) -> CommandRefusal | None:
    """Return the first problem, in the admission order of a start."""
    command, origin = request.command, request.origin
    if request.origin_refusal is not None:
        return request.origin_refusal
    if origin is None:
        return CommandRefusal(
            code="not_found", message=f"there is no event {command.at_seq} of a run {command.origin_run_id}"
        )
    if wrong := fork_point_error(origin.state):
        return CommandRefusal(
            code=BAD_POINT,
            message=f"{command.origin_run_id} cannot be forked at {command.at_seq}: {wrong}; "
            "choose an event before the calls were asked for, or after the last of their results",
        )
    if request.handle_live_run:
        return handle_in_use(request.agent_id)
    if request.definition_refusal is not None:
        return request.definition_refusal
    segments = effective_segments(command.segments, command.prompt)
    if command.seed:
        return (
            CommandRefusal(
                code="bad_request", message=f"a seed is {' or '.join(compaction.SEEDS)} and says nothing itself"
            )
            if segments or command.seed not in compaction.SEEDS
            else compaction.history_refusal(build_conversation(origin.state), command.seed, request.pauses)
        )
    wrong = segments_error(segments)
    if system_segments(segments):
        wrong = "a fork takes user segments only: its system texts are those of the origin and of its definition"
    if not wrong and not any(segment.content for segment in segments) and needs_text(build_conversation(origin.state)):
        wrong = (
            f"at {command.at_seq} the last word is the agent's, so the fork needs a prompt to go on with; "
            "or fork before that answer"
        )
    return CommandRefusal(code="bad_request", message=wrong) if wrong else None


# --- definitions -----------------------------------------------------------------------------------------------------


def override_definition(
    definition: AgentDefinition, overrides: DefinitionOverrides | None, *, tools: tuple[str, ...]
) -> AgentDefinition:
    """Return the definition with the overrides applied; `tools` are those left after narrowing.

    Its hash is that of its own content, so that two equal definitions compare as equal.
    """
    if overrides is None:
        return definition
    changes: dict[str, Any] = {
        name: value
        for name in ("provider", "model", "effort", "system_prompt", "max_tokens", "max_iterations", "retry_attempts")
        if (value := getattr(overrides, name)) is not None
    }
    if changes.get("max_iterations"):
        changes["unbounded_iterations"] = False
    if "provider" in changes or "model" in changes:
        changes["candidates"] = ()  # an explicit model is final: no other candidates
    if "system_prompt" in changes:
        changes["system_prompt_blob"] = None
    changed = replace(
        definition, sampling=merge_sampling(definition.sampling, overrides.sampling), tools=tools, **changes
    )
    return definition if changed == definition else replace(changed, sha256=content_sha256(changed))


def merge_sampling(base: Sampling | None, over: Sampling | None) -> Sampling | None:
    """Merge two samplings; `over` wins in every field it sets."""
    if base is None or over is None:
        return over or base
    return Sampling(
        temperature=base.temperature if over.temperature is None else over.temperature,
        top_p=base.top_p if over.top_p is None else over.top_p,
        top_k=base.top_k if over.top_k is None else over.top_k,
        frequency_penalty=base.frequency_penalty if over.frequency_penalty is None else over.frequency_penalty,
        presence_penalty=base.presence_penalty if over.presence_penalty is None else over.presence_penalty,
        seed=base.seed if over.seed is None else over.seed,
        stop=over.stop or base.stop,
    )


def content_sha256(definition: AgentDefinition) -> str:
    """Return the hex SHA-256 over everything in a definition but its hash and pin. A long text counts by its hash,
    whether the definition has it or refers to it.
    """
    plain = definition.to_avro()
    del plain["sha256"], plain["pin"]
    for text, blob in LONG_TEXTS:
        if plain[blob] is not None or is_long(plain[text]):
            plain[text], plain[blob] = text_sha256(definition, text, blob), True
    plain["approvals"] = [[policy.source, policy.sha256] for policy in definition.approvals] or None
    for name in ("approvals", "compaction", "system_prompt_blob", "grants", *OUTPUT_FIELDS):
        if not plain[name]:
            del plain[name]  # definitions older than the field keep their hash
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_long(text: str) -> bool:
    """Whether a text of a definition belongs in the blob store."""
    if text.isascii():
        return len(text) > limits.DEFINITION_TEXT_INLINE_BYTES
    return len(text.encode(errors="replace")) > limits.DEFINITION_TEXT_INLINE_BYTES


def text_sha256(definition: AgentDefinition, text: str, blob: str) -> str:
    """Return the hex SHA-256 of a text that a definition has in one of these two fields."""
    ref: BlobRef | None = getattr(definition, blob)
    return hashlib.sha256(getattr(definition, text).encode(errors="replace")).hexdigest() if ref is None else ref.sha256


def _fork_options(command: ForkRun, origin: RunStarted, definition: AgentDefinition) -> RunOptions:
    """Options of the origin; credentials and who pays are those of the caller."""
    before = origin.options
    timeout_s = before.run_timeout_s or (definition.run_timeout_s if is_foreign_event(origin) else 0)
    return RunOptions(
        user_tier=before.user_tier,
        allowed_hosts=before.allowed_hosts,
        web_search_filter=before.web_search_filter,
        metadata=before.metadata,
        interactive=before.interactive if command.interactive is None else command.interactive,
        run_timeout_s=timeout_s,
        credentials=command.credentials,
        operator_key_restricted=command.operator_key_restricted,
    )
