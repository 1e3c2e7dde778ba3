"""Generator of docs/SETTINGS.md from the tables of settings: `python -m loomlog.connectors.configuration.document`.

A test fails when the file and this module disagree, so the document cannot describe a setting that does not exist, or
miss one that does. Pure except for `main`, which writes the file.

Before: settings.py, unsupported_keys.py, key_descriptions.py. After: docs/SETTINGS.md.
"""

import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from loomlog.connectors.configuration import (
    agent_block,
    approvals_block,
    channel_block,
    credential_block,
    issuer_block,
    local_api_block,
    mcp_block,
    memory_block,
    model,
    schedule_block,
    secret_block,
    trigger_block,
    webhook_block,
)
from loomlog.connectors.configuration.key_descriptions import KEY_DESCRIPTIONS
from loomlog.connectors.configuration.settings import OLD_PREFIX, PREFIX, setting_rows
from loomlog.connectors.configuration.unsupported_keys import (
    RETIRED_SETTINGS,
    UNSUPPORTED_AGENT_KEYS,
    UNSUPPORTED_BLOCKS,
    UNSUPPORTED_SETTINGS,
)

TARGET = Path("docs") / "SETTINGS.md"

INTRODUCTION = f"""# Settings

Made by `python -m loomlog.connectors.configuration.document` from the tables the program reads; do not edit by hand.

A process takes its settings from the environment (`{PREFIX}*`) and its agents, models and principals from YAML files.
Nothing else is read, except by OpenTelemetry's SDK where traces are sent: it knows `OTEL_*` variables of its own
(`OTEL_RESOURCE_ATTRIBUTES` adds to every span, `OTEL_SDK_DISABLED=true` ends them) and those that name proxies.

Names of existing deployments with the prefix `{OLD_PREFIX}` are accepted as aliases; when both are set and differ,
`{PREFIX}*` wins and a warning says so. An empty variable counts as not set. An unknown `{PREFIX}*` name is an error
that names the nearest valid one; an unknown `{OLD_PREFIX}*` name is a warning. Names that a file itself refers to
(`token_env: {PREFIX}TEAM_TOKEN`) are free. Relative paths are taken from the working directory. Values of settings
marked *secret* are never shown, logged or expanded in a file.

Keys of model providers are read from the variable that `providers.<id>.api_key_env` names: `ANTHROPIC_API_KEY`,
`OPENAI_API_KEY`, `DEEPSEEK_API_KEY`, `GEMINI_API_KEY`, `OLLAMA_API_KEY` for the built-in ones. `OLLAMA_BASE_URL` is the
address of `ollama-local`; `disabled` switches it off. A provider whose variable is not set is there only for runs that
bring its key, as a credential of that name (OPERATING.md), and for no run without LOOMLOG_SECRET_KEY.
"""

FILES = """## Configuration files

Layers, bottom first: the built-in providers, the presets of `LOOMLOG_PRESETS` (`loomlog presets` lists them), the
`*.yaml` files of `LOOMLOG_CONFIG_DIR` in name order, `LOOMLOG_CONFIG_FILES`, the files of the command line. When none
is named, the first of these that exists: `./loomlog.yaml`, `./loomcycle.yaml`,
`$XDG_CONFIG_HOME/loomlog/loomlog.yaml`, `$XDG_CONFIG_HOME/loomcycle/loomcycle.yaml`, and the same two under
`~/.config`.

Mappings merge key by key; scalars and lists replace; `!prepend [...]` and `!append [...]` put items before or after the
list below, and an item named again moves to its new place; a key without a value changes nothing. A value that a later
file changes is a warning, or an error with `LOOMLOG_CONFIG_STRICT=1`. YAML anchors and `<<` work; `on`, `no` and
`12:30` are text.

`${NAME}` in a value is replaced for `LOOMLOG_*` and `LOOMCYCLE_*` names (secrets refused) and for BRAVE_API_KEY,
EXA_API_KEY, GITHUB_TOKEN, REDIS_URL, SANDBOX_AUTH_TOKEN, SEARXNG_BASE_URL, SERPER_API_KEY, SLACK_BOT_TOKEN,
TAVILY_API_KEY. Everything else stays as it is written.

Relative `volumes.<name>.path` and `system_prompt_file` are resolved against the folder of the file that has them.
Folders of writable volumes are created at start.

Agents and skills may be Markdown files too. `LOOMLOG_AGENTS_ROOT` has `<name>.md` and `<group>/<name>.md`: a YAML
frontmatter with the keys of `agents.<name>`, and the system prompt below it. `LOOMLOG_SKILLS_ROOT` has
`<name>/SKILL.md`: `description` and `tools` (or `allowed-tools`) in the frontmatter, the instructions below it; up to
64 further texts of the folder, 1 MiB together, are the skill's files. Lists of tools may be text with commas. Where a
configuration file has the same name, its keys win over those of the Markdown file, one by one, with a warning (with
`LOOMLOG_CONFIG_STRICT=1` an error). Links that lead out of the folder are left out with a warning.

An agent that may use a skill has the tool `Skill`: `skills` of the agent are patterns, `*` and `?` stay between two /,
`**` spans any parts, `-` before a pattern takes away and always wins, `-*` takes all. A skill that needs a tool which
the agent does not have is refused. A run keeps to the version of a skill that it used first.

Files of the reference are taken as they are: `allowed_tools` is `tools`, the tool `WebFetchTool` is `WebFetch`, a text
in a list of candidates is the alias of a model, an empty text clears a key that a lower layer has set, `code` may be
the script itself, the scope `global` of memory entries is `tenant`. A volume without `mode` is read-only here.

Synthetic providers (`mock`, `mock-stable`) need `LOOMLOG_MOCK_ENABLED=1` or `options: {enabled: true}`.

Prices are money per million tokens, exact to six digits after the point, and are kept as whole micro-units.
"""

PROVIDERS = """## Providers

| driver | built-in ids | window | images | effort |
|---|---|---|---|---|
| `anthropic` | `anthropic` | 200,000 | all but claude-2 and claude-instant | budgets 0, 2048, 8192; never for haiku |
| `openai` | `openai` | 128,000 | all but gpt-3.5 and the first gpt-4 | `reasoning_effort` of gpt-5, o1, o3, o4, o5 |
| `deepseek` | `deepseek` | 128,000 | none | `reasoning_effort` of models that think |
| `gemini` | `gemini` | 2,000,000 | all but the first | thinking budgets 0, 2048, 8192 from 2.5 on |
| `ollama` | `ollama`, `ollama-local` | see below | by name | `think`: no, yes, yes; levels for gpt-oss |
| `mock` | `mock`, `mock-stable` | 200,000 | all | none |

An image in the conversation and a model that cannot see: the call fails before anything is sent. `capabilities` of a
provider change what the driver says of it, one by one, and the driver keeps to them: `max_context_tokens` is a
gateway's window, without `supports_vision` no image is sent, without `supports_effort` or (where it means thinking)
`supports_thinking` no effort, without `native_prompt_cache` no cache marks, without `parallel_tool_calls` openai and
anthropic ask for one call at a time, and without `streaming` openai asks for the whole answer, which then has to come
within the header timeout.

A gateway or server that speaks the OpenAI wire is a provider by configuration alone; without `api_key_env` it gets no
key:

```yaml
providers:
  gateway:
    driver: openai
    base_url: https://llm.example.com/v1
    api_key_env: GATEWAY_API_KEY
    max_concurrent: 16
    options: { echo_reasoning: true, reasoning_models: [grok-4], idle_timeout_ms: 120000 }
    capabilities: { supports_vision: false, max_context_tokens: 32768 }
```

Options, by driver; others are warned about and ignored:

| option | driver | what |
|---|---|---|
| `header_timeout_ms`, `idle_timeout_ms` | all but mock | longest wait for the headers, longest silence in an answer |
| `echo_reasoning` | openai | reasoning of earlier turns is sent back, for servers that want it |
| `reasoning_models` | openai | beginnings of further names that take an effort and `max_completion_tokens` |
| `num_ctx` | ollama | the window to load models with, tokens; wins over the setting |
| `num_gpu` | ollama | layers on the GPU |
| `vision_models` | ollama | beginnings of further names of models that see |
| `enabled` | mock | allows the provider, as `LOOMLOG_MOCK_ENABLED=1` does for all |
| `stable` | mock | it never fails |
| `latency_ms`, `latency_jitter_ms`, `rate_429`, `rate_500` | mock | win over the settings of the same name |

The window of a model at Ollama is `num_ctx` where it is pinned; otherwise the one it is loaded with (`/api/ps`), at the
vendor's host the one it reports (`/api/show`), and 4,096 while it is unknown. A prompt that is probably longer is
reported in the log, because the server cuts it silently. A tool call that a model wrote into its text is recovered.
"""

BLOCKS: tuple[tuple[str, type], ...] = (
    ("loomlog.yaml", model.Configuration),
    ("defaults", model.Defaults),
    ("models.<alias>", model.ModelAlias),
    ("agents.<name>", agent_block.AgentBlock),
    ("agents.<name>.sampling", agent_block.SamplingBlock),
    ("agents.<name>.compaction", agent_block.CompactionBlock),
    ("agents.<name>.core_blocks[]", agent_block.CoreBlockDeclaration),
    ("agents.<name>.channels", agent_block.ChannelAccess),
    ("agents.<name>.interruption", agent_block.InterruptionOverrides),
    ("providers.<id>", model.ProviderBlock),
    ("providers.<id>.capabilities", model.CapabilityOverrides),
    ("tiers.<low, middle, high>[] (also agents.<name>.models, user_tiers.<name>.tiers)", agent_block.Candidate),
    ("user_tiers.<name>", model.UserTier),
    ("concurrency", model.Concurrency),
    ("pricing", model.Pricing),
    ('pricing.models."<provider>/<model>"', model.ModelRates),
    ("volumes.<name>", model.VolumeBlock),
    ("remote_tools.<name>", model.RemoteToolBlock),
    ("mcp_servers.<name>", mcp_block.McpServerBlock),
    ("mcp_servers.<name>.oauth", mcp_block.McpOAuthBlock),
    ("local_api", local_api_block.LocalApiBlock),
    ("skills.<name>", model.SkillBlock),
    ("interruption", model.InterruptionBlock),
    ("approvals (also agents.<name>.approvals)", approvals_block.ApprovalsBlock),
    ("principals.<name>", model.PrincipalBlock),
    ("issuers.<name>", issuer_block.IssuerBlock),
    ("credential_stores.<name>", credential_block.CredentialStoreBlock),
    ("hooks", model.HooksBlock),
    ("hooks.permit_host_widen", model.PermitHostWiden),
    ("context_plugins[]", model.ContextPluginBlock),
    ("memory", memory_block.MemoryBlock),
    ("memory.embedder", memory_block.EmbedderBlock),
    ("memory.entries[]", memory_block.MemoryEntryBlock),
    ("memory.consolidation", memory_block.ConsolidationBlock),
    ("memory_backends.<name>", memory_block.MemoryBackendBlock),
    ("memory_backends.<name>.config", memory_block.MemoryBackendConfig),
    ("memory_backends.<name>.tenancy_strategy", memory_block.MemoryTenancy),
    ("change_subscriptions.<name>", memory_block.ChangeSubscriptionBlock),
    ("channels.<name>", channel_block.ChannelBlock),
    ("scheduled_runs.<name>", schedule_block.ScheduleBlock),
    ("scheduled_runs.<name>.prompt[]", schedule_block.PromptSegment),
    ("scheduled_runs.<name>.prompt[].content[]", schedule_block.PromptBlock),
    ("webhooks.<name>", webhook_block.WebhookBlock),
    ("webhooks.<name>.auth", webhook_block.WebhookAuth),
    ("webhooks.<name>.rate_limit", webhook_block.WebhookRateLimit),
    ("webhooks.<name>.sync_response", webhook_block.WebhookSyncResponse),
    ("on_complete[] (of scheduled_runs.<name> and webhooks.<name>)", trigger_block.CompletionHook),
    ("secrets.<variable>", secret_block.SecretBlock),
)
"""Sections of the document; blocks_without_section() must be empty."""


def render_document() -> str:
    """Return the whole text of docs/SETTINGS.md."""
    parts = [
        INTRODUCTION,
        "## Environment\n",
        *_render_environment(),
        FILES,
        PROVIDERS,
        *_render_blocks(),
        *_render_unsupported(),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def main(arguments: Sequence[str]) -> int:
    """Write the file below the working directory; with --check only report whether it is stale, exit code 1 if so."""
    if "--check" in arguments:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == render_document():
            return 0
        sys.stderr.write(f"stale: {TARGET}; run python -m loomlog.connectors.configuration.document\n")
        return 1
    TARGET.write_text(render_document(), encoding="utf-8")
    sys.stdout.write(f"wrote {TARGET}\n")
    return 0


def _render_environment() -> Iterator[str]:
    rows = setting_rows()
    for group in dict.fromkeys(row.group for row in rows):
        lines = [f"### {group}", "", "| name | value | default | meaning |", "|---|---|---|---|"]
        for row in rows:
            if row.group == group:
                meaning = row.meaning + (" *Secret.*" if row.is_secret else "")
                if row.old_name:
                    meaning += f" Alias: `{row.old_name}`."
                lines.append(f"| `{row.name}` | {row.value_type.label} | {_format_default(row.default)} | {meaning} |")
        yield "\n".join(lines)


def blocks_without_section() -> list[str]:
    """Return the blocks that a file may have and the document leaves out: `<path>: <class>`."""
    sections = {block for _, block in BLOCKS}
    return [f"{path}: {block.__name__}" for block, path in _find_blocks(model.Configuration) if block not in sections]


def _find_blocks(root: type) -> Iterator[tuple[type, str]]:
    """Yield the classes of all blocks, each once, with the keys that lead to it."""
    seen: set[type] = set()
    pending: list[tuple[Any, str]] = [(root, "loomlog.yaml")]
    while pending:
        hint, path = pending.pop()
        if not is_dataclass(hint):
            pending.extend((part, path) for part in get_args(hint))
        elif isinstance(hint, type) and hint not in seen:
            seen.add(hint)
            yield hint, path
            hints = get_type_hints(hint, include_extras=True)
            pending.extend((hints[entry.name], f"{path} > {entry.name}") for entry in fields(hint))


def _render_blocks() -> Iterator[str]:
    if missing := blocks_without_section():
        raise LookupError(f"no section in BLOCKS for {', '.join(missing)}")
    yield "## Blocks\n"
    for name, block in BLOCKS:
        hints = get_type_hints(block, include_extras=True)
        lines = [f"### {name}", "", "| key | value | default | meaning | example |", "|---|---|---|---|---|"]
        for entry in fields(block):
            kind, default = _describe_type(hints[entry.name]), _format_field_default(entry)
            if entry.name not in KEY_DESCRIPTIONS.get(block, {}):
                raise LookupError(f"{name}: the key {entry.name} has no sentence in key_descriptions.py")
            meaning, example = KEY_DESCRIPTIONS[block][entry.name]
            if block is agent_block.AgentBlock and entry.name in UNSUPPORTED_AGENT_KEYS:
                meaning += f" *Not in this version ({UNSUPPORTED_AGENT_KEYS[entry.name]}).*"
            lines.append(f"| `{entry.name}` | {kind} | {default} | {meaning} | `{example}` |")
        yield "\n".join(lines)


def _render_unsupported() -> Iterator[str]:
    yield "## Accepted and not in this version\n\nBlocks of a file are ignored with one warning each:"
    yield "\n".join(
        ["| block | feature |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in sorted(UNSUPPORTED_BLOCKS.items()))]
    )
    yield f"Names with the prefix `{OLD_PREFIX}` are accepted in silence, with `{PREFIX}` with a warning:"
    features: dict[str, list[str]] = {}
    for suffix, feature in UNSUPPORTED_SETTINGS.items():
        features.setdefault(feature, []).append(suffix)
    rows = [f"| {feature} | {', '.join(f'`{name}`' for name in names)} |" for feature, names in features.items()]
    yield "\n".join(["| feature | names after the prefix |", "|---|---|", *rows])
    yield (
        "## Retired names\n\n"
        "These stop the start, with either prefix, because ignoring them would loosen what they confined:"
    )
    yield "\n".join(f"- `{name}`: {hint}" for name, hint in RETIRED_SETTINGS.items())


def _describe_type(hint: Any) -> str:
    """Return the type in the words of people who write YAML."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _describe_type(get_args(hint)[0])
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in get_args(hint))
    if origin in (Union, types.UnionType):
        return " or ".join(_describe_type(part) for part in get_args(hint) if part is not type(None))
    if origin is tuple:
        return f"list of {_describe_type(get_args(hint)[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping of {_describe_type(get_args(hint)[1])}"
    simple = {
        str: "text",
        int: "whole number",
        bool: "true or false",
        float: "number",
        Any: "anything",
        object: "anything",
    }
    return simple.get(hint) or {"Decimal": "number"}.get(hint.__name__, f"block `{hint.__name__}`")


def _format_field_default(entry: Field[Any]) -> str:
    if entry.default is MISSING:
        return "" if entry.default_factory is not MISSING else "*required*"
    return _format_default(entry.default)


def _format_default(value: object) -> str:
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return ", ".join(f"`{part}`" for part in value)
    return f"`{value}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
