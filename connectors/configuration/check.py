"""Cross-checks of a configuration: names must exist, models must resolve.

The model (model.py) has validated each value by itself; here are the rules that compare two places. Every rule collects
findings instead of stopping, and each finding points to the line to change.

Before: model.py, routing.py. After: load.py.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from loomlog.connectors.configuration.agent_block import AgentBlock, Candidate
from loomlog.connectors.configuration.channel_block import iter_channel_errors
from loomlog.connectors.configuration.credential_block import iter_store_errors
from loomlog.connectors.configuration.environment import PREFIXES
from loomlog.connectors.configuration.field_types import Tier, check_url
from loomlog.connectors.configuration.findings import ConfigurationFinding, did_you_mean, join_words
from loomlog.connectors.configuration.issuer_check import iter_issuer_errors, iter_issuer_warnings
from loomlog.connectors.configuration.local_api_block import LocalApiBlock
from loomlog.connectors.configuration.mcp_block import TOOL_PREFIX, iter_server_problems
from loomlog.connectors.configuration.memory_block import PROMPT_PLACEHOLDERS, unknown_memory_placeholders
from loomlog.connectors.configuration.memory_check import iter_agent_errors, iter_agent_warnings, iter_memory_errors
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.providers import DIALECTS, DISABLED_URL, KNOWN_OPTIONS
from loomlog.connectors.configuration.routing import (
    DEFAULT_USER_TIER,
    RoutingFailure,
    resolve_candidate,
    resolve_choices,
)
from loomlog.connectors.configuration.shape import format_path
from loomlog.connectors.configuration.skill_files import describe_skill_problem
from loomlog.connectors.configuration.tree import KeyPath, MappingNode, find_mark
from loomlog.connectors.configuration.trigger_check import iter_schedule_errors, iter_webhook_errors
from loomlog.connectors.configuration.unsupported_keys import (
    EXTERNAL_TOOL_PREFIXES,
    SUPPORTED_TOOLS,
    UNSUPPORTED_AGENT_KEYS,
    UNSUPPORTED_DRIVERS,
    UNSUPPORTED_TOOLS,
)
from loomlog.connectors.openapi import ApiFileRefused
from loomlog.connectors.tools.skill_patterns import parse_patterns
from loomlog.connectors.tools.tool_guide import placeholder_names, unknown_placeholders
from loomlog.schemas.client_names import TOOL_NAME_PREFIX as CLIENT_PREFIX
from loomlog.schemas.client_names import is_client_grant, visible_name

CLIENT_TOOL_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,56}|[A-Za-z0-9_-]{0,56}\*", re.ASCII)
CLIENT_TOOL_EXPECTATION = "client: and 1 to 56 of A-Z, a-z, 0-9, _ and -, or the beginning of such a name and *"
ALL_TOOLS = SUPPORTED_TOOLS | frozenset(UNSUPPORTED_TOOLS)


def check_configuration(
    configuration: Configuration, root: MappingNode, *, family_tools: Collection[str] = ()
) -> tuple[list[ConfigurationFinding], list[ConfigurationFinding]]:
    """Return (errors, warnings). `root` is the merged tree, for the positions; `family_tools` are the names of tools
    that come with families of aggregates.
    """
    checking = _ConfigurationCheck(configuration=configuration, root=root, family_tools=frozenset(family_tools))
    checking.check_providers()
    checking.check_models()
    checking.check_user_tiers()
    checking.check_volumes()
    checking.check_skills()
    checking.check_remote_tools()
    checking.check_mcp_servers()
    checking.check_local_api()
    checking.check_pricing()
    checking.check_principals()
    checking.check_issuers()
    checking.check_credential_stores()
    checking.check_interruption()
    checking.check_memory()
    checking.check_channels()
    checking.check_schedules()
    checking.check_webhooks()
    checking.check_secrets()
    for name, agent in configuration.agents.items():
        checking.check_agent(name, agent)
    checking.warn_unsupported_tools()
    checking.warn_unsupported_keys()
    return checking.errors, checking.warnings


@dataclass(slots=True, kw_only=True)
class _ConfigurationCheck:
    configuration: Configuration
    root: MappingNode
    family_tools: frozenset[str] = frozenset()
    api_tools: frozenset[str] = frozenset()
    """Tools of the OpenAPI file."""
    errors: list[ConfigurationFinding] = field(default_factory=list)
    warnings: list[ConfigurationFinding] = field(default_factory=list)
    unsupported_tools: dict[str, KeyPath] = field(default_factory=dict)
    """Tools of later versions, each with the first place that grants it."""
    reported_providers: set[str] = field(default_factory=set)
    """Providers already reported as having no driver in this version."""

    def check_providers(self) -> None:
        for name, block in self.configuration.providers.items():
            path: KeyPath = ("providers", name)
            if (
                block.base_url
                and block.base_url != DISABLED_URL
                and not block.base_url.startswith(("http://", "https://"))
            ):
                self._add_error((*path, "base_url"), "expected a URL that begins with http:// or https://")
            if block.dialect and block.dialect != DIALECTS[block.driver]:
                expected = DIALECTS[block.driver]
                self._add_error((*path, "dialect"), f"the driver {block.driver} speaks {expected}, not {block.dialect}")
            known = KNOWN_OPTIONS.get(block.driver, frozenset(block.options))
            for option in block.options:
                if option not in known:
                    message = f"the driver {block.driver} does not read this option{did_you_mean(option, known)}"
                    self._add_warning((*path, "options", option), message)
        self._check_provider_names(("provider_priority",), self.configuration.provider_priority)

    def check_models(self) -> None:
        for name, alias in self.configuration.models.items():
            if bool(alias.model) == bool(alias.model_pattern):
                self._add_error(("models", name), "an alias has either model or model_pattern, and not both")
            self._check_provider_name(("models", name, "provider"), alias.provider)
        self._check_candidates(("tiers",), self.configuration.tiers)
        defaults = self.configuration.defaults
        if (defaults.provider or defaults.model) and isinstance(
            choices := resolve_choices(
                self.configuration, AgentBlock(provider=defaults.provider, model=defaults.model)
            ),
            RoutingFailure,
        ):
            self._add_error(("defaults",), choices.message)

    def check_user_tiers(self) -> None:
        plans = self.configuration.user_tiers
        if plans and DEFAULT_USER_TIER not in plans:
            self._add_error(("user_tiers",), f"needs a tier named {DEFAULT_USER_TIER}, for users of no other tier")
        for name, plan in plans.items():
            self._check_provider_names(("user_tiers", name, "provider_priority"), plan.provider_priority)
            self._check_candidates(("user_tiers", name, "tiers"), plan.tiers)

    def check_volumes(self) -> None:
        marked = [name for name, volume in self.configuration.volumes.items() if volume.default]
        if len(marked) > 1:
            self._add_error(
                ("volumes", marked[1], "default"), f"only one volume may be the default; {marked[0]} is one already"
            )
        roots = [name for name, volume in self.configuration.volumes.items() if volume.dynamic_root]
        if len(roots) > 1:
            message = f"volumes made at run time lie in one folder; {roots[0]} is it already"
            self._add_error(("volumes", roots[1], "dynamic_root"), message)

    def check_skills(self) -> None:
        for name, skill in self.configuration.skills.items():
            if problem := describe_skill_problem(skill):
                key, message = problem
                self._add_error(("skills", name, key), message)

    def check_remote_tools(self) -> None:
        for name, tool in self.configuration.remote_tools.items():
            path: KeyPath = ("remote_tools", name)
            if self._is_taken(name):
                self._add_error(
                    path, f"{name} is the name of another tool, or begins like those of another kind", of_key=True
                )
            if not tool.description.strip():
                self._add_error((*path, "description"), "a model needs a description of what the tool does")
            if tool.input_schema.get("type") != "object":
                self._add_error((*path, "input_schema"), "expected a JSON schema with type: object")

    def check_mcp_servers(self) -> None:
        for name, server in self.configuration.mcp_servers.items():
            path: KeyPath = ("mcp_servers", name)
            for key, problem in iter_server_problems(server):
                self._add_error((*path, key), problem or f"{key} is missing (for transport: {server.transport})")
            if server.discovered_tools:
                self._add_error((*path, "discovered_tools"), "is set by the server; leave it out")

    def check_local_api(self) -> None:
        """Read the OpenAPI file: its operations are names of tools."""
        block = self.configuration.local_api
        if not block.spec:
            if block != LocalApiBlock():
                self._add_error(("local_api",), "spec is missing: the OpenAPI file", of_key=True)
            return
        try:
            api = block.load()
            assert api is not None
            check_url(api.base_url)
        except (ApiFileRefused, ValueError) as error:
            self._add_error(("local_api", "spec"), str(error))
            return
        if "?" in api.base_url or "#" in api.base_url:
            self._add_error(("local_api", "base_url"), "expected an address without a query")
        self.api_tools = frozenset(one.name for one in api.operations)
        for name in sorted(self.api_tools):
            if self._is_taken(name) or name in self.configuration.remote_tools:
                self._add_error(
                    ("local_api", "spec"), f"{name} is the name of another tool; set or change tool_name_prefix"
                )
        for problem in api.problems:
            self._add_warning(("local_api", "spec"), f"left out: {problem}")

    def _is_taken(self, name: str) -> bool:
        """Return whether a tool of another kind has the name, or names that begin like it."""
        return (
            name in ALL_TOOLS
            or name in self.family_tools
            or is_client_grant(name)
            or name.startswith((TOOL_PREFIX, *EXTERNAL_TOOL_PREFIXES))
        )

    def check_pricing(self) -> None:
        for name in self.configuration.pricing.models:
            provider, slash, model = name.partition("/")
            path: KeyPath = ("pricing", "models", name)
            if not (provider and slash and model):
                self._add_error(path, 'expected "provider/model" as the key, like openai/gpt-5-mini', of_key=True)
            elif provider not in self.configuration.providers:
                hint = did_you_mean(provider, self.configuration.providers)
                self._add_warning(
                    path, f"there is no provider {provider}, so this price is never used{hint}", of_key=True
                )

    def check_principals(self) -> None:
        holders: dict[str, str] = {}
        for name, principal in self.configuration.principals.items():
            path: KeyPath = ("principals", name, "token_env")
            if not principal.token_env.startswith(PREFIXES):
                self._add_error(
                    path, f"expected a name that begins with LOOMLOG_ or LOOMCYCLE_, got {principal.token_env}"
                )
            elif principal.token_env in holders:
                other = holders[principal.token_env]
                self._add_error(
                    path, f"{principal.token_env} is the token of {other} already; each principal needs its own"
                )
            holders.setdefault(principal.token_env, name)

    def check_issuers(self) -> None:
        for path, message in iter_issuer_errors(self.configuration.issuers):
            self._add_error(path, message)
        for path, message in iter_issuer_warnings(self.configuration.issuers):
            self._add_warning(path, message)

    def check_credential_stores(self) -> None:
        for path, message in iter_store_errors(self.configuration.credential_stores):
            self._add_error(path, message)

    def check_interruption(self) -> None:
        block = self.configuration.interruption
        if block.default_timeout_ms > block.max_timeout_ms:
            message = f"is {block.default_timeout_ms}, which is longer than max_timeout_ms ({block.max_timeout_ms})"
            self._add_error(("interruption", "default_timeout_ms"), message)
        if block.backend.startswith("mcp_server:"):
            message = "questions are asked over MCP in a later version; here they wait in the inbox"
            self._add_warning(("interruption", "backend"), message)

    def check_memory(self) -> None:
        for path, message in iter_memory_errors(self.configuration):
            self._add_error(path, message)

    def check_channels(self) -> None:
        for path, message in iter_channel_errors(self.configuration.channels):
            self._add_error(path, message)

    def check_schedules(self) -> None:
        for path, message in iter_schedule_errors(self.configuration.scheduled_runs, self.configuration.agents):
            self._add_error(path, message)

    def check_webhooks(self) -> None:
        webhooks, agents = self.configuration.webhooks, self.configuration.agents
        for path, message in iter_webhook_errors(webhooks, agents):
            self._add_error(path, message)

    def check_secrets(self) -> None:
        for variable, block in self.configuration.secrets.items():
            if block.lacks_hosts:
                message = "is missing: callbacks are signed, and keys of backends sent, for hosts that are named"
                self._add_error(("secrets", variable, "hosts"), message)

    def check_agent(self, name: str, agent: AgentBlock) -> None:
        path: KeyPath = ("agents", name)
        if agent.tier and (agent.provider or agent.model):
            self._add_error((*path, "tier"), "comes with a pinned model; give either provider and model, or tier")
        else:
            self._check_model(path, agent)
        self._check_provider_names((*path, "providers"), agent.providers)
        self._check_candidates((*path, "models"), agent.models)
        makes_volumes = any(volume.dynamic_root for volume in self.configuration.volumes.values())
        for position, volume in enumerate(agent.volumes):
            if volume not in self.configuration.volumes:
                hint = did_you_mean(volume, self.configuration.volumes)
                if makes_volumes:
                    message = f"there is no volume {volume} here; it has to be made at run time{hint}"
                    self._add_warning((*path, "volumes", position), message)
                else:
                    self._add_error((*path, "volumes", position), f"there is no volume {volume}{hint}")
        for position, tool in enumerate(agent.tools):
            self._check_tool((*path, "tools", position), tool)
        self._check_placeholders((*path, "system_prompt"), agent.system_prompt)
        try:
            parse_patterns(agent.skills)
        except ValueError as error:
            self._add_error((*path, "skills"), str(error))
        for place, message in iter_agent_errors(self.configuration, name, agent):
            self._add_error(place, message)
        for place, message in iter_agent_warnings(name, agent):
            self._add_warning(place, message)

    def warn_unsupported_tools(self) -> None:
        if not self.unsupported_tools:
            return
        names = sorted(self.unsupported_tools)
        features = sorted({self._feature_of_tool(name) for name in names})
        message = (
            f"{join_words(names)} {'is' if len(names) == 1 else 'are'} granted to agents but not in this version "
            f"({', '.join(features)}); agents run without"
        )
        mark = find_mark(
            self.root, min(self.unsupported_tools.values(), key=lambda path: find_mark(self.root, path).line)
        )
        self.warnings.append(ConfigurationFinding(message=message, file=mark.file, line=mark.line))

    def warn_unsupported_keys(self) -> None:
        """Add one warning for each key that is set and has no effect in this version."""
        unset = AgentBlock()
        for key, feature in UNSUPPORTED_AGENT_KEYS.items():
            names = [
                name for name, agent in self.configuration.agents.items() if getattr(agent, key) != getattr(unset, key)
            ]
            if names:
                also = f"; the same for {join_words(names[1:])}" if names[1:] else ""
                self._add_warning(
                    ("agents", names[0], key), f"has no effect in this version ({feature}){also}", of_key=True
                )

    def _check_model(self, path: KeyPath, agent: AgentBlock) -> None:
        choices = resolve_choices(self.configuration, agent)
        if isinstance(choices, RoutingFailure):
            key = "tier" if agent.tier else "model" if agent.model else "provider"
            self._add_error((*path, key) if agent.tier or agent.model or agent.provider else path, choices.message)
        elif agent.provider:
            self._check_provider_name((*path, "provider"), agent.provider)

    def _check_placeholders(self, path: KeyPath, prompt: str) -> None:
        for name in unknown_memory_placeholders(prompt):
            names = ", ".join(f"{{{{memory:{one}}}}}" for one in PROMPT_PLACEHOLDERS)
            message = f"{{{{memory:{name[:60]}}}}} is no placeholder; there are {names}"
            self._add_error(path, f"{message}, and a backslash before one keeps it as text")
        for name in unknown_placeholders(prompt):
            message = f"{{{{tool:{name[:60]}}}}} is no placeholder; there are {placeholder_names()}"
            self._add_error(path, f"{message}, and a backslash before one keeps it as text")

    def _check_tool(self, path: KeyPath, tool: str) -> None:
        if tool in self.family_tools or tool.startswith(TOOL_PREFIX):
            return  # tools of MCP servers are known once their servers have listed them
        if tool in UNSUPPORTED_TOOLS or tool.startswith(tuple(EXTERNAL_TOOL_PREFIXES)):
            self.unsupported_tools.setdefault(tool, path)
        elif is_client_grant(tool):
            if not CLIENT_TOOL_PATTERN.fullmatch(visible_name(tool).removeprefix(CLIENT_PREFIX)):
                self._add_error(path, f"{tool} is no tool that a client can offer: expected {CLIENT_TOOL_EXPECTATION}")
        elif visible_name(tool) in SUPPORTED_TOOLS or tool in self.configuration.remote_tools or tool in self.api_tools:
            return
        elif tool.endswith("*") and "*" not in tool[:-1]:
            remote = self.configuration.remote_tools
            known_names = (
                *ALL_TOOLS,
                *self.family_tools,
                TOOL_PREFIX,
                *EXTERNAL_TOOL_PREFIXES,
                CLIENT_PREFIX,
                *remote,
                *self.api_tools,
            )
            if not any(fnmatchcase(known, tool) for known in known_names):
                self._add_error(path, f"{tool} matches no tool")
        else:
            hint = did_you_mean(
                tool, ALL_TOOLS | self.family_tools | self.api_tools | set(self.configuration.remote_tools)
            )
            self._add_error(path, f"{tool} is not a tool (a list of names, or of beginnings with * at the end){hint}")

    def _feature_of_tool(self, tool: str) -> str:
        if tool in UNSUPPORTED_TOOLS:
            return UNSUPPORTED_TOOLS[tool]
        return next(feature for prefix, feature in EXTERNAL_TOOL_PREFIXES.items() if tool.startswith(prefix))

    def _check_candidates(self, path: KeyPath, tiers: Mapping[Tier, Iterable[Candidate]]) -> None:
        for place, candidate in _iter_candidates(path, tiers):
            if candidate.provider and not self._check_provider_name((*place, "provider"), candidate.provider):
                continue
            if isinstance(choice := resolve_candidate(self.configuration, candidate), RoutingFailure):
                self._add_error(place, choice.message)

    def _check_provider_names(self, path: KeyPath, names: Iterable[str]) -> None:
        if not self._is_specified(path):
            return
        for position, name in enumerate(names):
            self._check_provider_name((*path, position), name)

    def _check_provider_name(self, path: KeyPath, name: str) -> bool:
        if name in self.configuration.providers:
            self._warn_unsupported_driver(path, name)
            return True
        self._add_error(path, f"there is no provider {name}{did_you_mean(name, self.configuration.providers)}")
        return False

    def _is_specified(self, path: KeyPath) -> bool:
        node: object = self.root
        for step in path:
            if not isinstance(node, MappingNode) or step not in node.entries:
                return False
            node = node.entries[str(step)].node
        return True

    def _warn_unsupported_driver(self, path: KeyPath, name: str) -> None:
        """Add one warning for each provider that is referenced and not supported in this version."""
        driver = self.configuration.providers[name].driver
        if driver in UNSUPPORTED_DRIVERS and name not in self.reported_providers:
            self.reported_providers.add(name)
            feature = UNSUPPORTED_DRIVERS[driver]
            self._add_warning(
                path, f"the driver {driver} of {name} ({feature}) is not in this version; it is passed over"
            )

    def _add_error(self, path: KeyPath, message: str, *, of_key: bool = False) -> None:
        self.errors.append(self._build_finding(path, message, of_key))

    def _add_warning(self, path: KeyPath, message: str, *, of_key: bool = False) -> None:
        self.warnings.append(self._build_finding(path, message, of_key))

    def _build_finding(self, path: KeyPath, message: str, of_key: bool) -> ConfigurationFinding:
        mark = find_mark(self.root, path, of_key=of_key)
        return ConfigurationFinding(message=f"{format_path(path)}: {message}", file=mark.file, line=mark.line)


def _iter_candidates(path: KeyPath, tiers: Mapping[Tier, Iterable[Candidate]]) -> Iterator[tuple[KeyPath, Candidate]]:
    for tier, candidates in tiers.items():
        for position, candidate in enumerate(candidates):
            yield (*path, tier, position), candidate
