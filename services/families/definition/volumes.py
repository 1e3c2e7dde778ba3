"""What is done with volumes that are made at run time: one handler for HTTP and for the tool VolumeDef.

    create get list delete purge

The server derives the path; a request never has one. create makes the folder first and the line second, so a volume
that is listed has a folder. delete removes the line and keeps the files. purge removes the files first and the line
last: after a crash in between the volume is still listed, and purging it again finishes the work; the other way round
its files would wait, unlisted, for the next volume of that name. An ephemeral volume has nothing without its run, so
deleting it removes its files too.

Answers and errors name folders of the server to administrators only: to agents, and so to their users, a volume is its
name.

Processes that make and remove folders (an api for HTTP, a runtime for runs) must share the disk of the dynamic root.

Before: services/application/volumes.py, services/runtime/tools/volume_tool.py, and
services/runtime/tools/ephemeral_volumes.py at the end of a run. After: volume_table.py, decide.py,
connectors/tools/volume_folders.py.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from loomlog.connectors.definitions import DefinitionProblem, canonical_json
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.tools.thread_pool import ThreadPool
from loomlog.connectors.tools.volume_folders import FolderProblem, VolumeFolders
from loomlog.schemas.generated.definition_commands import DefineVersion, DeleteLine
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition.answers import format_time
from loomlog.services.families.definition.attenuation import exceeding
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.decide import CONFLICT
from loomlog.services.families.definition.operations import (
    NOT_FOUND,
    DefinitionOperations,
    Reply,
    command_envelope,
    flag_field,
    parse_operation,
    required_field,
    text_field,
)
from loomlog.services.families.definition.state import VOLUME
from loomlog.services.families.definition.table import SHARED
from loomlog.services.families.definition.volume_content import (
    MODES,
    MOUNT_CHARACTERS_MAX,
    VolumeContent,
    check_volume_name,
    folder_parts,
    is_slot,
)
from loomlog.services.families.definition.volume_table import MadeVolume, VolumeTable
from loomlog.services.stream.entities.reads import PositionNotRead

log = logging.getLogger(__name__)

TOOL = "VolumeDef"
FIELDS: Mapping[str, frozenset[str]] = {
    "create": frozenset({"name", "mode", "ephemeral", "mount_at"}),
    "get": frozenset({"name"}),
    "list": frozenset(),
    "delete": frozenset({"name", "why"}),
    "purge": frozenset({"name", "why"}),
}
READS = frozenset({"get", "list"})
INPUT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "op": {"type": "string", "enum": list(FIELDS), "description": "What to do."},
        "name": {"type": "string", "description": "Name of the volume: a-z, 0-9, _ and -."},
        "mode": {"type": "string", "enum": list(MODES), "description": "What agents may do in it; rw if absent."},
        "ephemeral": {"type": "boolean", "description": "It ends with the top-level run that makes it."},
        "mount_at": {"type": "string", "description": "Name for it in the tree of names; /vol/<name> if absent."},
        "why": {"type": "string", "description": "Reason, for people."},
    },
    "required": ["op"],
}
FOLDER_THREADS = 2
RUN_VOLUMES_MAX = 32
"""Ephemeral volumes that a tree of runs may have."""
EPHEMERAL_MAX = 2_000
"""Ephemeral volumes that a tenant may have at once."""
SLOT_TRIES = 8
"""Free lines to try when other runs take them at the same time."""
NO_ROOT = (
    "volumes cannot be made at run time here: the configuration needs a volume with dynamic_root: true, whose folder "
    "theirs will lie in"
)
FOLDER_PROBLEM = "its folder cannot be made or removed on this server: an administrator finds the reason in its log"
REDACTED = ""
"""Path of a volume for those who may not see the server's folders."""
NO_NAMES_YET = "this version has no tree of names yet: {} is kept with the volume, and leads nowhere"


class VolumeOperations:
    """The handler. All methods raise Refused and Unavailable."""

    def __init__(self, operations: DefinitionOperations, volumes: VolumeTable) -> None:
        self.volumes = volumes
        self.operations = operations
        self._threads = ThreadPool(FOLDER_THREADS)
        self._handlers: Mapping[str, Callable[[Mapping[str, Any], Author], Awaitable[Reply]]] = {
            "create": self._create,
            "get": self._get,
            "list": self._list,
            "delete": self._delete,
            "purge": self._purge,
        }

    async def run(self, body: Any, author: Author) -> Reply:
        """Carry out an operation; `body` is the JSON of the request or the call."""
        op, fields = parse_operation(body, tuple(FIELDS), FIELDS)
        try:
            return await self._handlers[op](fields, author)
        except DefinitionProblem as problem:
            raise Refused(problem.reason, str(problem)) from problem
        except FolderProblem as problem:
            log.warning("volumes of %s: %s", author.tenant, problem)
            text = str(problem) if author.is_admin else FOLDER_PROBLEM
            raise Refused("invalid_definition", text) from problem
        except (ConnectorError, PositionNotRead) as error:
            raise Unavailable(str(error)) from error

    # --- making ------------------------------------------------------------------------------------------------------

    async def _create(self, fields: Mapping[str, Any], author: Author) -> Reply:
        is_ephemeral = flag_field(fields, "ephemeral", default=False)
        name = self._writable_name(fields, author, is_of_run=is_ephemeral)
        mode = text_field(fields, "mode") or MODES[0]
        if mode not in MODES:
            raise Refused("invalid_definition", f"mode is {mode[:20]!r}: expected rw or ro")
        folders = self._folders()
        if is_ephemeral and not author.root_run_id:
            text = "an ephemeral volume ends with the run that makes it: only a run can make one"
            raise Refused("invalid_definition", text)
        mount_at = "" if is_ephemeral else _mount_at(fields)
        root_run = author.root_run_id if is_ephemeral else ""
        if is_ephemeral:
            self._check_run(name, author)
        else:
            self.operations.check_room(VOLUME, name, author.tenant)
        parts = folder_parts(author.tenant, name, root_run)
        content = VolumeContent(name=name, path=folders.path(parts), mode=mode, root_run=root_run, mount_at=mount_at)
        self._check_mode(content, author)
        await self._threads.run(lambda _: folders.make(parts))
        if is_ephemeral:
            return await self._create_ephemeral(content, author)
        position = await self._define(name, content, author, expect_active=None)
        made = self.volumes.made(author.tenant, name)
        if made is None:
            raise Refused(CONFLICT, f"{name} was deleted meanwhile: ask again")
        warning = NO_NAMES_YET.format(mount_at or f"/vol/{name}")
        return Reply(fields=_row(made, author) | {"mount_warning": warning}, position=position)

    def _check_run(self, name: str, author: Author) -> None:
        if self.volumes.find(author.tenant, name) is not None:
            raise Refused(CONFLICT, f"there is a volume {name} that lasts: choose another name")
        own = {one.content.name for one in self.volumes.ephemeral(author.tenant, author.root_run_id)}
        if name not in own and len(own) >= RUN_VOLUMES_MAX:
            raise Refused("too_many", f"the runs of this tree have {RUN_VOLUMES_MAX} ephemeral volumes already")
        if self.volumes.ephemeral_count(author.tenant) >= EPHEMERAL_MAX:
            raise Refused("too_many", f"the tenant has {EPHEMERAL_MAX} ephemeral volumes already")

    async def _create_ephemeral(self, content: VolumeContent, author: Author) -> Reply:
        known = self.volumes.ephemeral(author.tenant, content.root_run, content.name)
        position = ""
        if known:
            for one in known:
                position = await self._define(one.line, content, author, expect_active=None)
        else:
            position = await self._take_slot(content, author)
        made = self.volumes.ephemeral(author.tenant, content.root_run, content.name)
        if not made:
            raise Refused(CONFLICT, f"{content.name} was deleted meanwhile: ask again")
        return Reply(fields=_row(made[-1], author), position=position)

    async def _take_slot(self, content: VolumeContent, author: Author) -> str:
        tried: list[str] = []
        while True:
            line = self.volumes.free_slot(author.tenant, tried)
            self.operations.check_room(VOLUME, line, author.tenant)
            try:
                return await self._define(line, content, author, expect_active="")
            except Refused as refused:
                if refused.code != CONFLICT or len(tried) >= SLOT_TRIES:
                    raise
                tried.append(line)

    async def _define(self, line: str, content: VolumeContent, author: Author, *, expect_active: str | None) -> str:
        command = DefineVersion(
            envelope=_line_envelope(author, line),
            kind=VOLUME,
            name=line,
            content=canonical_json(content.to_json()),
            created_by_agent_id=author.agent_id,
            created_by_agent=author.agent,
            created_by_run_id=author.run_id,
            promote=True,
            expect_active=expect_active,
        )
        return (await self.operations.ask(command)).position

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _get(self, fields: Mapping[str, Any], author: Author) -> Reply:
        name = check_volume_name(required_field(fields, "name"))
        own = self.volumes.ephemeral(author.tenant, author.root_run_id, name)
        lasting = (self.volumes.made(owner, name) for owner in dict.fromkeys((author.tenant, SHARED)))
        made = next(filter(None, (*own, *lasting)), None)
        if made is None:
            raise Refused(NOT_FOUND, f"volume {name} not found")
        return Reply(fields=_row(made, author))

    async def _list(self, fields: Mapping[str, Any], author: Author) -> Reply:
        own = {one.content.name: one for one in self.volumes.ephemeral(author.tenant, author.root_run_id)}
        shown = (*self.volumes.lasting(author.tenant), *own.values())
        return Reply(fields={"volumes": [_row(one, author) for one in shown]})

    # --- removing ----------------------------------------------------------------------------------------------------

    async def _delete(self, fields: Mapping[str, Any], author: Author) -> Reply:
        return await self._remove(fields, author, with_files=False)

    async def _purge(self, fields: Mapping[str, Any], author: Author) -> Reply:
        return await self._remove(fields, author, with_files=True)

    async def _remove(self, fields: Mapping[str, Any], author: Author, *, with_files: bool) -> Reply:
        ephemeral = self.volumes.ephemeral(author.tenant, author.root_run_id, text_field(fields, "name"))
        name = self._writable_name(fields, author, is_of_run=bool(ephemeral))
        why = text_field(fields, "why")
        if ephemeral:
            position = await self._end(ephemeral, author, why)
            return Reply(fields={"name": name, "deleted": True, "files_removed": True}, position=position)
        line = self.volumes.definitions.line(VOLUME, author.tenant, name)
        is_known = line is not None and line.active_version is not None
        if not is_known and author.issued_at_ms:
            raise Refused(NOT_FOUND, f"volume {name} not found")
        # A command without a time may be a repeated one that was carried out: then its owner answers as before.
        if is_known and with_files:
            made = self.volumes.made(author.tenant, name)
            if made is None:
                root = self._folders().root if author.is_admin else "the root of such folders"
                text = f"the folder of {name} is not below {root}: nothing was removed; delete it instead"
                raise Refused("invalid_definition", text)
            await self._remove_folder(made)
        command = DeleteLine(envelope=command_envelope(author), kind=VOLUME, name=name, why=why)
        answer = await self.operations.ask(command)
        is_removed = with_files and not await self._has_folder(author.tenant, name)
        return Reply(fields={"name": name, "deleted": True, "files_removed": is_removed}, position=answer.position)

    async def end_run(self, tenant: str, root_run: str, *, at_ms: int) -> None:
        """Remove the ephemeral volumes of a tree of runs that is over. Raises FolderProblem too."""
        command_id = f"{root_run}:ended:{at_ms}"
        author = Author(tenant=tenant, subject="loomlog", command_id=command_id, issued_at_ms=at_ms)
        await self._end(self.volumes.ephemeral(tenant, root_run), author, "its run has ended")

    async def _end(self, volumes: list[MadeVolume], author: Author, why: str) -> str:
        position = ""
        for one in volumes:
            await self._remove_folder(one)
            command = DeleteLine(
                envelope=_line_envelope(author, one.line),
                kind=VOLUME,
                name=one.line,
                why=why,
                expect_sha256=one.digest.hex(),  # another run may have taken the line meanwhile
            )
            try:
                position = (await self.operations.ask(command)).position
            except Refused as refused:
                if refused.code not in (CONFLICT, NOT_FOUND):  # others have removed it
                    raise
        return position

    async def _has_folder(self, tenant: str, name: str) -> bool:
        folders, parts = self._folders(), folder_parts(tenant, name)
        return await self._threads.run(lambda _: folders.exists(parts))

    async def _remove_folder(self, made: MadeVolume) -> None:
        folders = self._folders()
        await self._threads.run(lambda stop: folders.remove(made.parts, made.content.path, stop))

    # --- checks ------------------------------------------------------------------------------------------------------

    def _folders(self) -> VolumeFolders:
        if self.volumes.folders is None:
            raise Refused("invalid_definition", NO_ROOT)
        return self.volumes.folders

    def _check_mode(self, content: VolumeContent, author: Author) -> None:
        """Raise Refused(grants_exceeded) for a run that would open a volume that it may only read."""
        made = self.volumes.made(author.tenant, content.name)
        own = self.volumes.ephemeral(author.tenant, content.root_run, content.name) if content.root_run else ()
        for one in filter(None, (*own, made)):
            excesses = exceeding(VolumeContent, content.name, content, None, one.content)
            if excesses and author.grants is not None:
                raise Refused("grants_exceeded", f"cannot widen {content.name}: {excesses[0]}")

    def _writable_name(self, fields: Mapping[str, Any], author: Author, *, is_of_run: bool) -> str:
        """Return the name of a volume that the author may make and remove."""
        name = check_volume_name(required_field(fields, "name"))
        if (VOLUME, name) in self.operations.table.files:
            raise Refused("static_name", f"{name} is a volume of the configuration file: change it there")
        self.operations.authorship.require(VOLUME, name, author, activates=False, is_of_run=is_of_run)
        return name


def _line_envelope(author: Author, line: str) -> CommandEnvelope:
    """Return the envelope of a command to a line; one operation may ask several slots."""
    command_id = f"{author.command_id}:{line}" if is_slot(line) else author.command_id
    return command_envelope(replace(author, command_id=command_id))


def _mount_at(fields: Mapping[str, Any]) -> str:
    mount_at = text_field(fields, "mount_at")
    if mount_at and (not mount_at.startswith("/") or len(mount_at) > MOUNT_CHARACTERS_MAX):
        text = f"mount_at: expected a path of at most {MOUNT_CHARACTERS_MAX} characters that begins with /"
        raise Refused("invalid_definition", text)
    return mount_at


def shown_path(path: str, *, is_admin: bool) -> str:
    """Return the folder of a volume for those who may see folders of the server; else REDACTED."""
    return path if is_admin else REDACTED


def _row(made: MadeVolume, author: Author) -> dict[str, Any]:
    """Return a volume as answers show it."""
    content = made.content
    path = shown_path(content.path, is_admin=author.is_admin)
    row: dict[str, Any] = {"name": content.name, "path": path, "mode": content.mode}
    if content.root_run:
        return row | {"ephemeral": True, "created_at": format_time(made.created_at_ms)}
    return row | {"created_at": format_time(made.created_at_ms), "updated_at": format_time(made.updated_at_ms)}
