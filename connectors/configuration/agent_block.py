"""Typed definition of one agent in a configuration file, with every key of the reference.

Keys of features of later versions are typed and kept, so that the whole file is checked and needs no edit when the
feature comes; nothing reads them yet. The classes are plain frozen dataclasses that pydantic fills: it validates at the
boundary only.

Before: field_types.py. After: model.py (agents.<name>), resolve.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from loomlog.connectors.configuration.field_types import (
    FORBID_EXTRA,
    BlockLabel,
    Effort,
    FiniteFloat,
    MemoryScope,
    NonNegativeInt,
    PositiveInt,
    ProviderId,
    SqlScope,
    StrictInt,
    StringList,
    Switch,
    Tier,
    VolumeName,
    WordList,
)

MAX_STOP_SEQUENCES = 8
MAX_QUOTA_BYTES = 1024**4
"""Bytes of a quota; far above what a partition can hold, so a larger one is a typo."""
MAX_BLOCK_BYTES = 256 * 1024
"""Bytes of a core block, those of the largest value that a scope of memory can hold."""
MAX_INJECTED_TOKENS = 1_000_000
MAX_INDEX_BYTES = 1024 * 1024
_Quota = Annotated[NonNegativeInt, Field(le=MAX_QUOTA_BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model a tier may use. Without a provider, `model` is an alias."""

    __pydantic_config__ = FORBID_EXTRA
    provider: ProviderId | None = None
    model: str = ""
    model_pattern: str = ""
    effort: Effort | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingBlock:
    """Sampling parameters; one that is not set is the provider's default."""

    __pydantic_config__ = FORBID_EXTRA
    temperature: Annotated[FiniteFloat, Field(ge=0, le=2)] | None = None
    top_p: Annotated[FiniteFloat, Field(ge=0, le=1)] | None = None
    top_k: PositiveInt | None = None
    frequency_penalty: Annotated[FiniteFloat, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[FiniteFloat, Field(ge=-2, le=2)] | None = None
    seed: StrictInt | None = None
    stop: Annotated[StringList, Field(max_length=MAX_STOP_SEQUENCES)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionBlock:
    """Policy for summarising a long conversation: percentages of what is summarised, and of the context window.

    None leaves a field to the defaults of resolve.py, so a definition knows which fields its author set. `model` is an
    alias of `models`, or a model of the agent's own provider; empty: the agent's model. `memory_flush`: the dialogue
    that is left out goes to the memory that the agent may use.
    """

    __pydantic_config__ = FORBID_EXTRA
    enabled: Switch | None = None
    target_percentage: Annotated[NonNegativeInt, Field(ge=10, le=50)] | None = None
    keep_last_n: NonNegativeInt | None = None
    keep_first: Switch | None = None
    autocompact_at_pct: Annotated[NonNegativeInt, Field(ge=50, le=95)] | None = None
    model: str | None = None
    memory_flush: Switch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreBlockDeclaration:
    """A labelled entry of memory that is always in the prompt: the key core/<label>."""

    __pydantic_config__ = FORBID_EXTRA
    label: BlockLabel
    scope: Literal["agent", "user", "tenant", ""] = ""
    """Scope of memory; empty: agent."""
    limit_bytes: Annotated[NonNegativeInt, Field(le=MAX_BLOCK_BYTES)] = 0
    read_only: Switch = False


def find_duplicate_label(blocks: Sequence[CoreBlockDeclaration]) -> int | None:
    """Return the position of the first core block whose label an earlier one has."""
    labels = [block.label for block in blocks]
    return next((position for position, label in enumerate(labels) if label in labels[:position]), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAccess:
    """Channels an agent may publish to and read."""

    __pydantic_config__ = FORBID_EXTRA
    publish: StringList = ()
    subscribe: StringList = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionOverrides:
    """Value of agents.<name>.interruption; unset fields have the values of InterruptionAccess. `enabled` None: true if
    the agent lists the tool.
    """

    __pydantic_config__ = FORBID_EXTRA
    enabled: Switch | None = None
    kinds: StringList = ()
    max_pending: NonNegativeInt = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionAccess:
    """Whether an agent may ask a person, the kinds of question, and how many may be pending."""

    enabled: bool = False
    kinds: tuple[str, ...] = ("question",)
    max_pending: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBlock:
    """Value of agents.<name>."""

    __pydantic_config__ = FORBID_EXTRA
    description: str = ""
    provider: ProviderId | None = None
    model: str = ""
    tier: Tier | None = None
    effort: Effort | None = None
    providers: tuple[ProviderId, ...] = ()
    models: Mapping[Tier, tuple[Candidate, ...]] = field(default_factory=dict)
    system_prompt: str = ""
    system_prompt_file: str = ""
    system_prompt_base: str = ""
    tools: StringList = ()
    volumes: tuple[VolumeName, ...] = ()
    max_tokens: NonNegativeInt = 0
    max_iterations: NonNegativeInt = 0
    unbounded_iterations: Switch = False
    run_timeout_seconds: NonNegativeInt = 0
    retry_attempts: NonNegativeInt | None = None
    sampling: SamplingBlock | None = None
    unknown_outcome: Literal["tell", "ask", "fail"] = "tell"
    disable_context: Switch = False

    code: str = ""
    code_body: str = ""
    skills: StringList = ()
    max_concurrent_children: NonNegativeInt = 0
    compaction: CompactionBlock | None = None
    search_providers: StringList = ()
    memory_scopes: WordList[MemoryScope] = ()
    memory_quota_bytes: _Quota = 0
    sql_scopes: WordList[SqlScope] = ()
    sql_quota_bytes: _Quota = 0
    memory_backend: str = ""
    core_blocks: tuple[CoreBlockDeclaration, ...] = ()
    inherit_core_blocks: Switch = False
    memory_inject_max_tokens: Annotated[NonNegativeInt, Field(le=MAX_INJECTED_TOKENS)] = 0
    inject_tool_guide: Switch = False
    internal: Switch = False
    memory_protocol: Switch = False
    memory_consolidation: Switch | Mapping[str, object] = False
    memory_index_max_bytes: Annotated[NonNegativeInt, Field(le=MAX_INDEX_BYTES)] = 0
    memory_roots: Literal["lazy", "force", "suppress"] | None = None
    channels: ChannelAccess = field(default_factory=ChannelAccess)
    agent_def_scopes: StringList = ()
    skill_def_scopes: StringList = ()
    schedule_def_scopes: StringList = ()
    a2a_server_card_def_scopes: StringList = ()
    a2a_agent_def_scopes: StringList = ()
    volume_def_scopes: StringList = ()
    evaluation_scopes: StringList = ()
    history_scope: StringList = ()
    interruption: InterruptionOverrides | None = None
