"""The start plan, checked before anything starts: configuration, folders, addresses, access.

A mistake in a file, a port in use or a missing token is one sentence here, in half a second, and not a dead child after
the broker has started. The services load the same configuration again and validate it themselves.

The folders of a review reach the services as an additional configuration file in the state folder (the overlay), which
only sets the paths of the volumes `source` and `out`. It stays until the next review, so that a run which a stop
interrupted finds the same folders at the next `up`.

Before: up.py, services/cli/runs/review.py. After: services.py.
"""

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.settings import Settings
from loomlog.services.cli.errors import CliError, UsageError
from loomlog.services.cli.settings import CliSettings
from loomlog.services.cli.stack.home import write_atomically
from loomlog.services.cli.stack.ports import describe_port_holder, is_port_free, pick_port
from loomlog.services.families import FamilyProblem
from loomlog.services.families.process_start import load_for_start, opens_by_default

OVERLAY = "review.yaml"
SOURCE, OUT = "source", "out"
LOCAL_DRAIN_MS = 3_000
"""Drain time of a local stop, which should take seconds; unfinished calls are resumed at the next start."""
MAX_RUNTIMES = 16
"""Maximum runtimes, spares included; more than the partitions of the local topics would be idle."""
DEFAULT_SPARES = 2
"""Runtimes that wait beside those that own partitions, unless the settings or a flag name another number: after a death
one is left while the ended process comes back.
"""
TWO_SPARES_BYTES = 4 * 1024**3
"""Memory that has to be available for more than one. A runtime takes about 110 MB; its tools may take more."""
MAX_START_PAUSED_CHARACTERS = 48
"""Maximum characters kept of LOOMLOG_START_PAUSED, so that a time in milliseconds can be appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFolders:
    """Absolute paths of a review's volumes."""

    source: Path
    out: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """A stack that can be started. `environ` is for all services; broker and Postgres are still missing in it."""

    settings: Settings
    configuration: Configuration
    files: tuple[Path, ...]
    environ: Mapping[str, str] = field(repr=False)
    listen_addr: str
    grpc_addr: str
    """Empty: it is off."""
    insights_port: int | None
    open_mode: bool
    runtimes: int
    spares: int
    """Runtimes that are started in addition and wait without partitions."""
    record: Path
    """stack.json, which names the processes of the children."""
    warnings: tuple[str, ...]

    @property
    def api_url(self) -> str:
        host, _, port = self.listen_addr.rpartition(":")
        return f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '[::]') else host}:{port}"

    @property
    def insights_url(self) -> str:
        return "" if self.insights_port is None else f"http://127.0.0.1:{self.insights_port}"

    def volume_path(self, volume: str) -> str:
        block = self.configuration.volumes.get(volume)
        return "" if block is None else str(block.path)


def create_plan(
    cli: CliSettings,
    *,
    working_directory: Path,
    runtimes: int = 1,
    spares: int | None = None,
    folders: ReviewFolders | None = None,
) -> StackPlan:
    """Create the plan, with the `folders` of a review or else of the previous one. Raises UsageError or CliError.
    Blocking.

    `spares` None: as LOOMLOG_SPARES says, or by the memory that is available, DEFAULT_SPARES or one. The
    state folder must exist: an overlay is written into it.
    """
    if not 1 <= runtimes <= MAX_RUNTIMES:
        raise UsageError(f"--runtimes is {runtimes}; expected 1 to {MAX_RUNTIMES}.")
    environ = dict(cli.environ)
    loaded = _load(environ, working_directory)
    overlay = cli.home.root / OVERLAY
    if folders is not None:
        _write_overlay(overlay, folders, loaded.configuration)
    if overlay.exists():
        environ["LOOMLOG_CONFIG_FILES"] = _files_with_overlay(overlay, loaded)
        loaded = _load(environ, working_directory)
    settings = loaded.settings
    spares = _count_spares(spares, settings, runtimes, psutil.virtual_memory().available)
    open_mode = opens_by_default(loaded)
    if open_mode:
        environ["LOOMLOG_OPEN_MODE"] = "1"
    listen_addr, insights_port = _choose_addresses(settings)
    grpc_addr = _choose_grpc_address(settings, taken=(int(listen_addr.rpartition(":")[2]), insights_port))
    environ |= {
        "LOOMLOG_HOME": str(cli.home.root),
        "LOOMLOG_LISTEN_ADDR": listen_addr,
        "LOOMLOG_GRPC_ADDR": grpc_addr,
        "LOOMLOG_SPARES": str(spares),
        "LOOMLOG_DRAIN_TIMEOUT_MS": str(min(settings.drain_timeout_ms, LOCAL_DRAIN_MS)),
    }
    if settings.start_paused:
        # Each `loomlog up` is a new start; a restart of a service by its supervisor is not.
        environ["LOOMLOG_START_PAUSED"] = (
            f"{settings.start_paused[:MAX_START_PAUSED_CHARACTERS]}@{time.time_ns() // 1_000_000}"
        )
    if insights_port is not None:
        environ["LOOMLOG_INSIGHTS_HOST"] = "127.0.0.1"  # where the stack asks it
        environ["LOOMLOG_INSIGHTS_PORT"] = str(insights_port)
    return StackPlan(
        settings=settings,
        configuration=loaded.configuration,
        files=loaded.files,
        environ=environ,
        listen_addr=listen_addr,
        grpc_addr=grpc_addr,
        insights_port=insights_port,
        open_mode=open_mode,
        runtimes=runtimes,
        spares=spares,
        record=cli.home.record,
        # Replacing two paths is the purpose of the overlay.
        warnings=tuple(
            str(warning) for warning in loaded.warnings if not _mentions_overlay(str(overlay), str(warning))
        ),
    )


def _count_spares(requested: int | None, settings: Settings, runtimes: int, available_bytes: int) -> int:
    if requested is not None:
        name, spares = "--spares", requested
    elif settings.spares is not None:
        name, spares = "LOOMLOG_SPARES", settings.spares
    else:
        return min(DEFAULT_SPARES if available_bytes >= TWO_SPARES_BYTES else 1, MAX_RUNTIMES - runtimes)
    if not 0 <= spares <= MAX_RUNTIMES - runtimes:
        raise UsageError(
            f"{name} is {spares}; expected 0 to {MAX_RUNTIMES - runtimes}: with {runtimes} that own partitions there "
            f"are at most {MAX_RUNTIMES} runtimes."
        )
    return spares


def overlay_text(folders: ReviewFolders, configuration: Configuration) -> str:
    """Return the overlay: existing volumes keep everything but their path."""
    lines = ["# Written by `loomlog review`: where its two volumes lie. Replaced by the next one.", "volumes:"]
    for name, folder, mode in ((SOURCE, folders.source, "ro"), (OUT, folders.out, "rw")):
        fields = {"path": str(folder)}
        if name not in configuration.volumes:
            fields["mode"] = mode
        lines.append(f"  {name}: {json.dumps(fields)}")
    return "\n".join(lines) + "\n"


def _write_overlay(overlay: Path, folders: ReviewFolders, configuration: Configuration) -> None:
    """Write the overlay, or remove it when the other files already have the same paths."""
    for folder in (folders.source, folders.out):
        if "${" in str(folder):
            raise UsageError(f"The folder {folder} has ${{ in its name, which a configuration file would expand.")
    if _configured_folders(configuration) == folders:
        overlay.unlink(missing_ok=True)
    else:
        write_atomically(overlay, overlay_text(folders, configuration))


def _files_with_overlay(overlay: Path, loaded: ProcessConfiguration) -> str:
    """Return the list of configuration files with the overlay on top."""
    named = loaded.settings.config_files
    # Naming a file disables the search, so the file that was found must be named too.
    base = named if named or loaded.settings.config_dir is not None else loaded.files
    unusable = next((file for file in base if ":" in str(file)), None)
    if unusable is not None:
        raise UsageError(
            f"The configuration file {unusable} has a colon in its path, which LOOMLOG_CONFIG_FILES cannot hold; "
            "another file has to be put on top of it for a review. Move or link it."
        )
    return ":".join(str(file) for file in (*base, overlay))


def _configured_folders(configuration: Configuration) -> ReviewFolders | None:
    source, out = configuration.volumes.get(SOURCE), configuration.volumes.get(OUT)
    if source is None or out is None:
        return None
    return ReviewFolders(source=Path(source.path), out=Path(out.path))


def _load(environ: Mapping[str, str], working_directory: Path) -> ProcessConfiguration:
    try:
        return load_for_start(environ, working_directory=working_directory, open_on_this_machine=True)
    except (ConfigurationError, FamilyProblem) as problem:
        raise UsageError(f"The configuration cannot be used:\n{problem}") from problem


def _choose_addresses(settings: Settings) -> tuple[str, int | None]:
    """Return the ports of API and insights; port 0 means any free one. Raises CliError when one is in use."""
    host, _, port = settings.listen_addr.rpartition(":")
    api_port = _require_port("The API", "LOOMLOG_LISTEN_ADDR=127.0.0.1:<port>", int(port), taken=())
    if not settings.insights_enabled:
        return f"{host}:{api_port}", None
    setting = "LOOMLOG_INSIGHTS_PORT=<port> (0 for any free one, or LOOMLOG_INSIGHTS_ENABLED=0)"
    return f"{host}:{api_port}", _require_port(
        "The insights service", setting, settings.insights_port, taken=(api_port,)
    )


def _choose_grpc_address(settings: Settings, *, taken: Collection[int | None]) -> str:
    """Return the address of gRPC, empty when it is off; port 0: any free one. Raises CliError when it is in use."""
    if not settings.grpc_addr:
        return ""
    host, _, port = settings.grpc_addr.rpartition(":")
    setting = "LOOMLOG_GRPC_ADDR=127.0.0.1:<port>"
    return f"{host}:{_require_port('gRPC', setting, int(port), taken=taken)}"


def _require_port(service: str, setting: str, port: int, *, taken: Collection[int | None]) -> int:
    if port == 0:
        # The first port is not in use yet, so the system may offer it a second time.
        port = next(picked for picked in iter(pick_port, None) if picked not in taken)
    elif port in taken or not is_port_free(port):
        holder = describe_port_holder(port) if port not in taken else "the API or insights is to have it"
        raise CliError(f"{service} wants port {port}, but {holder}. Stop that, or choose another: {setting}.")
    return port


def _mentions_overlay(overlay: str, warning: str) -> bool:
    return overlay in warning or f"/{OVERLAY}:" in warning or warning.startswith(f"{OVERLAY}:")
