"""What is done with definitions of the versioned kinds, for requests and for agents.

    create fork get list retire promote verify rollback     of all of them
    rediscover                                              of MCP servers
    delete render_diagram                                   of teams
    add_hook remove_hook                                    of schedules

An overlay is merged and checked here, with what this process has read; the owner of the line decides. An answer is
given once this process has read the events, so its receiver can use the definition at once.

Before: handlers.py. After: services/stream/entities/client.py and decide.py; table.py.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import UNSET, structs

from loomlog.connectors.configuration.secret_registry import SecretRegistry
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
from loomlog.services.core.operations import Answer as Answered
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.answers import names_row, version_row
from loomlog.services.families.definition.api_fields import MISSING, NOT_FOUND
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.authorship import Authorship
from loomlog.services.families.definition.composition import Composer, Composition, Origin
from loomlog.services.families.definition.content import parse_time_ms
from loomlog.services.families.definition.decide import CONFLICT, rollback_target
from loomlog.services.families.definition.kind_api import (
    MERMAID,
    DefinitionAddHook,
    DefinitionCreate,
    DefinitionDelete,
    DefinitionDeleted,
    DefinitionDiagram,
    DefinitionDrawn,
    DefinitionFork,
    DefinitionGet,
    DefinitionNamed,
    DefinitionNames,
    DefinitionNamesRow,
    DefinitionPromote,
    DefinitionPromoted,
    DefinitionRemoveHook,
    DefinitionRetire,
    DefinitionRetired,
    DefinitionRollback,
    DefinitionRolledBack,
    DefinitionVerified,
    DefinitionVerify,
    DefinitionVersion,
    DefinitionVersions,
    McpServerCreate,
    McpServerFork,
)
from loomlog.services.families.definition.schedule_shares import schedules_problem
from loomlog.services.families.definition.state import Line, Version
from loomlog.services.families.definition.table import SHARED, DefinitionTable
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandUnanswered, EntityCommands
from loomlog.services.stream.entities.reads import PositionNotRead
from loomlog.services.stream.entities.replicas import Replicas

WAIT_S = 30.0
"""Seconds to wait for the owner's answer, and again for its events."""
HOOKS = "on_complete"
AfterChange = Callable[[Kind, str, str], Awaitable[None]]
"""Called after a change, with its kind, tenant and name, before it is answered."""


class DefinitionOperations:
    """The operations. All methods raise Refused, Unavailable, and what `refusing` turns into these."""

    def __init__(
        self,
        commands: EntityCommands,
        replicas: Replicas,
        table: DefinitionTable,
        *,
        blobs: Blobs,
        hosts: Collection[str] | None = None,
        secrets: SecretRegistry | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        """`hosts`: those that definitions may name as addresses to call; None: any. `secrets`: see Composer."""
        self.table = table
        self._commands = commands
        self._replicas = replicas
        self.composer = Composer(table, blobs, hosts=hosts, secrets=secrets)
        self.authorship = Authorship(table)
        self.wait_s = wait_s
        self.after_change: AfterChange | None = None

    async def changed(self, kind: Kind, answer: Any) -> None:
        """Do what follows a change, before it is answered."""
        place = self.table.find(getattr(answer, "def_id", ""))
        if self.after_change is not None and place is not None:
            await self.after_change(kind, place[0].tenant, place[0].name)

    # --- making versions ---------------------------------------------------------------------------------------------

    async def create(self, kind: Kind, asked: DefinitionCreate, author: Author) -> Answered[DefinitionVersion]:
        """Make a version of a name that no file defines."""
        name = checked_name(kind, asked.name)
        promote = asked.promote is not False
        self.authorship.require(kind.name, name, author, activates=promote)
        if self.is_static(kind, name):
            text = f"{name} is defined by a configuration file: fork it instead of creating it"
            raise Refused("static_name", text)
        self.check_room(kind.name, name, author.tenant)
        discovers = _discovers(asked)
        made = await self.composer.compose(kind, name, asked.overlay or {}, Origin(), author, discovers=discovers)
        self.check_shares(kind, author, {name: made.content})
        command = DefineVersion(**_version_fields(kind, name, asked, author, made, promote=promote))
        answer = await self.ask(command)
        line = self._line(kind, author.tenant, name)
        created = [event for event in answer.events if isinstance(event, DefVersionCreated)]
        if created:
            return self._made(line, created[-1], made.content, answer)
        same = next((one for one in reversed(line.versions) if one.digest == made.stored.digest), None)
        if same is None:
            raise Refused(CONFLICT, f"{name} has changed meanwhile: ask again")
        row = structs.replace(await self.describe(line, same), deduplicated=True)
        return Answered(value=row, positions=(answer.position,))

    async def fork(self, kind: Kind, asked: DefinitionFork, author: Author) -> Answered[DefinitionVersion]:
        """Make a version from an earlier one."""
        promote = kind.forks_promote if asked.promote is None else asked.promote
        parent_id = asked.parent_def_id or ""
        name, origin = self.origin(kind, asked.name or "", parent_id, author, activates=promote)
        if origin == Origin():
            raise Refused("parent_not_found", f"{kind.name} {name} not found: there is nothing to fork")
        self.check_room(kind.name, name, author.tenant)
        discovers = _discovers(asked)
        made = await self.composer.compose(kind, name, asked.overlay or {}, origin, author, discovers=discovers)
        self.check_shares(kind, author, {name: made.content})
        command = ForkVersion(
            **_version_fields(kind, name, asked, author, made, promote=promote),
            parent_def_id=origin.parent_id,
            base_content=made.base.text,
            base_blob=made.base.blob,
            base_sha256=origin.file.content_sha256 if origin.file is not None else "",
            root_tools=origin.root_tools(kind),
        )
        answer = await self.ask(command)
        created = [event for event in answer.events if isinstance(event, DefVersionCreated)]
        return self._made(self._line(kind, author.tenant, name), created[-1], made.content, answer)

    async def rediscover(self, kind: Kind, asked: DefinitionNamed, author: Author) -> Answered[DefinitionVersion]:
        """Ask a server for its tools; make a version with them, which becomes the active one, if they are others."""
        name = checked_name(kind, asked.name)
        self.authorship.require(kind.name, name, author, activates=True)
        line = self.table.line(kind.name, author.tenant, name)
        version = line.version(self.table.active_number(line)) if line is not None and not line.is_deleted else None
        if line is None or version is None or version.is_retired:
            raise Refused(NOT_FOUND, f"{kind.name} {name}: an active version is not found")
        made = await self.composer.compose(kind, name, {}, Origin(parent=(line, version)), author)
        if made.stored.digest == version.digest or not made.content.get("discovered_tools"):
            row = structs.replace(await self.describe(line, version), deduplicated=True)
            return Answered(value=row)
        fork = McpServerFork(name=name, parent_def_id=line.id_of(version.number), promote=True)
        return await self.fork(kind, fork, author)

    async def add_hook(self, kind: Kind, asked: DefinitionAddHook, author: Author) -> Answered[DefinitionVersion]:
        """Make a version with a further hook."""
        line, version, hooks = await self._hooks(kind, asked.def_id, author)
        return await self._with_hooks(kind, line, version, [*hooks, asked.hook], author)

    async def remove_hook(self, kind: Kind, asked: DefinitionRemoveHook, author: Author) -> Answered[DefinitionVersion]:
        """Make a version without one of its hooks."""
        index = asked.hook_index
        line, version, hooks = await self._hooks(kind, asked.def_id, author)
        if index >= len(hooks):
            text = f"hook_index is {index}: {line.name} has {len(hooks)} hooks in this version, counted from 0"
            raise Refused("invalid_definition", text)
        return await self._with_hooks(kind, line, version, [*hooks[:index], *hooks[index + 1 :]], author)

    async def _hooks(
        self, kind: Kind, def_id: str, author: Author
    ) -> tuple[Line, Version, Sequence[Mapping[str, Any]]]:
        line, version = self._require(kind, def_id, author)
        content = await self.table.content(line, version)
        return line, version, content.get(HOOKS, ())

    async def _with_hooks(
        self, kind: Kind, line: Line, version: Version, hooks: Sequence[Any], author: Author
    ) -> Answered[DefinitionVersion]:
        """Make a version with other hooks, which becomes the active one."""
        parent_id = line.id_of(version.number)
        fork = DefinitionFork(name=line.name, parent_def_id=parent_id, overlay={HOOKS: list(hooks)})
        return await self.fork(kind, fork, author)

    def origin(self, kind: Kind, name: str, parent_id: str, author: Author, *, activates: bool) -> tuple[str, Origin]:
        """Return the name of a fork and what it is made from: the parent that is named, or what is active."""
        parent = self.visible(kind, parent_id, author) if parent_id else None
        if parent_id and parent is None:
            raise Refused("parent_not_found", f"parent_def_id {parent_id[:80]} not found")
        name = name or (parent[0].name if parent is not None else "")
        name = checked_name(kind, name)
        self.authorship.require(kind.name, name, author, activates=activates)
        if parent is None:
            return name, self.composer.default_origin(kind, name, author.tenant)
        if parent[0].name != name:
            text = f"parent_def_id {parent_id} is a version of {parent[0].name}, not of {name}"
            raise Refused("name_mismatch", text)
        return name, Origin(parent=parent)

    def _made(
        self, line: Line, event: DefVersionCreated, content: Mapping[str, Any], answer: Answer
    ) -> Answered[DefinitionVersion]:
        version = line.version(event.version)
        assert version is not None, "the answer was read"
        item = {
            "description": event.description,
            "content_sha256": event.content_sha256,
            "created_by_run_id": event.created_by_run_id,
        }
        row = version_row(line, version, item, content, promoted=self._is_active(line, version))
        return Answered(value=row, positions=(answer.position,))

    def _is_active(self, line: Line, version: Version) -> bool:
        return self.table.active_number(line) == version.number

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, asked: DefinitionGet, author: Author) -> Answered[DefinitionVersion]:
        """Return a version."""
        return Answered(value=await self.describe(*self._require(kind, asked.def_id, author)))

    async def describe(self, line: Line, version: Version) -> DefinitionVersion:
        """Return a version as answers show it. Raises ConnectorError, PositionNotRead."""
        item = await self.table.item(line, version)
        content = await self.table.content(line, version)
        return version_row(line, version, item, content, promoted=self._is_active(line, version))

    async def list(self, kind: Kind, asked: DefinitionNamed, author: Author) -> Answered[DefinitionVersions]:
        """Return the versions of a name, the newest first."""
        name = checked_name(kind, asked.name)
        line = self.table.line(kind.name, author.tenant, name)
        if line is None or line.is_deleted:
            return Answered(value=DefinitionVersions(name=name, versions=[]))
        versions = [*reversed(line.versions)]
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
        return Answered(value=DefinitionVersions(name=name, versions=rows))

    async def render_diagram(self, kind: Kind, asked: DefinitionDiagram, author: Author) -> Answered[DefinitionDrawn]:
        """Draw a team: a version, the active one, or what an overlay would make of it."""
        name, content, version_id = asked.name or "", None, ""
        if asked.def_id:
            line, version = self._require(kind, asked.def_id, author)
            name, content, version_id = line.name, await self.table.content(line, version), line.id_of(version.number)
        elif resolved := self.table.resolve(kind.name, author.tenant, name):
            content, version_id = await self.table.load(resolved), resolved.def_id
        is_preview = asked.overlay is not None
        if asked.overlay is not None:
            content, version_id = kind.compose(name, asked.overlay, content), ""
        if content is None:
            raise Refused(NOT_FOUND, f"{kind.name} {name[:80]} not found")
        diagram = render_diagram(content, asked.highlight_state or "")
        preview = True if is_preview else UNSET
        drawn = DefinitionDrawn(name=name, def_id=version_id, format=MERMAID, diagram=diagram, preview=preview)
        return Answered(value=drawn)

    async def verify(self, kind: Kind, asked: DefinitionVerify, author: Author) -> Answered[DefinitionVerified]:
        """Compare a content hash with that of the active version."""
        name, expected = checked_name(kind, asked.name), required("content_sha256", asked.content_sha256)
        line = self.table.line(kind.name, author.tenant, name)
        version = line.version(self.table.active_number(line)) if line is not None else None
        if line is None or version is None:
            none = DefinitionVerified(
                matches=False, current_sha256="", current_def_id="", version=0, name=name, deployed=False
            )
            return Answered(value=none)
        current = kind.hash(name, await self.table.content(line, version))
        return Answered(
            value=DefinitionVerified(
                matches=expected == current,
                current_sha256=current,
                current_def_id=line.id_of(version.number),
                version=version.number,
                name=name,
                deployed=True,
            )
        )

    def names(self, kind: Kind, tenant: str | None) -> DefinitionNames:
        """Return the names of a kind with their counts, of a tenant or of all."""
        tenants = self.table.tenants(kind.name) if tenant is None else [tenant]
        rows = [self._names_row(line) for owner in tenants for line in self.table.lines(kind.name, owner)]
        return DefinitionNames(names=rows)

    def _names_row(self, line: Line) -> DefinitionNamesRow:
        return names_row(line, line.version(self.table.active_number(line)))

    # --- changing what is active -------------------------------------------------------------------------------------

    async def promote(self, kind: Kind, asked: DefinitionPromote, author: Author) -> Answered[DefinitionPromoted]:
        """Make a version the active one."""
        line, version = self._require(kind, asked.def_id, author)
        self._require_own(line, author)
        self.authorship.require(kind.name, line.name, author, activates=True)
        await self.composer.require_within(kind, line.name, await self.table.content(line, version), author)
        self.check_shares(kind, author, {line.name: await self.table.content(line, version)})
        command = PromoteVersion(
            envelope=command_envelope(author, line.tenant),
            kind=kind.name,
            name=line.name,
            def_id=line.id_of(version.number),
            why=asked.why or "",
            by_agent_id=author.agent_id,
            expect_active=asked.expect_active,
            content=await self._content_for(line, version),
        )
        answer = await self.ask(command)
        promoted = DefinitionPromoted(def_id=command.def_id, name=line.name, version=version.number, promoted=True)
        return Answered(value=promoted, positions=(answer.position,))

    async def rollback(self, kind: Kind, asked: DefinitionRollback, author: Author) -> Answered[DefinitionRolledBack]:
        """Make the version active that was so before."""
        name = checked_name(kind, asked.name)
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
            why=asked.why or "",
            by_agent_id=author.agent_id,
            expect_active=asked.expect_active,
            content=await self._content_for(line, target),
        )
        answer = await self.ask(command)
        event = answer.events[-1]
        back = DefinitionRolledBack(
            def_id=event.to_def_id, name=name, version=event.version, promoted=True, undone_def_id=event.undoes
        )
        return Answered(value=back, positions=(answer.position,))

    async def _content_for(self, line: Line, version: Version) -> str:
        """Return the content that a promotion must carry, because the line's state no longer has it."""
        return "" if version.content or version.blob is not None else await self.table.text(line, version)

    async def retire(self, kind: Kind, asked: DefinitionRetire, author: Author) -> Answered[DefinitionRetired]:
        """Retire a version, or restore it."""
        line, version = self._require(kind, asked.def_id, author)
        self._require_own(line, author)
        self.authorship.require(kind.name, line.name, author, activates=True)
        if not asked.retired:
            self.check_shares(kind, author, {line.name: await self.table.content(line, version)})
        command = RetireVersion(
            envelope=command_envelope(author, line.tenant),
            kind=kind.name,
            name=line.name,
            def_id=line.id_of(version.number),
            retired=asked.retired,
            why=asked.why or "",
        )
        answer = await self.ask(command)
        retired = DefinitionRetired(def_id=command.def_id, retired=asked.retired)
        return Answered(value=retired, positions=(answer.position,))

    async def delete(self, kind: Kind, asked: DefinitionDelete, author: Author) -> Answered[DefinitionDeleted]:
        """Delete a line."""
        name = checked_name(kind, asked.name)
        self.authorship.require(kind.name, name, author, activates=True)
        command = DeleteLine(envelope=command_envelope(author), kind=kind.name, name=name, why=asked.why or "")
        answer = await self.ask(command)
        return Answered(value=DefinitionDeleted(name=name, deleted=True), positions=(answer.position,))

    # --- checks ------------------------------------------------------------------------------------------------------

    def is_static(self, kind: Kind, name: str) -> bool:
        return (kind.name, name) in self.table.files

    def visible(self, kind: Kind, def_id: str, author: Author) -> tuple[Line, Version] | None:
        line, version = self.table.find(def_id) or (None, None)
        if line is None or version is None or line.kind != kind.name or line.is_deleted:
            return None
        return (line, version) if author.is_admin or line.tenant in (author.tenant, SHARED) else None

    def _require(self, kind: Kind, def_id: str, author: Author) -> tuple[Line, Version]:
        place = self.visible(kind, required("def_id", def_id), author)
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


def _discovers(asked: DefinitionCreate | DefinitionFork) -> bool:
    """Return whether a server that is defined is asked for its tools."""
    return not isinstance(asked, McpServerCreate | McpServerFork) or asked.discover is not False


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what is wrong with a definition, and stores that do not answer, into Refused and Unavailable."""
    try:
        yield
    except DefinitionProblem as problem:
        raise Refused(problem.reason, str(problem)) from problem
    except (PositionNotRead, ConnectorError) as error:
        raise Unavailable(str(error)) from error


def required(field: str, text: str) -> str:
    """Return the text of a field. Raises Refused(missing_field) for an empty one."""
    if not text:
        raise Refused(MISSING, f"missing required field: {field}")
    return text


def checked_name(kind: Kind, name: str) -> str:
    """Return a name that a definition of the kind may have. Raises Refused, DefinitionProblem."""
    kind.check_name(required("name", name))
    return name


def _version_fields(
    kind: Kind,
    name: str,
    asked: DefinitionCreate | DefinitionFork,
    author: Author,
    made: Composition,
    *,
    promote: bool,
) -> dict[str, Any]:
    """Return the fields that the commands for a new version have in common."""
    return {
        "envelope": command_envelope(author),
        "kind": kind.name,
        "name": name,
        "content": made.stored.text,
        "content_blob": made.stored.blob,
        "content_sha256": kind.hash(name, made.content),
        "description": asked.description or "",
        "created_by_agent_id": author.agent_id,
        "created_by_agent": author.agent,
        "created_by_run_id": author.run_id,
        "tools": kind.tools(made.content),
        "promote": promote,
        "expect_active": asked.expect_active,
        "expires_at_ms": parse_time_ms(asked.expires_at or "", "expires_at"),
    }


def command_envelope(author: Author, tenant: str | None = None) -> CommandEnvelope:
    return CommandEnvelope(
        command_id=author.command_id,
        tenant=author.tenant if tenant is None else tenant,
        subject=author.subject,
        issued_at_ms=author.issued_at_ms,
    )
