"""What is done with definitions: one handler for the bodies of HTTP requests and the inputs of tool calls.

    create fork get list retire promote verify rollback delete      of the versioned kinds
    add_hook remove_hook                                            of schedules
    create get list delete purge                                    of volumes (volumes.py)

An overlay is merged and checked here, with what this process has read; the owner of the line decides. An answer is
given once this process has read the events, so its receiver can use the definition at once.

Before: services/api/definition_endpoints.py, services/runtime/tools/definition_tools.py. After:
services/stream/entities/client.py and decide.py; table.py.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.definitions import DefinitionProblem, Kind
from loomlog.connectors.definitions.schedule import SCHEDULE
from loomlog.connectors.definitions.team_diagram import render_diagram
from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.protocols import Blobs
from loomlog.schemas.generated.definition_commands import (
    DefineVersion,
    DeleteLine,
    ForkVersion,
    PromoteVersion,
    RetireVersion,
    RollBack,
)
from loomlog.schemas.generated.definition_events import DefVersionCreated
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.answers import names_row, version_row
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.authorship import Authorship
from loomlog.services.families.definition.composition import Composer, Composition, Origin
from loomlog.services.families.definition.content import parse_time_ms
from loomlog.services.families.definition.decide import CONFLICT, rollback_target
from loomlog.services.families.definition.schedule_shares import schedules_problem
from loomlog.services.families.definition.state import Line, Version
from loomlog.services.families.definition.table import SHARED, DefinitionTable
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandUnanswered, EntityCommands
from loomlog.services.stream.entities.reads import PositionNotRead
from loomlog.services.stream.entities.replicas import Replicas

WAIT_S = 30.0
"""Seconds to wait for the owner's answer, and again for its events."""
MERMAID = "mermaid"
UNKNOWN_OP, UNKNOWN_FIELD, MISSING, NOT_FOUND = "unknown_op", "unknown_field", "missing_field", "not_found"
FIELDS: Mapping[str, frozenset[str]] = {
    "create": frozenset({"name", "overlay", "description", "promote", "expect_active", "expires_at"}),
    "fork": frozenset({"name", "overlay", "description", "promote", "expect_active", "expires_at", "parent_def_id"}),
    "get": frozenset({"def_id"}),
    "list": frozenset({"name"}),
    "promote": frozenset({"def_id", "why", "expect_active"}),
    "rollback": frozenset({"name", "why", "expect_active"}),
    "retire": frozenset({"def_id", "retired", "why"}),
    "delete": frozenset({"name", "why"}),
    "verify": frozenset({"name", "content_sha256"}),
    "render_diagram": frozenset({"name", "def_id", "overlay", "format", "highlight_state"}),
    "add_hook": frozenset({"def_id", "hook"}),
    "remove_hook": frozenset({"def_id", "hook_index"}),
}
READS = frozenset({"get", "list", "verify", "render_diagram"})
HOOKS = "on_complete"
AfterChange = Callable[[Kind, str, str], Awaitable[None]]
"""Called after a change, with its kind, tenant and name, before it is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, and the position of the events behind it; empty for a read."""

    fields: Mapping[str, Any]
    position: str = ""


class DefinitionOperations:
    """The handler. All methods raise Refused and Unavailable."""

    def __init__(
        self,
        commands: EntityCommands,
        replicas: Replicas,
        table: DefinitionTable,
        *,
        blobs: Blobs,
        hosts: Collection[str] | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        """`hosts`: those that definitions may name as addresses to call; None: any."""
        self.table = table
        self._commands = commands
        self._replicas = replicas
        self.composer = Composer(table, blobs, hosts=hosts)
        self.authorship = Authorship(table)
        self.wait_s = wait_s
        self.after_change: AfterChange | None = None
        self._handlers: Mapping[str, Callable[[Kind, Mapping[str, Any], Author], Awaitable[Reply]]] = {
            "create": self._create,
            "fork": self._fork,
            "get": self._get,
            "list": self._list,
            "promote": self._promote,
            "rollback": self._roll_back,
            "retire": self._retire,
            "delete": self._delete,
            "verify": self._verify,
            "render_diagram": self._render_diagram,
            "add_hook": self._add_hook,
            "remove_hook": self._remove_hook,
        }

    async def run(self, kind: Kind, body: Any, author: Author) -> Reply:
        """Carry out an operation of a versioned kind; `body` is the JSON of the request or the call."""
        op, fields = parse_operation(body, operations_of(kind), FIELDS)
        try:
            reply = await self._handlers[op](kind, fields, author)
        except DefinitionProblem as problem:
            raise Refused(problem.reason, str(problem)) from problem
        except PositionNotRead as error:
            raise Unavailable(str(error)) from error
        except ConnectorError as error:
            raise Unavailable(str(error)) from error
        if self.after_change is not None and op not in READS:
            place = self.table.find(str(reply.fields.get("def_id", "")))
            if place is not None:
                await self.after_change(kind, place[0].tenant, place[0].name)
        return reply

    # --- making versions ---------------------------------------------------------------------------------------------

    async def _create(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        name = self._name(kind, fields, author)
        promote = flag_field(fields, "promote", default=True)
        self.authorship.require(kind.name, name, author, activates=promote)
        if self.is_static(kind, name):
            text = f"{name} is defined by a configuration file: fork it instead of creating it"
            raise Refused("static_name", text)
        overlay = overlay_field(fields)
        self.check_room(kind.name, name, author.tenant)
        made = await self.composer.compose(kind, name, overlay, Origin(), author)
        self.check_shares(kind, author, {name: made.content})
        command = DefineVersion(**self._version_fields(kind, name, fields, author, made, promote=promote))
        answer = await self.ask(command)
        line = self._line(kind, author.tenant, name)
        created = [event for event in answer.events if isinstance(event, DefVersionCreated)]
        if created:
            return await self._made(line, created[-1], made.content, answer)
        same = next((one for one in reversed(line.versions) if one.digest == made.stored.digest), None)
        if same is None:
            raise Refused(CONFLICT, f"{name} has changed meanwhile: ask again")
        return Reply(fields=await self.describe(line, same) | {"deduplicated": True}, position=answer.position)

    async def _fork(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        promote = flag_field(fields, "promote", default=kind.forks_promote)
        parent_id = text_field(fields, "parent_def_id")
        name, origin = self.origin(kind, text_field(fields, "name"), parent_id, author, activates=promote)
        if origin == Origin():
            raise Refused("parent_not_found", f"{kind.name} {name} not found: there is nothing to fork")
        self.check_room(kind.name, name, author.tenant)
        made = await self.composer.compose(kind, name, overlay_field(fields), origin, author)
        self.check_shares(kind, author, {name: made.content})
        command = ForkVersion(
            **self._version_fields(kind, name, fields, author, made, promote=promote),
            parent_def_id=origin.parent_id,
            base_content=made.base.text,
            base_blob=made.base.blob,
            base_sha256=origin.file.content_sha256 if origin.file is not None else "",
            root_tools=origin.root_tools(kind),
        )
        answer = await self.ask(command)
        created = [event for event in answer.events if isinstance(event, DefVersionCreated)]
        return await self._made(self._line(kind, author.tenant, name), created[-1], made.content, answer)

    async def _add_hook(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        if not isinstance(fields.get("hook"), Mapping):
            raise Refused(MISSING, "missing required field: hook, an object")
        line, version, hooks = await self._hooks(kind, fields, author)
        return await self._with_hooks(kind, line, version, [*hooks, fields["hook"]], author)

    async def _remove_hook(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        index = fields.get("hook_index")
        if not isinstance(index, int) or isinstance(index, bool):
            raise Refused(MISSING, "missing required field: hook_index, a number from 0")
        line, version, hooks = await self._hooks(kind, fields, author)
        if not 0 <= index < len(hooks):
            text = f"hook_index is {index}: {line.name} has {len(hooks)} hooks in this version, counted from 0"
            raise Refused("invalid_definition", text)
        return await self._with_hooks(kind, line, version, [*hooks[:index], *hooks[index + 1 :]], author)

    async def _hooks(
        self, kind: Kind, fields: Mapping[str, Any], author: Author
    ) -> tuple[Line, Version, Sequence[Mapping[str, Any]]]:
        line, version = self._require(kind, required_field(fields, "def_id"), author)
        content = await self.table.content(line, version)
        return line, version, content.get(HOOKS, ())

    async def _with_hooks(
        self, kind: Kind, line: Line, version: Version, hooks: Sequence[Any], author: Author
    ) -> Reply:
        """Make a version with other hooks, which becomes the active one."""
        fork = {"name": line.name, "parent_def_id": line.id_of(version.number), "overlay": {HOOKS: list(hooks)}}
        return await self._fork(kind, fork, author)

    def origin(self, kind: Kind, name: str, parent_id: str, author: Author, *, activates: bool) -> tuple[str, Origin]:
        """Return the name of a fork and what it is made from: the parent that is named, or what is active."""
        parent = self.visible(kind, parent_id, author) if parent_id else None
        if parent_id and parent is None:
            raise Refused("parent_not_found", f"parent_def_id {parent_id[:80]} not found")
        name = name or (parent[0].name if parent is not None else "")
        name = self._name(kind, {"name": name}, author)
        self.authorship.require(kind.name, name, author, activates=activates)
        if parent is None:
            return name, self.composer.default_origin(kind, name, author.tenant)
        if parent[0].name != name:
            text = f"parent_def_id {parent_id} is a version of {parent[0].name}, not of {name}"
            raise Refused("name_mismatch", text)
        return name, Origin(parent=parent)

    def _version_fields(
        self, kind: Kind, name: str, fields: Mapping[str, Any], author: Author, made: Composition, *, promote: bool
    ) -> dict[str, Any]:
        """Return the fields that the commands for a new version have in common."""
        return {
            "envelope": command_envelope(author),
            "kind": kind.name,
            "name": name,
            "content": made.stored.text,
            "content_blob": made.stored.blob,
            "content_sha256": kind.hash(name, made.content),
            "description": text_field(fields, "description"),
            "created_by_agent_id": author.agent_id,
            "created_by_agent": author.agent,
            "created_by_run_id": author.run_id,
            "tools": kind.tools(made.content),
            "promote": promote,
            "expect_active": optional_text(fields, "expect_active"),
            "expires_at_ms": parse_time_ms(text_field(fields, "expires_at"), "expires_at"),
        }

    async def _made(self, line: Line, event: DefVersionCreated, content: Mapping[str, Any], answer: Answer) -> Reply:
        version = line.version(event.version)
        assert version is not None, "the answer was read"
        item = {
            "description": event.description,
            "content_sha256": event.content_sha256,
            "created_by_run_id": event.created_by_run_id,
        }
        row = version_row(line, version, item, content, promoted=self._is_active(line, version))
        return Reply(fields=row, position=answer.position)

    def _is_active(self, line: Line, version: Version) -> bool:
        return self.table.active_number(line) == version.number

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _get(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        line, version = self._require(kind, required_field(fields, "def_id"), author)
        return Reply(fields=await self.describe(line, version))

    async def describe(self, line: Line, version: Version) -> dict[str, Any]:
        """Return a version as `get` does. Raises ConnectorError, PositionNotRead."""
        item = await self.table.item(line, version)
        content = await self.table.content(line, version)
        return version_row(line, version, item, content, promoted=self._is_active(line, version))

    async def _list(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        name = self._name(kind, fields, author)
        line = self.table.line(kind.name, author.tenant, name)
        if line is None or line.is_deleted:
            return Reply(fields={"name": name, "versions": []})
        versions = list(reversed(line.versions))
        items = await self.table.items(line, versions)
        rows = [
            version_row(
                line,
                version,
                items.get(version.number, {}),
                await self.table.content(line, version),
                promoted=self._is_active(line, version),
            )
            for version in versions
        ]
        return Reply(fields={"name": name, "versions": rows})

    async def _render_diagram(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        """Draw a team: a version, the active one, or what an overlay would make of it."""
        if text_field(fields, "format") not in ("", MERMAID):
            raise Refused("invalid_definition", f"format: expected {MERMAID}")
        name, content, version_id = text_field(fields, "name"), None, ""
        if text_field(fields, "def_id"):
            line, version = self._require(kind, text_field(fields, "def_id"), author)
            name, content, version_id = line.name, await self.table.content(line, version), line.id_of(version.number)
        elif resolved := self.table.resolve(kind.name, author.tenant, name):
            content, version_id = await self.table.load(resolved), resolved.def_id
        is_preview = "overlay" in fields
        if is_preview:
            content, version_id = kind.compose(name, overlay_field(fields), content), ""
        if content is None:
            raise Refused(NOT_FOUND, f"{kind.name} {name[:80]} not found")
        diagram = render_diagram(content, text_field(fields, "highlight_state"))
        drawn = {"name": name, "def_id": version_id, "format": MERMAID, "diagram": diagram}
        return Reply(fields=drawn | ({"preview": True} if is_preview else {}))

    async def _verify(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        name = self._name(kind, fields, author)
        expected = required_field(fields, "content_sha256")
        line = self.table.line(kind.name, author.tenant, name)
        version = line.version(self.table.active_number(line)) if line is not None else None
        if line is None or version is None:
            none = {"matches": False, "current_sha256": "", "current_def_id": "", "version": 0}
            return Reply(fields=none | {"name": name, "deployed": False})
        current = kind.hash(name, await self.table.content(line, version))
        return Reply(
            fields={
                "matches": expected == current,
                "current_sha256": current,
                "current_def_id": line.id_of(version.number),
                "version": version.number,
                "name": name,
                "deployed": True,
            }
        )

    def names(self, kind: Kind, tenant: str | None) -> dict[str, Any]:
        """Return the names of a kind with their counts, of a tenant or of all."""
        tenants = self.table.tenants(kind.name) if tenant is None else [tenant]
        return {"names": [self._names_row(line) for owner in tenants for line in self.table.lines(kind.name, owner)]}

    def _names_row(self, line: Line) -> dict[str, Any]:
        return names_row(line, line.version(self.table.active_number(line)))

    # --- changing what is active -------------------------------------------------------------------------------------

    async def _promote(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        line, version = self._require(kind, required_field(fields, "def_id"), author)
        self._require_own(line, author)
        self.authorship.require(kind.name, line.name, author, activates=True)
        await self.composer.require_within(kind, line.name, await self.table.content(line, version), author)
        self.check_shares(kind, author, {line.name: await self.table.content(line, version)})
        command = PromoteVersion(
            envelope=command_envelope(author, line.tenant),
            kind=kind.name,
            name=line.name,
            def_id=line.id_of(version.number),
            why=text_field(fields, "why"),
            by_agent_id=author.agent_id,
            expect_active=optional_text(fields, "expect_active"),
            content=await self._content_for(line, version),
        )
        answer = await self.ask(command)
        promoted = {"def_id": command.def_id, "name": line.name, "version": version.number, "promoted": True}
        return Reply(fields=promoted, position=answer.position)

    async def _roll_back(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        name = self._name(kind, fields, author)
        self.authorship.require(kind.name, name, author, activates=True)
        line = self.table.line(kind.name, author.tenant, name)
        target = rollback_target(line) if line is not None else None
        if line is None or target is None:
            raise Refused(NOT_FOUND, f"{kind.name} {name}: an earlier active version is not found")
        await self.composer.require_within(kind, name, await self.table.content(line, target), author)
        self.check_shares(kind, author, {name: await self.table.content(line, target)})
        command = RollBack(
            envelope=command_envelope(author),
            kind=kind.name,
            name=name,
            why=text_field(fields, "why"),
            by_agent_id=author.agent_id,
            expect_active=optional_text(fields, "expect_active"),
            content=await self._content_for(line, target),
        )
        answer = await self.ask(command)
        event = answer.events[-1]
        back = {"def_id": event.to_def_id, "name": name, "version": event.version, "promoted": True}
        return Reply(fields=back | {"undone_def_id": event.undoes}, position=answer.position)

    async def _content_for(self, line: Line, version: Version) -> str:
        """Return the content that a promotion must carry, because the line's state no longer has it."""
        return "" if version.content or version.blob is not None else await self.table.text(line, version)

    async def _retire(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        line, version = self._require(kind, required_field(fields, "def_id"), author)
        if "retired" not in fields:
            raise Refused(MISSING, "missing required field: retired")
        retired = flag_field(fields, "retired", default=True)
        self._require_own(line, author)
        self.authorship.require(kind.name, line.name, author, activates=True)
        if not retired:
            self.check_shares(kind, author, {line.name: await self.table.content(line, version)})
        command = RetireVersion(
            envelope=command_envelope(author, line.tenant),
            kind=kind.name,
            name=line.name,
            def_id=line.id_of(version.number),
            retired=retired,
            why=text_field(fields, "why"),
        )
        answer = await self.ask(command)
        return Reply(fields={"def_id": command.def_id, "retired": retired}, position=answer.position)

    async def _delete(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> Reply:
        name = self._name(kind, fields, author)
        self.authorship.require(kind.name, name, author, activates=True)
        command = DeleteLine(
            envelope=command_envelope(author), kind=kind.name, name=name, why=text_field(fields, "why")
        )
        answer = await self.ask(command)
        return Reply(fields={"name": name, "deleted": True}, position=answer.position)

    # --- checks ------------------------------------------------------------------------------------------------------

    def _name(self, kind: Kind, fields: Mapping[str, Any], author: Author) -> str:
        name = required_field(fields, "name")
        kind.check_name(name)
        return name

    def is_static(self, kind: Kind, name: str) -> bool:
        return (kind.name, name) in self.table.files

    def visible(self, kind: Kind, def_id: str, author: Author) -> tuple[Line, Version] | None:
        line, version = self.table.find(def_id) or (None, None)
        if line is None or version is None or line.kind != kind.name or line.is_deleted:
            return None
        return (line, version) if author.is_admin or line.tenant in (author.tenant, SHARED) else None

    def _require(self, kind: Kind, def_id: str, author: Author) -> tuple[Line, Version]:
        place = self.visible(kind, def_id, author)
        if place is None:
            raise Refused(NOT_FOUND, f"{kind.name} version {def_id[:80]} not found")
        return place

    def _require_own(self, line: Line, author: Author) -> None:
        if line.tenant != author.tenant and not author.is_admin:
            raise Refused("scope_denied", f"{line.name} is shared by all tenants: only an administrator changes it")

    def check_room(self, kind: str, name: str, tenant: str, *, count: int = 1) -> None:
        """Check that a line may be added, the last of `count` new ones. Raises Refused(too_many)."""
        if self.table.line(kind, tenant, name) is not None:
            return
        if self.table.count(tenant) + count > limits.LINES_PER_TENANT_MAX:
            raise Refused("too_many", f"the tenant has {limits.LINES_PER_TENANT_MAX} definitions already")
        if self.table.count() + count > limits.LINES_MAX:
            raise Refused("too_many", f"the installation has {limits.LINES_MAX} definitions already")

    def check_shares(self, kind: Kind, author: Author, additions: Mapping[str, Mapping[str, Any]]) -> None:
        """Check that an author may have these definitions, by name, besides those there are. Raises
        Refused(too_many).
        """
        if kind.name == SCHEDULE.name and (
            problem := schedules_problem(self.table, author.tenant, author.subject, additions)
        ):
            raise Refused("too_many", problem)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _line(self, kind: Kind, tenant: str, name: str) -> Line:
        line = self.table.line(kind.name, tenant, name)
        assert line is not None, "the answer was read"
        return line

    async def ask(self, command: Any) -> Answer:
        """Return the answer, whose events this process has read."""
        answer = await ask_owner(self._commands, command, wait_s=self.wait_s)
        if await self._replicas.wait(answer.partition, answer.offset, timeout_s=self.wait_s):
            text = f"the change is in the log at {answer.position}, and this process has not read it yet"
            raise Unavailable(text, is_unknown=True)
        return answer


async def ask_owner(commands: EntityCommands, command: Any, *, wait_s: float) -> Answer:
    """Return the answer of the owner of a line. Raises Refused and Unavailable."""
    try:
        answer = await commands.ask(command, wait_s=wait_s)
    except CommandInvalid as error:
        raise Refused("invalid_definition", str(error)) from error
    except (CommandUnanswered, Transient) as error:
        raise Unavailable(
            f"no owner has answered, and the command may still be carried out: {error}", is_unknown=True
        ) from error
    last = answer.events[-1]
    if isinstance(last, CommandRefused):
        raise Refused(last.code, last.message)
    return answer


def operations_of(kind: Kind) -> tuple[str, ...]:
    """Return the operations of a kind."""
    left_out = set() if kind.has_verify else {"verify"}
    if kind.name != "team":
        left_out |= {"delete", "render_diagram"}
    if kind.name != "schedule":
        left_out |= {"add_hook", "remove_hook"}
    return tuple(op for op in FIELDS if op not in left_out)


def parse_operation(
    body: Any, operations: tuple[str, ...], fields: Mapping[str, frozenset[str]]
) -> tuple[str, Mapping[str, Any]]:
    """Return the operation of a body and its fields that are not null. Raises Refused."""
    if not isinstance(body, Mapping):
        raise Refused("invalid_definition", "expected a JSON object with op")
    op = body.get("op")
    if op is None:
        raise Refused(MISSING, f"missing required field: op; expected one of {', '.join(operations)}")
    if not isinstance(op, str) or op not in operations:
        hint = did_you_mean(op, operations) if isinstance(op, str) else ""
        raise Refused(UNKNOWN_OP, f"unknown op {str(op)[:60]!r}{hint}: expected {', '.join(operations)}")
    present = {name: value for name, value in body.items() if name != "op" and value is not None}
    for name in present:
        if name not in fields[op]:
            hint = did_you_mean(name, fields[op])
            expected = ", ".join(sorted(fields[op]))
            raise Refused(UNKNOWN_FIELD, f"unknown field {name[:60]!r}{hint}: {op} takes {expected}")
    return op, present


def overlay_field(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    overlay = fields.get("overlay", {})
    if not isinstance(overlay, Mapping):
        raise Refused("invalid_definition", "overlay: expected an object")
    return overlay


def required_field(fields: Mapping[str, Any], name: str) -> str:
    if not (value := text_field(fields, name)):
        raise Refused(MISSING, f"missing required field: {name}")
    return value


def text_field(fields: Mapping[str, Any], name: str) -> str:
    return optional_text(fields, name) or ""


def optional_text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise Refused("invalid_definition", f"{name}: expected text")
    if value is not None and ("\0" in value or not _is_text(value)):
        raise Refused("invalid_definition", f"{name}: has characters that no store takes")
    return value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def flag_field(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise Refused("invalid_definition", f"{name}: expected true or false")
    return value


def command_envelope(author: Author, tenant: str | None = None) -> CommandEnvelope:
    return CommandEnvelope(
        command_id=author.command_id,
        tenant=author.tenant if tenant is None else tenant,
        subject=author.subject,
        issued_at_ms=author.issued_at_ms,
    )
