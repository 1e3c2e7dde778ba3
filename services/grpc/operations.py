"""Operations that only gRPC has, because over HTTP they are files, or several routes.

    state_file.read                        a state file as one message
    pause.runtime_state                    the pauses, with the number of stored state files
    configuration.show                     what this installation has

Before: rpcs.py. After: services/application.
"""

import asyncio
import time
from contextlib import closing
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.api.routing_view import aliases_json
from loomlog.services.api.service import Service
from loomlog.services.application.operations import product_operations, streams
from loomlog.services.application.resources import clock_ms
from loomlog.services.core.access.decide import has_scope
from loomlog.services.core.access.rules import ANY_CALLER, PUBLIC, requires
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.operations import Answer, Call, Effect, Handlers, Input, NoInput, Operation, Output
from loomlog.services.core.refusals import Refused
from loomlog.services.families.registry import operations_by_name
from loomlog.services.stream.archive.state_reader import decompressed

PAUSE_STATE = operations_by_name()["pause.state"]
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Longest state file in one message; longer ones are downloads over HTTP."""


class StateFileRead(Input, frozen=True, kw_only=True):
    snapshot_id: Annotated[str, Meta(description="Id of the state file.")]


class StateFileContent(Output, frozen=True, kw_only=True):
    """A stored state file in one piece."""

    snapshot_id: str
    created_at: str
    description: str
    format_version: str
    size_bytes: Annotated[int, Meta(description="Bytes of the content.")]
    checksum: Annotated[str, Meta(description="SHA-256 of the stored file.")]
    content: Annotated[bytes, Meta(description="The document, JSON.")]


class RuntimeState(Output, frozen=True, kw_only=True):
    status: Annotated[str, Meta(description="running, pausing or paused.")]
    paused_at: Annotated[str | None, Meta(description="When everything was paused (RFC 3339).")]
    paused_run_count: int
    snapshots_count: Annotated[int, Meta(description="Stored state files.")]


class Configuration(Output, frozen=True, kw_only=True):
    """What an installation has, as far as its caller may see it."""

    config_json: dict[str, Any]


class ServerHealth(Output, frozen=True, kw_only=True):
    ok: bool
    commit: str
    built: str
    uptime_seconds: int


_read = partial(Operation, effect=Effect.READ)
READ_STATE_FILE = _read(
    name="state_file.read",
    summary="Get a stored state file with its content.",
    input=StateFileRead,
    output=StateFileContent,
    access=streams.READ_STATE_FILE,
    unavailable_code="blobs_unavailable",
)
GET_RUNTIME_STATE = _read(
    name="pause.runtime_state",
    summary="Get the state of the runtime, and how many state files are stored.",
    input=NoInput,
    output=RuntimeState,
    access=requires(ADMIN),
)
SHOW_CONFIGURATION = _read(
    name="configuration.show",
    summary="Show what this installation has.",
    input=NoInput,
    output=Configuration,
    access=ANY_CALLER,
)
GET_HEALTH = _read(
    name="health.get", summary="Say that this process answers.", input=NoInput, output=ServerHealth, access=PUBLIC
)
OPERATIONS = (
    READ_STATE_FILE,
    GET_RUNTIME_STATE,
    SHOW_CONFIGURATION,
    GET_HEALTH,
)


class GrpcOperations:
    """The handlers. All raise Refused."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        return {
            READ_STATE_FILE: self.read_state_file,
            GET_RUNTIME_STATE: self.runtime_state,
            SHOW_CONFIGURATION: self.configuration,
            GET_HEALTH: self.health,
        }

    # --- state files -------------------------------------------------------------------------------------------------

    async def read_state_file(self, call: Call[StateFileRead]) -> Answer[StateFileContent]:
        """Return a stored state file."""
        manifest, file = await self._service.application.backups.open(call.input.snapshot_id)
        with closing(file):
            content = await asyncio.to_thread(decompressed(file).read, ANSWER_BYTES_MAX + 1)
        if len(content) > ANSWER_BYTES_MAX:
            text = f"the snapshot has more than {ANSWER_BYTES_MAX} bytes: download it over HTTP (/v1/_snapshots)"
            raise Refused("snapshot_too_large", text)
        return Answer(
            value=StateFileContent(
                snapshot_id=manifest["id"],
                created_at=manifest["created_at"],
                description=manifest["label"],
                format_version=str(manifest["schema_version"]),
                size_bytes=len(content),
                checksum=manifest["sha256"],
                content=content,
            )
        )

    # --- the installation --------------------------------------------------------------------------------------------

    async def runtime_state(self, call: Call[NoInput]) -> Answer[RuntimeState]:
        """Return the state of the runtime."""
        application = self._service.application
        state = await application.dispatch.handlers[PAUSE_STATE](call)
        files = await application.backups.list()
        of_all = (pause.at for pause in state.value.pauses if pause.scope == "all")
        return Answer(
            value=RuntimeState(
                status=state.value.state,
                paused_at=next(of_all, None),
                paused_run_count=state.value.paused_runs_count,
                snapshots_count=len(files),
            )
        )

    async def configuration(self, call: Call[NoInput]) -> Answer[Configuration]:
        """Return what this installation has."""
        service, is_admin = self._service, has_scope(call.principal, ADMIN)
        shown: dict[str, Any] = {
            "generated_at": format_rfc3339(clock_ms()),
            "view": "admin" if is_admin else "authenticated",
            "instance": {"version": service.version, "commit": service.commit, "build_time": service.built},
            "features": {family: {"available": True} for family in sorted({o.family for o in product_operations()})},
            "providers": [{"provider": name, "active": one.is_usable} for name, one in service.providers.items()],
            "models": [
                {"alias": alias, **model} for alias, model in aliases_json(service.configuration)["aliases"].items()
            ],
            "search": [],
        }
        return Answer(value=Configuration(config_json=shown))

    async def health(self, call: Call[NoInput]) -> Answer[ServerHealth]:
        """Say that this process answers."""
        service = self._service
        uptime_s = int(time.monotonic() - service.started_at)
        return Answer(value=ServerHealth(ok=True, commit=service.commit, built=service.built, uptime_seconds=uptime_s))
