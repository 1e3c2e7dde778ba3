"""`loomlog hash`: the content hash of a definition, equal to the one of a stored version with the same content.

    loomlog hash agent FILE                               an agent of a Markdown file
    loomlog hash agent --config loomlog.yaml reviewer     an agent of a configuration
    loomlog hash skill skills/pdf                         a skill, with the files in its folder

References to the environment are expanded as the services do it. No service has to run.

Before: services/cli/main.py. After: loomlog.connectors.definitions.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from loomlog.connectors.configuration.agent_files import MAX_AGENT_FILE_BYTES, SUFFIX, parse_agent_file
from loomlog.connectors.configuration.findings import ConfigurationError, did_you_mean
from loomlog.connectors.configuration.load import load
from loomlog.connectors.configuration.markdown_files import read_text
from loomlog.connectors.configuration.skill_files import SKILL_FILE, read_skill_folder
from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.errors import CliError, NotFound
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import print_json
from loomlog.services.families.registry import family_tools

hash_app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Print the content hash of an agent or a skill.")
ON_DISK_ONLY = ("system_prompt_file", "code")
"""Keys of agents that name another file: what they name is part of the content."""
Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Name, part of the hash; default: that of the file or folder.")
]


@hash_app.command("agent")
def hash_agent(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Markdown file, or with --config a name.")],
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Configuration file that has the agent.")
    ] = None,
    name: Name = "",
    as_json: Json = False,
) -> None:
    """Print the content hash of an agent."""
    if config is None:
        file = Path(agent)
        name = name or file.name.removesuffix(SUFFIX)
        block = _read_agent(file, name)
    else:
        name = name or agent
        block = _load_agent(config, agent)
    _print("agent", name, block, as_json=as_json)


@hash_app.command("skill")
def hash_skill(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help=f"Folder with a {SKILL_FILE}.")],
    name: Name = "",
    as_json: Json = False,
) -> None:
    """Print the content hash of a skill."""
    folder = folder.parent if folder.name == SKILL_FILE else folder
    if not (folder / SKILL_FILE).is_file():
        raise NotFound(f"There is no file {folder / SKILL_FILE}.")
    name = name or folder.resolve().name
    try:
        values, _ = read_skill_folder(folder, name, environ=os.environ)
        block = KINDS["skill"].block_of(values)
    except (ConfigurationError, DefinitionProblem) as problem:
        raise CliError(f"{folder}: {problem}") from problem
    _print("skill", name, block, as_json=as_json)


def _read_agent(file: Path, name: str) -> Any:
    """Return the block of an agent of a Markdown file."""
    if not file.is_file():
        raise NotFound(f"There is no file {file}; an agent of a configuration is named with --config FILE NAME.")
    try:
        values = parse_agent_file(read_text(file, MAX_AGENT_FILE_BYTES), name, environ=os.environ)
        block = KINDS["agent"].block_of(values)
    except (ValueError, ConfigurationError, DefinitionProblem) as problem:
        raise CliError(f"{file}: {problem}") from problem
    if key := next((key for key in ON_DISK_ONLY if values.get(key)), None):
        raise CliError(f"{file}: {key} names a file that is part of the agent; hash it as part of a configuration.")
    return block


def _load_agent(config: Path, name: str) -> Any:
    """Return the block of an agent of a configuration, prompts and scripts included."""
    try:
        loaded = load(os.environ, working_directory=Path.cwd(), paths=[config], family_tools=family_tools())
    except ConfigurationError as problem:
        raise CliError(str(problem)) from problem
    agents = loaded.configuration.agents
    if name not in agents:
        raise NotFound(f"{config} has no agent {name}{did_you_mean(name, agents)}.")
    if agents[name].code and not agents[name].code_body:
        raise CliError(f"The script of {name} is not read: set LOOMLOG_CODE_AGENTS_ENABLED=1 and its folder.")
    return agents[name]


def _print(kind: str, name: str, block: Any, *, as_json: bool) -> None:
    try:
        KINDS[kind].check_name(name)
    except DefinitionProblem as problem:
        raise CliError(f"{name}: {problem}; --name gives another.") from problem
    content_hash = KINDS[kind].hash(name, KINDS[kind].content_of(block))
    if as_json:
        print_json({"name": name, "content_sha256": content_hash})
    else:
        print(content_hash)
