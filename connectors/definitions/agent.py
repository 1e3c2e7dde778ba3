"""The kind agent: its fields are those of agents.<name> in the files.

As in the reference the hash covers what an agent says and does, and not its rights and limits of operation (skills,
volumes, most scopes, retries): two agents with different volumes may have one hash, and only `same` tells them apart.

Before: kind.py, connectors/configuration/agent_block.py. After: kinds.py.
"""

from typing import Any

from loomlog.connectors.configuration.agent_block import AgentBlock, find_duplicate_label
from loomlog.connectors.configuration.resolve import CONTEXT_TOOL
from loomlog.connectors.definitions.go_json import select_given, select_set, sort_keys
from loomlog.connectors.definitions.kind import MAX_DEFINITION_BYTES, Content, Kind
from loomlog.connectors.definitions.problems import DefinitionProblem

MAX_CODE_BYTES = 262_144
"""Bytes of the script of a code agent, the limit of the reference."""
_HASHED = (
    "approvals",
    "channels",
    "code_body",
    "compaction",
    "core_blocks",
    "description",
    "effort",
    "evaluation_scopes",
    "history_scope",
    "inherit_core_blocks",
    "inject_tool_guide",
    "internal",
    "interruption",
    "max_concurrent_children",
    "max_iterations",
    "max_tokens",
    "memory_backend",
    "memory_consolidation",
    "memory_index_max_bytes",
    "memory_inject_max_tokens",
    "memory_protocol",
    "memory_quota_bytes",
    "memory_roots",
    "memory_scopes",
    "model",
    "models",
    "name",
    "output_retries",
    "output_schema",
    "provider",
    "providers",
    "search_providers",
    "sampling",
    "sql_quota_bytes",
    "sql_scopes",
    "system_prompt",
    "tier",
    "tools",
    "unbounded_iterations",
)
"""Hashed fields in the order of the reference, with our own (approvals, output_schema); search_providers comes before
sampling there."""
_SAMPLING = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed", "stop")
_COMPACTION = (
    "enabled",
    "target_percentage",
    "keep_last_n",
    "keep_first",
    "autocompact_at_pct",
    "model",
    "memory_flush",
)


def _hashed(name: str, content: Content) -> dict[str, Any]:
    parts = {
        **content,
        "name": name,
        "channels": select_set(content.get("channels", {}), ("publish", "subscribe")),
        "compaction": select_given(content.get("compaction", {}), _COMPACTION),
        "core_blocks": [
            {"label": block["label"], **select_set(block, ("scope", "limit_bytes", "read_only"))}
            for block in content.get("core_blocks", ())
        ],
        "interruption": select_set(content.get("interruption", {}), ("enabled", "kinds", "max_pending")),
        "memory_consolidation": sort_keys(content.get("memory_consolidation")),
        "models": {
            tier: [{key: candidate.get(key, "") for key in ("provider", "model")} for candidate in candidates]
            for tier, candidates in sorted(content.get("models", {}).items())
        },
        "sampling": select_given(content.get("sampling", {}), _SAMPLING),
        "output_schema": sort_keys(content.get("output_schema")),
        "approvals": sort_keys(content.get("approvals")),
    }
    return select_set(parts, _HASHED)


def _complete(merged: dict[str, Any], overlay: Content) -> None:
    """Set the prompt without the bodies of skills, unless the author gives one."""
    if "system_prompt" in overlay and "system_prompt_base" not in overlay:
        merged["system_prompt_base"] = merged["system_prompt"]


def _check(agent: AgentBlock) -> None:
    if agent.tier and (agent.provider or agent.model):
        message = "tier comes with a pinned model; give either provider and model, or tier"
        raise DefinitionProblem("invalid_definition", message)
    check_tools(agent.tools)
    position = find_duplicate_label(agent.core_blocks)
    if position is not None:
        message = f"core_blocks[{position}].label: an earlier block has this label already"
        raise DefinitionProblem("invalid_definition", message)


def check_tools(tools: tuple[str, ...]) -> None:
    """Raise DefinitionProblem for a grant that is empty or has a star before its end."""
    for position, tool in enumerate(tools):
        if not tool.strip() or "*" in tool[:-1]:
            message = f"tools[{position}]: expected the name of a tool, or the beginning of names with * at the end"
            raise DefinitionProblem("invalid_definition", message)


def _granted(content: Content) -> tuple[str, ...]:
    extra = () if content.get("disable_context") else (CONTEXT_TOOL,)
    return tuple(dict.fromkeys((*content.get("tools", ()), *extra)))


AGENT = Kind(
    name="agent",
    tool="AgentDef",
    forks_promote=False,
    has_verify=True,
    block=AgentBlock,
    file_only={
        "system_prompt_file": "give the text as system_prompt",
        "code": "give the script as code_body",
        "skill_def_scopes": "the patterns in skills decide which skills an agent may define",
    },
    merged=frozenset({"sampling", "compaction"}),
    kept_when_empty=frozenset({"channels"}),
    alternatives=(frozenset({"provider", "model"}), frozenset({"tier"})),
    byte_limits={"code_body": MAX_CODE_BYTES, "system_prompt_base": MAX_DEFINITION_BYTES},
    complete=_complete,
    check=_check,
    hashed=_hashed,
    normalised="system_prompt",
    granted=_granted,
)
