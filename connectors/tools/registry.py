"""Built-in tools of this process, and the subset granted to a run.

Two conditions, both off by default: the operator enables a tool for the process (ToolOptions; a tool that is not
enabled does not exist here), and the agent definition lists it (`select_granted`). A name in a definition may end with
`*`; anywhere else a star is a literal character, so that `*Bash` grants nothing by accident.

The result is a plain dict; tools of other sources are added to it by the code that connects them, and the Context tool
sees them, because it holds the same dict.

Before: the settings of services/runtime. After: all tools in this directory.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.protocols import DefinitionsView, EffectClass, SkillShelf, Tool, ToolSpec
from loomlog.connectors.tools.agent import IDLE_TTL_S, RESIDENTS_MAX, AgentTool
from loomlog.connectors.tools.arguments import require_supported_schema
from loomlog.connectors.tools.bash import BashTool
from loomlog.connectors.tools.bench import BenchTool
from loomlog.connectors.tools.context import ChannelRows, ContextTool
from loomlog.connectors.tools.edit import build_edit_tool
from loomlog.connectors.tools.glob import build_glob_tool
from loomlog.connectors.tools.grep import build_grep_tool
from loomlog.connectors.tools.help import load_help_topics
from loomlog.connectors.tools.http import HttpTool
from loomlog.connectors.tools.interruption import InterruptionTool
from loomlog.connectors.tools.ledger import LedgerTool, ReconcilingLedgerTool
from loomlog.connectors.tools.read import build_read_tool
from loomlog.connectors.tools.server_info import ServerInfo
from loomlog.connectors.tools.skill import SkillTool
from loomlog.connectors.tools.thread_pool import ThreadPool
from loomlog.connectors.tools.web_client import WebClient
from loomlog.connectors.tools.web_fetch import WebFetchTool
from loomlog.connectors.tools.write import build_write_tool
from loomlog.schemas.client_names import visible_name

WILDCARD = "*"
UNKNOWN_NAME_CHARACTERS = 80
"""Characters of a wrong name that are repeated: longer than the name of any tool."""
TOOLS_NAMED_MAX = 50
"""Tools that an error names; a run with more has the list in its request too."""
_PREFIX = re.compile(r".*[.:/]")
"""What some models put before a name: `functions.Read`."""
GRANTED_BY_NAME = frozenset({SkillTool.name})
"""Tools that no pattern grants: connectors/configuration/resolve.py adds the name where an agent may use a skill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """Operator's settings of built-in tools. `environment` is the process environment as main() read it."""

    bash_enabled: bool = False
    bash_env_names: tuple[str, ...] = ()
    """Names of environment variables passed to commands in addition to PATH, if `environment` has them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    private_hosts: tuple[str, ...] = ()
    """Hosts, by exact name, that may resolve to private addresses."""
    bench_enabled: bool = False
    ledger_path: str = ""
    """Path of the ledger file; empty: no Ledger tool."""
    ledger_effect: EffectClass = EffectClass.UNSAFE
    ledger_reconciles: bool = False
    residents_max: int = RESIDENTS_MAX
    resident_idle_ttl_s: int = IDLE_TTL_S
    server: ServerInfo = field(default_factory=ServerInfo)
    help_root: Path | None = None
    """Folder of the operator's help topics."""
    definitions: DefinitionsView | None = None
    """Definitions as runs see them; None: Context has no ops about them."""
    channels: ChannelRows | None = None
    """Channels as runs see them; None: Context has no op about them."""
    skills: SkillShelf | None = None
    """Skills that runs may load; None: no Skill tool."""


def build_tools(options: ToolOptions) -> dict[str, Tool]:
    """Return the enabled tools by name. Reads the certificate authorities (some 20 ms) and the help topics; opens
    nothing else. Raises ValueError when a help topic of the operator is not usable.
    """
    threads = ThreadPool()
    web = WebClient(private_hosts=options.private_hosts)
    tools: dict[str, Tool] = {}
    built: list[Tool] = [
        AgentTool(residents_max=options.residents_max, idle_ttl_s=options.resident_idle_ttl_s),
        ContextTool(
            server=options.server,
            catalogue=tools,
            help_topics=load_help_topics(options.help_root),
            definitions=options.definitions,
            channels=options.channels,
        ),
        build_read_tool(threads),
        build_write_tool(threads),
        build_edit_tool(threads),
        build_glob_tool(threads),
        build_grep_tool(threads),
        HttpTool(web),
        WebFetchTool(web, threads),
    ]
    if options.bash_enabled:
        built.append(BashTool(threads, environment=options.environment, allowed_names=options.bash_env_names))
    if options.bench_enabled:
        built.append(BenchTool())
    if options.ledger_path:
        ledger = ReconcilingLedgerTool if options.ledger_reconciles else LedgerTool
        built.append(ledger(threads, path=options.ledger_path, effect=options.ledger_effect))
    for tool in built:
        require_supported_schema(tool.name, tool.input_schema)
        tools[tool.name] = tool
    # Added without the schema check: the core reads its arguments and checks them itself.
    tools[InterruptionTool.name] = InterruptionTool()
    if options.skills is not None:
        skill = SkillTool(options.skills)
        require_supported_schema(skill.name, skill.input_schema)
        tools[skill.name] = skill  # the last one, so that a prompt cache of agents without it stays valid
    return tools


def select_granted(names: Iterable[str], available: Collection[str]) -> tuple[str, ...]:
    """Return the available names that a list of names and trailing-star patterns grants, in the
    order of `available`. A list of an earlier version may have names that tools had then.
    """
    granted = tuple(map(visible_name, names))
    exact = {name for name in granted if not name.endswith(WILDCARD)}
    beginnings = tuple(name.removesuffix(WILDCARD) for name in granted if name.endswith(WILDCARD))
    return tuple(
        name for name in available if name in exact or (name.startswith(beginnings) and name not in GRANTED_BY_NAME)
    )


def describe_unknown_tool(name: str, granted: Collection[str]) -> str:
    """Return what a model that called a tool it does not have is told: the tool it probably meant, and those there are.
    A small model repeats a wrong name until it is shown the right ones.
    """
    shown = name[:UNKNOWN_NAME_CHARACTERS]
    hint = did_you_mean(shown, granted) or did_you_mean(_PREFIX.sub("", shown), granted)
    listed = ", ".join(sorted(granted)[:TOOLS_NAMED_MAX]) or "none"
    more = f" and {len(granted) - TOOLS_NAMED_MAX} more" if len(granted) > TOOLS_NAMED_MAX else ""
    return f"tool not found: {shown}{hint}{'' if hint else ';'} the tools of this run are: {listed}{more}"


def build_specs(tools: Mapping[str, Tool], names: Iterable[str]) -> tuple[ToolSpec, ...]:
    """Return the specs of the granted tools for the model, in a stable order (prompt caches depend on it)."""
    return tuple(
        ToolSpec(name=name, description=tools[name].description, input_schema=tools[name].input_schema)
        for name in select_granted(names, tools)
    )
