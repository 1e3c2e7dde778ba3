"""Whether the parts of a configuration fit together: names must exist, models must resolve.

The model (model.py) has checked each value by itself; here are the rules that look at two places. Every rule collects,
none stops, and each finding points to the line that should be changed.

Before: model.py, routing.py. After: load.py.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from loomlog.connectors.configuration.agent_block import Agent, Candidate
from loomlog.connectors.configuration.environment import PREFIXES, secret_names
from loomlog.connectors.configuration.field_types import Tier
from loomlog.connectors.configuration.findings import Finding, did_you_mean, listed
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.providers import DIALECTS, KNOWN_OPTIONS, SWITCHED_OFF
from loomlog.connectors.configuration.routing import DEFAULT_USER_TIER, DeadEnd, choice_of, choices
from loomlog.connectors.configuration.shape import dotted
from loomlog.connectors.configuration.tree import Branch, Leaf, Path, mark_of
from loomlog.connectors.configuration.unsupported_keys import (
    FOREIGN_TOOL_PREFIXES,
    LATER_DRIVERS,
    LATER_TOOLS,
    TOOLS_NOW,
)
from loomlog.schemas.client_names import TOOL_NAME_PREFIX as CLIENT_PREFIX
from loomlog.schemas.client_names import is_client_grant, visible_name

PLACEHOLDERS = ("{{memory:", "{{tool:")
"""Parts of a prompt that the reference fills in."""
CLIENT_GRANTED = re.compile(r"[A-Za-z0-9_-]{1,56}|[A-Za-z0-9_-]{0,56}\*", re.ASCII)
CLIENT_SAID = "client: and 1 to 56 of A-Z, a-z, 0-9, _ and -, or the beginning of such a name and *"
ALL_TOOLS = TOOLS_NOW | frozenset(LATER_TOOLS)


def check(configuration: Configuration, root: Branch) -> tuple[list[Finding], list[Finding]]:
    """(errors, warnings). `root` is the merged tree, for the places."""
    checking = _Checking(configuration=configuration, root=root)
    checking.providers()
    checking.models()
    checking.user_tiers()
    checking.volumes()
    checking.remote_tools()
    checking.pricing()
    checking.principals()
    checking.interruption()
    for name, agent in configuration.agents.items():
        checking.agent(name, agent)
    checking.later_tools()
    return checking.errors, checking.warnings


@dataclass(slots=True, kw_only=True)
class _Checking:
    configuration: Configuration
    root: Branch
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    later: dict[str, Path] = field(default_factory=dict)
    """Tools of later versions, each with the first place that grants it."""
    without_driver: set[str] = field(default_factory=set)
    """Providers that have been said to have no driver in this version."""

    def providers(self) -> None:
        for name, block in self.configuration.providers.items():
            path: Path = ("providers", name)
            if (
                block.base_url
                and block.base_url != SWITCHED_OFF
                and not block.base_url.startswith(("http://", "https://"))
            ):
                self._error((*path, "base_url"), "expected a URL that begins with http:// or https://")
            if block.dialect and block.dialect != DIALECTS[block.driver]:
                expected = DIALECTS[block.driver]
                self._error((*path, "dialect"), f"the driver {block.driver} speaks {expected}, not {block.dialect}")
            if block.api_key_env in secret_names():
                message = f"{block.api_key_env} is a secret of the installation and must not be sent to a provider"
                self._error((*path, "api_key_env"), message)
            known = KNOWN_OPTIONS.get(block.driver, frozenset(block.options))
            for option in block.options:
                if option not in known:
                    message = f"the driver {block.driver} does not read this option{did_you_mean(option, known)}"
                    self._warning((*path, "options", option), message)
        self._known_providers(("provider_priority",), self.configuration.provider_priority)

    def models(self) -> None:
        for name, alias in self.configuration.models.items():
            if bool(alias.model) == bool(alias.model_pattern):
                self._error(("models", name), "an alias has either model or model_pattern, and not both")
            self._known_provider(("models", name, "provider"), alias.provider)
        self._candidates(("tiers",), self.configuration.tiers)
        defaults = self.configuration.defaults
        if (defaults.provider or defaults.model) and isinstance(
            found := choices(self.configuration, Agent(provider=defaults.provider, model=defaults.model)), DeadEnd
        ):
            self._error(("defaults",), found.message)

    def user_tiers(self) -> None:
        plans = self.configuration.user_tiers
        if plans and DEFAULT_USER_TIER not in plans:
            self._error(("user_tiers",), f"needs a tier named {DEFAULT_USER_TIER}, for users of no other tier")
        for name, plan in plans.items():
            self._known_providers(("user_tiers", name, "provider_priority"), plan.provider_priority)
            self._candidates(("user_tiers", name, "tiers"), plan.tiers)

    def volumes(self) -> None:
        marked = [name for name, volume in self.configuration.volumes.items() if volume.default]
        if len(marked) > 1:
            self._error(
                ("volumes", marked[1], "default"), f"only one volume may be the default; {marked[0]} is one already"
            )

    def remote_tools(self) -> None:
        for name, tool in self.configuration.remote_tools.items():
            path: Path = ("remote_tools", name)
            if name in ALL_TOOLS or is_client_grant(name) or name.startswith(tuple(FOREIGN_TOOL_PREFIXES)):
                self._error(
                    path, f"{name} is the name of another tool, or begins like those of another kind", of_key=True
                )
            if not tool.description.strip():
                self._error((*path, "description"), "a model needs to be told what the tool does")
            if tool.input_schema.get("type") != "object":
                self._error((*path, "input_schema"), "expected a JSON schema with type: object")

    def pricing(self) -> None:
        for name in self.configuration.pricing.models:
            provider, slash, model = name.partition("/")
            path: Path = ("pricing", "models", name)
            if not (provider and slash and model):
                self._error(path, 'expected "provider/model" as the key, like openai/gpt-5-mini', of_key=True)
            elif provider not in self.configuration.providers:
                hint = did_you_mean(provider, self.configuration.providers)
                self._warning(path, f"there is no provider {provider}, so this price is never used{hint}", of_key=True)

    def principals(self) -> None:
        holders: dict[str, str] = {}
        for name, principal in self.configuration.principals.items():
            path: Path = ("principals", name, "token_env")
            if principal.token_env in secret_names():
                self._error(
                    path, f"{principal.token_env} is a secret of the installation and cannot be a principal's token"
                )
            elif not principal.token_env.startswith(PREFIXES):
                self._error(path, f"expected a name that begins with LOOMLOG_ or LOOMCYCLE_, got {principal.token_env}")
            elif principal.token_env in holders:
                other = holders[principal.token_env]
                self._error(
                    path, f"{principal.token_env} is the token of {other} already; each principal needs its own"
                )
            holders.setdefault(principal.token_env, name)

    def interruption(self) -> None:
        block = self.configuration.interruption
        if block.default_timeout_ms > block.max_timeout_ms:
            message = f"is {block.default_timeout_ms}, which is longer than max_timeout_ms ({block.max_timeout_ms})"
            self._error(("interruption", "default_timeout_ms"), message)
        if block.backend.startswith("mcp_server:"):
            message = "questions are asked over MCP in a later version; here they wait in the inbox"
            self._warning(("interruption", "backend"), message)

    def agent(self, name: str, agent: Agent) -> None:
        path: Path = ("agents", name)
        if agent.tier and (agent.provider or agent.model):
            self._error((*path, "tier"), "comes with a pinned model; give either provider and model, or tier")
        else:
            self._model_of(path, agent)
        self._known_providers((*path, "providers"), agent.providers)
        self._candidates((*path, "models"), agent.models)
        for position, volume in enumerate(agent.volumes):
            if volume not in self.configuration.volumes:
                hint = did_you_mean(volume, self.configuration.volumes)
                self._error((*path, "volumes", position), f"there is no volume {volume}{hint}")
        for position, tool in enumerate(agent.tools):
            self._tool((*path, "tools", position), tool)
        if any(placeholder in agent.system_prompt for placeholder in PLACEHOLDERS):
            message = "has {{memory:...}} or {{tool:...}} placeholders, which this version does not fill in"
            self._warning((*path, "system_prompt"), message)

    def later_tools(self) -> None:
        if not self.later:
            return
        names = sorted(self.later)
        features = sorted({self._feature(name) for name in names})
        message = (
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} granted to agents but not in this version "
            f"({', '.join(features)}); agents run without"
        )
        mark = mark_of(self.root, min(self.later.values(), key=lambda path: mark_of(self.root, path).line))
        self.warnings.append(Finding(message=message, file=mark.file, line=mark.line))

    def _model_of(self, path: Path, agent: Agent) -> None:
        found = choices(self.configuration, agent)
        if isinstance(found, DeadEnd):
            key = "tier" if agent.tier else "model" if agent.model else "provider"
            self._error((*path, key) if agent.tier or agent.model or agent.provider else path, found.message)
        elif agent.provider:
            self._known_provider((*path, "provider"), agent.provider)

    def _tool(self, path: Path, tool: str) -> None:
        if tool in LATER_TOOLS or tool.startswith(tuple(FOREIGN_TOOL_PREFIXES)):
            self.later.setdefault(tool, path)
        elif is_client_grant(tool):
            if not CLIENT_GRANTED.fullmatch(visible_name(tool).removeprefix(CLIENT_PREFIX)):
                self._error(path, f"{tool} is no tool that a client can offer: expected {CLIENT_SAID}")
        elif tool in TOOLS_NOW or tool in self.configuration.remote_tools or self._is_generated(tool):
            return
        elif tool.endswith("*") and "*" not in tool[:-1]:
            known_names = (*ALL_TOOLS, *FOREIGN_TOOL_PREFIXES, CLIENT_PREFIX, *self.configuration.remote_tools)
            if not any(fnmatchcase(known, tool) for known in known_names):
                self._error(path, f"{tool} matches no tool")
        else:
            hint = did_you_mean(tool, ALL_TOOLS | set(self.configuration.remote_tools))
            self._error(path, f"{tool} is not a tool (a list of names, or of beginnings with * at the end){hint}")

    def _is_generated(self, tool: str) -> bool:
        """Whether the name may be one of the tools that a later version makes from an OpenAPI file."""
        block = self.root.entries.get("local_api")
        if block is None or not isinstance(block.node, Branch):
            return False
        prefix = block.node.entries.get("tool_name_prefix")
        text = prefix.node.value if prefix and isinstance(prefix.node, Leaf) else ""
        return tool.startswith(text) if isinstance(text, str) else True

    def _feature(self, tool: str) -> str:
        if tool in LATER_TOOLS:
            return LATER_TOOLS[tool]
        return next(feature for prefix, feature in FOREIGN_TOOL_PREFIXES.items() if tool.startswith(prefix))

    def _candidates(self, path: Path, tiers: Mapping[Tier, Iterable[Candidate]]) -> None:
        for place, candidate in _each(path, tiers):
            if candidate.provider and not self._known_provider((*place, "provider"), candidate.provider):
                continue
            if isinstance(found := choice_of(self.configuration, candidate), DeadEnd):
                self._error(place, found.message)

    def _known_providers(self, path: Path, names: Iterable[str]) -> None:
        if not self._is_written(path):
            return
        for position, name in enumerate(names):
            self._known_provider((*path, position), name)

    def _known_provider(self, path: Path, name: str) -> bool:
        if name in self.configuration.providers:
            self._has_driver(path, name)
            return True
        self._error(path, f"there is no provider {name}{did_you_mean(name, self.configuration.providers)}")
        return False

    def _is_written(self, path: Path) -> bool:
        node: object = self.root
        for step in path:
            if not isinstance(node, Branch) or step not in node.entries:
                return False
            node = node.entries[str(step)].node
        return True

    def _has_driver(self, path: Path, name: str) -> None:
        """One warning for each provider that is asked for and cannot be used in this version."""
        driver = self.configuration.providers[name].driver
        if driver in LATER_DRIVERS and name not in self.without_driver:
            self.without_driver.add(name)
            feature = LATER_DRIVERS[driver]
            self._warning(path, f"the driver {driver} of {name} ({feature}) is not in this version; it is passed over")

    def _error(self, path: Path, message: str, *, of_key: bool = False) -> None:
        self.errors.append(self._finding(path, message, of_key))

    def _warning(self, path: Path, message: str, *, of_key: bool = False) -> None:
        self.warnings.append(self._finding(path, message, of_key))

    def _finding(self, path: Path, message: str, of_key: bool) -> Finding:
        mark = mark_of(self.root, path, of_key=of_key)
        return Finding(message=f"{dotted(path)}: {message}", file=mark.file, line=mark.line)


def _each(path: Path, tiers: Mapping[Tier, Iterable[Candidate]]) -> Iterator[tuple[Path, Candidate]]:
    for tier, candidates in tiers.items():
        for position, candidate in enumerate(candidates):
            yield (*path, tier, position), candidate
