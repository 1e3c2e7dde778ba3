"""What is done with volumes that are made at run time, for requests and for agents.

    create get list delete purge

The server derives the path; a request never has one. create makes the folder first and the line second, so a volume
that is listed has a folder. delete removes the line and keeps the files. purge removes the files first and the line
last: after a crash in between the volume is still listed, and purging it again finishes the work; the other way round
its files would wait, unlisted, for the next volume of that name. An ephemeral volume has nothing without its run, so
deleting it removes its files too.

Answers and errors name folders of the server to administrators only: to agents, and so to their users, a volume is its
name.

Processes that make and remove folders (an api for HTTP, a runtime for runs) must share the disk of the dynamic root.

Before: handlers.py, and ephemeral_volumes.py at the end of a run. After: volume_table.py, decide.py,
connectors/tools/volume_folders.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from msgspec import UNSET, structs

from loomlog.connectors.definitions import canonical_json
from loomlog.connectors.tools.thread_pool import ThreadPool
from loomlog.connectors.tools.volume_folders import VolumeFolders
from loomlog.schemas.generated.definition_commands import DefineVersion, DeleteLine
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.operations import Answer, NoInput
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.answers import format_time
from loomlog.services.families.definition.api_fields import NOT_FOUND
from loomlog.services.families.definition.attenuation import exceeding
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.decide import CONFLICT
from loomlog.services.families.definition.operations import DefinitionOperations, command_envelope, required
from loomlog.services.families.definition.state import VOLUME
from loomlog.services.families.definition.table import SHARED
from loomlog.services.families.definition.volume_api import (
    EphemeralVolume,
    EphemeralVolumes,
    MadeVolumes,
    Volume,
    VolumeCreate,
    VolumeEntry,
    VolumeNamed,
    VolumeRemove,
    VolumeRemoved,
    Volumes,
)
from loomlog.services.families.definition.volume_content import (
    MODES,
    MOUNT_CHARACTERS_MAX,
    VolumeContent,
    check_volume_name,
    folder_parts,
    is_slot,
)
from loomlog.services.families.definition.volume_table import MadeVolume, VolumeTable

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
REDACTED = ""
"""Path of a volume for those who may not see the server's folders."""
NO_NAMES_YET = "this version has no tree of names yet: {} is kept with the volume, and leads nowhere"


class VolumeOperations:
    """The operations. All methods raise Refused, Unavailable, FolderProblem, and what `refusing` of operations.py turns
    into Refused and Unavailable.
    """

    def __init__(self, operations: DefinitionOperations, volumes: VolumeTable) -> None:
        self.volumes = volumes
        self.operations = operations
        self._threads = ThreadPool(FOLDER_THREADS)

    # --- making ------------------------------------------------------------------------------------------------------

    async def create(self, asked: VolumeCreate, author: Author) -> Answer[Volume]:
        """Make a volume, or change its mode."""
        is_ephemeral = bool(asked.ephemeral)
        name = self._writable_name(asked.name, author, is_of_run=is_ephemeral)
        folders = self._folders()
        if is_ephemeral and not author.root_run_id:
            text = "an ephemeral volume ends with the run that makes it: only a run can make one"
            raise Refused("invalid_definition", text)
        mount_at = "" if is_ephemeral else _mount_at(asked.mount_at or "")
        root_run = author.root_run_id if is_ephemeral else ""
        if is_ephemeral:
            self._check_run(name, author)
        else:
            self.operations.check_room(VOLUME, name, author.tenant)
        parts = folder_parts(author.tenant, name, root_run)
        path, mode = folders.path(parts), asked.mode or MODES[0]
        content = VolumeContent(name=name, path=path, mode=mode, root_run=root_run, mount_at=mount_at)
        self._check_mode(content, author)
        await self._threads.run(lambda _: folders.make(parts))
        if is_ephemeral:
            return await self._create_ephemeral(content, author)
        position = await self._define(name, content, author, expect_active=None)
        made = self.volumes.made(author.tenant, name)
        if made is None:
            raise Refused(CONFLICT, f"{name} was deleted meanwhile: ask again")
        warning = NO_NAMES_YET.format(mount_at or f"/vol/{name}")
        row = structs.replace(_row(made, author), mount_warning=warning)
        return Answer(value=row, positions=(position,))

    def _check_run(self, name: str, author: Author) -> None:
        if self.volumes.find(author.tenant, name) is not None:
            raise Refused(CONFLICT, f"there is a volume {name} that lasts: choose another name")
        own = {one.content.name for one in self.volumes.ephemeral(author.tenant, author.root_run_id)}
        if name not in own and len(own) >= RUN_VOLUMES_MAX:
            raise Refused("too_many", f"the runs of this tree have {RUN_VOLUMES_MAX} ephemeral volumes already")
        if self.volumes.ephemeral_count(author.tenant) >= EPHEMERAL_MAX:
            raise Refused("too_many", f"the tenant has {EPHEMERAL_MAX} ephemeral volumes already")

    async def _create_ephemeral(self, content: VolumeContent, author: Author) -> Answer[Volume]:
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
        return Answer(value=_row(made[-1], author), positions=(position,))

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

    async def get(self, asked: VolumeNamed, author: Author) -> Answer[Volume]:
        """Return a volume of the run, of the tenant or of all tenants."""
        name = check_volume_name(required("name", asked.name))
        own = self.volumes.ephemeral(author.tenant, author.root_run_id, name)
        lasting = (self.volumes.made(owner, name) for owner in dict.fromkeys((author.tenant, SHARED)))
        made = next(filter(None, (*own, *lasting)), None)
        if made is None:
            raise Refused(NOT_FOUND, f"volume {name} not found")
        return Answer(value=_row(made, author))

    async def list_made(self, asked: NoInput, author: Author) -> Answer[MadeVolumes]:
        """Return the volumes of the tenant, and those of the run."""
        own = {one.content.name: one for one in self.volumes.ephemeral(author.tenant, author.root_run_id)}
        shown = (*self.volumes.lasting(author.tenant), *own.values())
        return Answer(value=MadeVolumes(volumes=[_row(one, author) for one in shown]))

    def list_all(self, tenant: str, *, is_admin: bool) -> Volumes:
        """Return the volumes that agents of a tenant may be bound to: of the files, its own, and the shared ones."""
        entries = {
            name: VolumeEntry(name=name, source="static", **_with_path(file.content, is_admin=is_admin))
            for (kind, name), file in sorted(self.volumes.definitions.files.items())
            if kind == VOLUME
        }
        sources: tuple[tuple[str, Literal["dynamic", "shared"]], ...] = ((tenant, "dynamic"), (SHARED, "shared"))
        for owner, source in sources if tenant else sources[1:]:
            for made in self.volumes.lasting(owner):
                entries.setdefault(made.content.name, _entry(made, source, is_admin=is_admin))
        return Volumes(entries=[*entries.values()])

    def list_ephemeral(self, tenant: str, *, is_admin: bool) -> EphemeralVolumes:
        """Return the volumes of a tenant that end with their runs, one for each run and name."""
        entries = {
            (one.content.root_run, one.content.name): EphemeralVolume(
                name=one.content.name,
                root_run_id=one.content.root_run,
                path=shown_path(one.content.path, is_admin=is_admin),
                mode=one.content.mode,
                created_at=format_time(one.created_at_ms),
            )
            for one in self.volumes.all_ephemeral(tenant)
        }
        return EphemeralVolumes(entries=[*entries.values()])

    # --- removing ----------------------------------------------------------------------------------------------------

    async def delete(self, asked: VolumeRemove, author: Author) -> Answer[VolumeRemoved]:
        """Remove a volume and keep its files."""
        return await self._remove(asked, author, with_files=False)

    async def purge(self, asked: VolumeRemove, author: Author) -> Answer[VolumeRemoved]:
        """Remove a volume with its files."""
        return await self._remove(asked, author, with_files=True)

    async def _remove(self, asked: VolumeRemove, author: Author, *, with_files: bool) -> Answer[VolumeRemoved]:
        ephemeral = self.volumes.ephemeral(author.tenant, author.root_run_id, asked.name)
        name, why = self._writable_name(asked.name, author, is_of_run=bool(ephemeral)), asked.why or ""
        if ephemeral:
            position = await self._end(ephemeral, author, why)
            removed = VolumeRemoved(name=name, deleted=True, files_removed=True)
            return Answer(value=removed, positions=(position,) if position else ())
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
        removed = VolumeRemoved(name=name, deleted=True, files_removed=is_removed)
        return Answer(value=removed, positions=(answer.position,))

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

    def _writable_name(self, name: str, author: Author, *, is_of_run: bool) -> str:
        """Return the name of a volume that the author may make and remove."""
        check_volume_name(required("name", name))
        if (VOLUME, name) in self.operations.table.files:
            raise Refused("static_name", f"{name} is a volume of the configuration file: change it there")
        self.operations.authorship.require(VOLUME, name, author, activates=False, is_of_run=is_of_run)
        return name


def _line_envelope(author: Author, line: str) -> CommandEnvelope:
    """Return the envelope of a command to a line; one operation may ask several slots."""
    command_id = f"{author.command_id}:{line}" if is_slot(line) else author.command_id
    return command_envelope(replace(author, command_id=command_id))


def _mount_at(mount_at: str) -> str:
    if mount_at and (not mount_at.startswith("/") or len(mount_at) > MOUNT_CHARACTERS_MAX):
        text = f"mount_at: expected a path of at most {MOUNT_CHARACTERS_MAX} characters that begins with /"
        raise Refused("invalid_definition", text)
    return mount_at


def shown_path(path: str, *, is_admin: bool) -> str:
    """Return the folder of a volume for those who may see folders of the server; else REDACTED."""
    return path if is_admin else REDACTED


def _row(made: MadeVolume, author: Author) -> Volume:
    """Return a volume as answers show it."""
    content = made.content
    return Volume(
        name=content.name,
        path=shown_path(content.path, is_admin=author.is_admin),
        mode=content.mode,
        ephemeral=True if content.root_run else UNSET,
        created_at=format_time(made.created_at_ms),
        updated_at=UNSET if content.root_run else format_time(made.updated_at_ms),
    )


def _entry(made: MadeVolume, source: Literal["dynamic", "shared"], *, is_admin: bool) -> VolumeEntry:
    return VolumeEntry(
        name=made.content.name,
        source=source,
        path=shown_path(made.content.path, is_admin=is_admin),
        mode=made.content.mode,
        default=False,
        dynamic_root=False,
        created_at=format_time(made.created_at_ms),
    )


def _with_path(content: Mapping[str, Any], *, is_admin: bool) -> Mapping[str, Any]:
    return {**content, "path": shown_path(content["path"], is_admin=is_admin)}
