"""Options that the evaluations share, and their files.

Before: offline.py, live.py, judge.py, calibrate.py. After: connectors/configuration, connectors/embedders.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from loomlog.connectors.configuration.driver_options import embedder_options
from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import ProcessConfiguration, load
from loomlog.connectors.embedders.catalog import build_embedder
from loomlog.connectors.embedders.embedder import EMBEDDING_DIMENSIONS_MAX, Embedder
from loomlog.connectors.embedders.errors import EmbedderFailed
from loomlog.connectors.embedders.stub import StubEmbedder
from loomlog.services.cli.errors import CliError, NotFound, UsageError
from loomlog.services.cli.settings import TOKEN_VARIABLE
from loomlog.services.cli.terminal.times import RELATIVE_TIME, UNIT_S
from loomlog.services.families.registry import family_tools

FILE_BYTES_MAX = 1024 * 1024
AUTO, STUB = "auto", "stub"
BASE_PRESET, PRESET = "base", "memory"
"""Presets with the tiers of the agents, and with the agents whose prompts are measured."""
Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config", metavar="FILE", help="Configuration file; may be repeated. Default: those of this folder."
    ),
]
Output = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write the report as JSON to this file.")]
EmbedDim = Annotated[
    int,
    typer.Option(
        "--embed-dim", min=1, max=EMBEDDING_DIMENSIONS_MAX, help="Numbers in a vector of the stub, or of the stand-in."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of what is generated: the same seed, the same chats.")]
NoGate = Annotated[bool, typer.Option("--no-gate", help="Exit with 0 whatever the figures are.")]


def load_files(paths: Sequence[Path] | None, *, with_preset: bool = False) -> ProcessConfiguration:
    """Return the configuration; `with_preset`: with the agents of the preset memory below the files. Raises
    UsageError, NotFound.
    """
    environ = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    if missing := [path for path in paths or () if not path.is_file()]:
        raise NotFound(f"--config: there is no file {missing[0]}.")
    try:
        if with_preset:
            presets = read_settings(environ, working_directory=Path.cwd())[0].presets
            if PRESET not in presets:
                environ["LOOMLOG_PRESETS"] = ",".join(dict.fromkeys((BASE_PRESET, *presets, PRESET)))
        return load(environ, working_directory=Path.cwd(), paths=paths or (), family_tools=family_tools())
    except ConfigurationError as problem:
        raise UsageError(str(problem)) from problem


def open_embedder(name: str, paths: Sequence[Path] | None, dimensions: int) -> Embedder:
    """Return the stub or, for `auto`, the embedder of the configuration. Raises UsageError, CliError."""
    if name == STUB:
        return StubEmbedder(dimensions=dimensions)
    loaded = load_files(paths)
    try:
        embedder = build_embedder(embedder_options(loaded.configuration, loaded.settings), os.environ)
    except ValueError as problem:
        raise CliError(f"{problem}.") from problem
    if embedder is None:
        raise CliError("The configuration has no embedder: set memory.embedder, or measure the stub: --embedder stub.")
    return embedder


def embedder_error(embedder: Embedder, failed: EmbedderFailed) -> CliError:
    """Return what is reported of an embedder that made no vectors."""
    return CliError(f"{embedder.provider}/{embedder.model}: {failed}.")


def parse_duration(text: str, option: str) -> float:
    """Return the seconds of a duration such as 90s, 5m or 1h. Raises UsageError."""
    match = RELATIVE_TIME.match(text.strip())
    if match is None or not int(match[1]):
        raise UsageError(f"{option} is {text[:60]!r}; expected a duration like 90s, 5m or 1h.")
    return float(int(match[1]) * UNIT_S[match[2]])


def read_json_file(path: Path, option: str) -> Any:
    """Return the JSON value of a file. Raises NotFound, UsageError."""
    if not path.is_file():
        raise NotFound(f"{option}: there is no file {path}.")
    try:
        data = path.read_bytes()
        if len(data) > FILE_BYTES_MAX:
            raise UsageError(f"{option}: {path} has more than {FILE_BYTES_MAX:,} bytes.")
        return orjson.loads(data)
    except OSError as error:
        raise UsageError(f"{option}: {path} cannot be read: {error.strerror}.") from error
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{option}: {path} is not JSON: {error}.") from error


def write_json_file(path: Path, value: Mapping[str, Any], option: str) -> None:
    """Write a JSON value. Raises UsageError."""
    try:
        path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    except OSError as error:
        raise UsageError(f"{option}: {path} cannot be written: {error.strerror}.") from error
