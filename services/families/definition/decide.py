"""Decisions about a line of definitions.

The sender of a command has merged the overlay and checked the content already; a sender of its own on the topic may not
have, so content in clear is checked again here. Refusals carry the reasons of the API (operations.py).

Before: services/stream/entities/handler.py passes a command. After: state.py folds the events.
"""

import math
import re
from collections.abc import Sequence
from typing import assert_never

from loomlog.schemas.generated.definition_commands import (
    DefineVersion,
    DeleteLine,
    ForkVersion,
    ObserveStatic,
    PromoteVersion,
    RetireVersion,
    RollBack,
    SettleStage,
    StageVersion,
    SubmitJudgement,
)
from loomlog.schemas.generated.definition_events import (
    DefDeleted,
    DefPromoted,
    DefRestored,
    DefRetired,
    DefVersionCreated,
    RunJudged,
    StageSettled,
    StaticObserved,
    VersionStaged,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.families import At, TimerFired, name_problem
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.apply import Batch, BatchCommand, decide_batch
from loomlog.services.families.definition.items import dimension_problem
from loomlog.services.families.definition.state import (
    UNVERSIONED,
    VOLUME,
    DefinitionEvent,
    Line,
    Version,
    digest_of,
    evolve_line,
)

BLOB_NAME = re.compile(r"[0-9a-f]{64}\Z")
NO_LINE = Line()
NO_LINE_COMMAND = CommandRefused(code="invalid_definition", message="the kind apply is for batches only")
NO_BATCH_COMMAND = CommandRefused(code="invalid_definition", message="a batch has the kind apply")
CONFLICT = "definition_conflict"

LineCommand = (
    DefineVersion
    | ForkVersion
    | PromoteVersion
    | RollBack
    | RetireVersion
    | DeleteLine
    | ObserveStatic
    | SubmitJudgement
    | StageVersion
    | SettleStage
)
DefinitionCommand = LineCommand | BatchCommand
WAITING = DefineVersion | ForkVersion | PromoteVersion | RollBack | RetireVersion | DeleteLine
"""Commands that a line refuses while it waits for a batch."""
Decision = Sequence[DefinitionEvent | CommandRefused]


def decide(state: Line | Batch, command: DefinitionCommand | TimerFired, at: At) -> Decision:
    """Return the events that follow a command."""
    if isinstance(state, Batch):
        return decide_batch(state, command, at) if isinstance(command, BatchCommand) else [NO_LINE_COMMAND]
    if isinstance(command, BatchCommand):
        return [NO_BATCH_COMMAND]
    try:
        if state.staged and isinstance(command, WAITING):
            raise Refused(CONFLICT, f"{state.name} waits for the batch {state.staged_by}: ask again")
        return _decide(state, command, at)
    except Refused as refused:
        return [CommandRefused(code=refused.code, message=refused.message)]


def _decide(line: Line, command: LineCommand | TimerFired, at: At) -> Decision:
    match command:
        case DefineVersion():
            return _define(line, command, at)
        case ForkVersion():
            return _fork(line, command, at)
        case PromoteVersion():
            _expect_active(line, command.expect_active)
            number = _number(line, command.def_id)
            if number == line.active:
                return []
            return [_promoted(line, number, command, at)]
        case RollBack():
            return [_rolled_back(line, command, at)]
        case RetireVersion():
            return _retire(line, command, at)
        case DeleteLine():
            _require_line(line)
            _expect_content(line, command.expect_sha256)
            return [DefDeleted(kind=line.kind, name=line.name, why=command.why, by=at.caller)]
        case ObserveStatic():
            return _observe(line, command, at)
        case SubmitJudgement():
            return [_judged(line, command, at)]
        case StageVersion():
            return _stage(line, command, at)
        case SettleStage():
            return _settle(line, command, at)
        case TimerFired():
            return _expired(line, at)
        case _:
            assert_never(command)


def next_timer_ms(state: Line | Batch) -> int:
    """When the next version expires, UTC milliseconds; 0: none does."""
    line = state if isinstance(state, Line) else NO_LINE
    return min((one.expires_at_ms for one in line.versions if one.expires_at_ms and not one.is_retired), default=0)


# --- versions --------------------------------------------------------------------------------------------------------


def _define(line: Line, command: DefineVersion, at: At) -> Decision:
    _check(line, command)
    _expect_active(line, command.expect_active)
    _check_ceiling(command.tools, command.ceiling, "the author's tools")
    active = line.active_version
    digest = digest_of(command.content, command.content_blob)
    if active is not None and active.digest == digest:
        return []  # deduplicated
    number = _next_number(line)
    created = _created(line, command, number, at, parent="", root=number)
    return [created, *_promotion(line, created, command.promote, at)]


def _fork(line: Line, command: ForkVersion, at: At) -> Decision:
    _check(line, command)
    _expect_active(line, command.expect_active)
    versions = _derived(line, command, at)
    _check_ceiling(command.tools, command.ceiling, "the author's tools")
    for event in versions[:-1]:
        line = evolve_line(line, event, at.at_ms)
    return [*versions, *_promotion(line, versions[-1], command.promote, at)]


def _derived(line: Line, command: ForkVersion | StageVersion, at: At) -> list[DefVersionCreated]:
    """Return the version that is made from another one, after that of the file if it is made from that."""
    first: list[DefVersionCreated] = []
    parent = command.parent_def_id
    if not parent and (isinstance(command, ForkVersion) or command.base_content or command.base_blob is not None):
        number, first = _bootstrapped(line, command, at)
        parent = line.id_of(number)
        for event in first:
            line = evolve_line(line, event, at.at_ms)
    own = line.number_of(parent) if parent else 0
    number = _next_number(line)
    root = number
    root_tools = command.root_tools
    if own:
        parent_version = line.version(own)
        assert parent_version is not None
        root = parent_version.root or own
        root_version = line.version(root)
        root_tools = root_version.tools if root_version is not None else None
    _check_ceiling(command.tools, root_tools, "the tools of the root of its lineage")
    created = _created(line, command, number, at, parent=parent, root=root)
    if root == number and parent:  # the root of the lineage is of another line, or unknown
        created = replace(created, tools=root_tools)
    return [*first, created]


def _bootstrapped(line: Line, command: ForkVersion | StageVersion, at: At) -> tuple[int, list[DefVersionCreated]]:
    """Return the number of the version that has the content of the file, and its event if it is new."""
    if not command.base_content and command.base_blob is None:
        raise Refused("missing_field", "missing required field: parent_def_id")
    _check_stored(command.base_content, command.base_blob, "base")
    digest = digest_of(command.base_content, command.base_blob)
    for version in reversed(line.versions):
        if version.is_bootstrapped and version.digest == digest:
            return version.number, []
    number = _next_number(line)
    created = DefVersionCreated(
        kind=line.kind,
        name=line.name,
        version=number,
        def_id=line.id_of(number),
        content=command.base_content,
        content_blob=command.base_blob,
        content_sha256=command.base_sha256,
        description="what the configuration files say",
        tools=command.root_tools,
        root=number,
        is_bootstrapped=True,
        by=at.caller,
    )
    return number, [created]


def _created(
    line: Line, command: DefineVersion | ForkVersion | StageVersion, number: int, at: At, *, parent: str, root: int
) -> DefVersionCreated:
    return copy_as(
        DefVersionCreated,
        command,
        kind=line.kind,
        name=line.name,
        version=number,
        def_id=line.id_of(number),
        parent_def_id=parent,
        root=root,
        expires_at_ms=0 if isinstance(command, StageVersion) else command.expires_at_ms,
        by=command.by if isinstance(command, StageVersion) else at.caller,
    )


def _promotion(line: Line, created: DefVersionCreated, promote: bool, at: At) -> list[DefPromoted]:
    if not promote:
        return []
    return [
        DefPromoted(
            kind=line.kind,
            name=line.name,
            from_def_id=line.id_of(line.active),
            to_def_id=created.def_id,
            version=created.version,
            why=created.description,
            by_agent_id=created.created_by_agent_id,
            by=at.caller,
        )
    ]


def _check(line: Line, command: DefineVersion | ForkVersion | StageVersion) -> None:
    """Check what a sender of its own may have left out."""
    if len(command.description.encode()) > limits.DESCRIPTION_BYTES_MAX:
        raise Refused("too_large", f"description: at most {limits.DESCRIPTION_BYTES_MAX} bytes")
    _check_stored(command.content, command.content_blob, "content")
    for tools in (command.tools, None if isinstance(command, DefineVersion) else command.root_tools):
        if tools is not None and sum(map(len, tools)) > limits.TOOLS_CHARACTERS_MAX:
            raise Refused("too_large", f"tools: at most {limits.TOOLS_CHARACTERS_MAX} characters together")
    # Imported here, because the command line reads the declarations of families and checks no definition.
    from loomlog.connectors.definitions import KINDS, DefinitionProblem
    from loomlog.services.families.definition.channel_content import parse_channel
    from loomlog.services.families.definition.content import parse_content
    from loomlog.services.families.definition.volume_content import parse_volume

    kind = KINDS.get(line.kind)
    if kind is None and line.kind not in UNVERSIONED:
        raise Refused("invalid_definition", f"kind is {line.kind[:60]!r}: expected {', '.join(sorted(KINDS))}")
    try:
        if kind is None:
            content = parse_content(command.content)
            if line.kind == VOLUME:
                parse_volume(line.name, content)
            else:
                parse_channel(line.tenant, line.name, content)
            return
        kind.check_name(line.name)
        if command.content:
            kind.check(kind.block_of(parse_content(command.content)))
    except DefinitionProblem as problem:
        raise Refused(problem.reason, problem.message) from problem


def _check_stored(content: str, blob: BlobRef | None, field: str) -> None:
    """Check that there is a content: short and in clear, or a reference to the blob store."""
    from loomlog.connectors.crypto.content_encryption import has_tokens

    if not content and blob is None:
        raise Refused("missing_field", f"missing required field: {field}")
    if blob is not None and not BLOB_NAME.match(blob.sha256):
        raise Refused("invalid_definition", f"{field}_blob: sha256 must be 64 lower-case hex digits")
    if len(content.encode()) > limits.INLINE_BYTES_MAX:
        text = f"{field}: at most {limits.INLINE_BYTES_MAX} bytes; a longer one is stored as {field}_blob"
        raise Refused("too_large", text)
    if has_tokens(content):  # it would be opened for the runs of the definition
        raise Refused("invalid_definition", f"{field}: holds encrypted text")


def _check_ceiling(tools: tuple[str, ...] | None, ceiling: tuple[str, ...] | None, whose: str) -> None:
    from loomlog.connectors.definitions.tool_grants import covers

    wider = covers(ceiling, tools) if tools is not None and ceiling is not None else ()
    if wider:
        raise Refused("tools_widened", f"cannot widen {whose}: {', '.join(wider[:10])} is not among them")


def _next_number(line: Line) -> int:
    if len(line.versions) >= limits.VERSIONS_MAX:
        raise Refused("too_many", f"{line.name} has {limits.VERSIONS_MAX} versions, and none is ever removed")
    return len(line.versions) + 1


def _expect_active(line: Line, expected: str | None) -> None:
    present = line.id_of(line.active)
    if expected is not None and expected != present:
        shown = present or "none"
        raise Refused(
            CONFLICT, f"{line.name}: the active version is {shown}, and {expected[:80] or 'none'} was expected"
        )


def _expect_content(line: Line, sha256: str) -> None:
    active = line.active_version
    if sha256 and (active is None or active.digest.hex() != sha256):
        raise Refused(CONFLICT, f"{line.name}: other content is active than was expected")


def _require_line(line: Line) -> None:
    if not line.versions or line.is_deleted:
        raise Refused("not_found", f"{line.kind} {line.name} not found")


def _number(line: Line, def_id: str) -> int:
    """Return the number of a version that may be active."""
    number = line.number_of(def_id)
    version = line.version(number)
    if version is None or line.is_deleted:
        raise Refused("not_found", f"version {def_id[:80]} of {line.name} not found")
    if version.is_retired:
        raise Refused("retired", f"version {def_id} is retired; restore it first")
    return number


def _promoted(line: Line, number: int, command: PromoteVersion | RollBack, at: At, *, undoes: str = "") -> DefPromoted:
    version = line.version(number)
    assert version is not None
    content = "" if version.content or version.blob is not None else command.content
    if not version.content and version.blob is None and digest_of(content, None) != version.digest:
        raise Refused("content_needed", f"the command must carry the content of version {number} of {line.name}")
    return DefPromoted(
        kind=line.kind,
        name=line.name,
        from_def_id=line.id_of(line.active),
        to_def_id=line.id_of(number),
        version=number,
        why=command.why,
        undoes=undoes,
        by_agent_id=command.by_agent_id,
        by=at.caller,
        content=content,
    )


def rollback_target(line: Line) -> Version | None:
    """Return the version that a rollback makes active: the newest earlier one that is not retired."""
    candidates = (line.version(number) for number in reversed(line.previous))
    return next((one for one in candidates if one is not None and not one.is_retired), None)


def _rolled_back(line: Line, command: RollBack, at: At) -> DefPromoted:
    _require_line(line)
    _expect_active(line, command.expect_active)
    target = rollback_target(line)
    if target is None:
        raise Refused("not_found", f"{line.name}: an earlier active version is not found")
    return _promoted(line, target.number, command, at, undoes=line.id_of(line.active) or line.id_of(target.number))


def _retire(line: Line, command: RetireVersion, at: At) -> Decision:
    number = line.number_of(command.def_id)
    version = line.version(number)
    if version is None or line.is_deleted:
        raise Refused("not_found", f"version {command.def_id[:80]} of {line.name} not found")
    if version.is_retired == command.retired:
        return []
    if command.retired:
        return [_retired(line, number, command.why, at.caller)]
    restored = DefRestored(
        kind=line.kind, name=line.name, def_id=command.def_id, version=number, why=command.why, by=at.caller
    )
    return [restored]


def _retired(line: Line, number: int, why: str, by: str) -> DefRetired:
    return DefRetired(
        kind=line.kind,
        name=line.name,
        def_id=line.id_of(number),
        version=number,
        was_active=line.active == number,
        why=why,
        by=by,
    )


def _expired(line: Line, at: At) -> Decision:
    due = [
        one.number
        for one in line.versions
        if one.expires_at_ms and one.expires_at_ms <= at.at_ms and not one.is_retired
    ]
    return [_retired(line, number, "its time is over", at.caller) for number in due]


# --- batches -------------------------------------------------------------------------------------------------------


def _stage(line: Line, command: StageVersion, at: At) -> Decision:
    """Make a version that waits for its batch. A refusal is an event too, because the batch must be answered."""
    try:
        if line.staged:
            raise Refused(CONFLICT, f"it waits for the batch {line.staged_by}")
        _check(line, command)
        _expect_active(line, command.expect_active)
        active = line.active_version
        if active is not None and active.digest == digest_of(command.content, command.content_blob):
            return [_staged(line, command, def_id=line.id_of(active.number), version=active.number)]  # deduplicated
        versions = _derived(line, command, at)
    except Refused as refused:
        return [_staged(line, command, reason=refused.code, message=refused.message)]
    created = versions[-1]
    # First, so that a process that has read the version knows what it waits for.
    return [_staged(line, command, def_id=created.def_id, version=created.version), *versions]


def _staged(
    line: Line, command: StageVersion, *, def_id: str = "", version: int = 0, reason: str = "", message: str = ""
) -> VersionStaged:
    return VersionStaged(
        kind=line.kind,
        name=line.name,
        batch=command.batch,
        change=command.change,
        def_id=def_id,
        version=version,
        reason=reason,
        message=message,
    )


def _settle(line: Line, command: SettleStage, at: At) -> Decision:
    staged = line.version(line.staged)
    if staged is None or line.staged_by != command.batch:
        return []
    if not command.is_applied or staged.is_retired or staged.number == line.active:
        return [StageSettled(kind=line.kind, name=line.name, batch=command.batch, version=staged.number)]
    return [
        DefPromoted(
            kind=line.kind,
            name=line.name,
            from_def_id=line.id_of(line.active),
            to_def_id=line.id_of(staged.number),
            version=staged.number,
            why=command.why,
            by_agent_id=staged.created_by_agent_id,
            by=command.by,
            batch=command.batch,
            applied_at_ms=command.envelope.issued_at_ms,
        )
    ]


# --- files and judgements --------------------------------------------------------------------------------------------


def _observe(line: Line, command: ObserveStatic, at: At) -> Decision:
    _check_stored(command.content, command.content_blob, "content")
    if len(command.observer) > limits.NAME_CHARACTERS_MAX:
        raise Refused("too_large", f"observer: at most {limits.NAME_CHARACTERS_MAX} characters")
    digest = digest_of(command.content, command.content_blob)
    observed, at_ms = line.static.observed_by(command.observer) if line.static is not None else (b"", 0)
    if observed == digest and at.at_ms - at_ms < limits.OBSERVED_AGAIN_MS:
        return []
    return [copy_as(StaticObserved, command, kind=line.kind, name=line.name)]


def _judged(line: Line, command: SubmitJudgement, at: At) -> RunJudged:
    if not math.isfinite(command.score) or not all(map(math.isfinite, command.dimensions.values())):
        raise Refused("invalid_definition", "score and dimensions: expected finite numbers")
    if len(command.dimensions) > limits.DIMENSIONS_MAX:
        raise Refused("too_many", f"dimensions: at most {limits.DIMENSIONS_MAX}")
    _check_judgement(command)
    return RunJudged(
        kind=line.kind,
        name=line.name,
        eval_id=command.eval_id,
        run_id=command.run_id,
        def_id=command.def_id,
        # A run from another installation may be pinned to a version that this line does not have.
        version=command.version if line.version(command.version) is not None else 0,
        score=command.score,
        dimensions=command.dimensions,
        judgement=command.judgement,
        rationale=command.rationale,
        emitter_role=command.emitter_role,
        emitter_agent_id=command.emitter_agent_id,
        emitter_run_id=command.emitter_run_id,
        user_id=command.user_id,
        by=at.caller,
    )


def _check_judgement(command: SubmitJudgement) -> None:
    """Check what becomes keys of rows, and lengths."""
    texts = {"eval_id": command.eval_id, "run_id": command.run_id, "def_id": command.def_id}
    for name, text in {**texts, "emitter_role": command.emitter_role}.items():
        if problem := name_problem(text):
            raise Refused("invalid_definition", f"{name}: {problem}")
    if len(command.eval_id.encode()) > limits.JUDGEMENT_ID_BYTES_MAX:
        raise Refused("too_large", f"eval_id: at most {limits.JUDGEMENT_ID_BYTES_MAX} bytes")
    for name in command.dimensions:
        if problem := dimension_problem(name):
            raise Refused("bad_name", f"dimensions: the name {name[:80]!r} {problem}")
    lengths = {"judgement": limits.JUDGEMENT_BYTES_MAX, "rationale": limits.RATIONALE_BYTES_MAX}
    for name, bytes_max in lengths.items():
        if len(getattr(command, name).encode()) > limits.CIPHERTEXT_GROWTH * bytes_max:
            raise Refused("too_large", f"{name}: at most {bytes_max} bytes")
