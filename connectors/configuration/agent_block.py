"""Typed definition of one agent in a configuration file, with every key of the reference.

Keys of features of later versions are typed and kept, so that the whole file is checked and needs no edit when the
feature comes; nothing reads them yet. The classes are plain frozen dataclasses that pydantic fills: it validates at the
boundary only.

Before: field_types.py. After: model.py (agents.<name>), resolve.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from loomlog.connectors.configuration.approvals_block import ApprovalsBlock
from loomlog.connectors.configuration.field_classes import BOUND, NEUTRAL, Bound, Grant, Order
from loomlog.connectors.configuration.field_types import (
    BlockLabel,
    Effort,
    FiniteFloat,
    JsonObject,
    MemoryScope,
    NonNegativeInt,
    OutputSchema,
    PositiveInt,
    ProviderId,
    SqlScope,
    StrictInt,
    StringList,
    Switch,
    Tier,
    VolumeName,
    WordList,
    configuration_block,
    to_block,
)
from loomlog.schemas.generated.values import AgentGrants

DEFAULT_ITERATIONS = 16
"""Turns of an agent without max_iterations: services/core/run/limits.py, which imports nothing of this."""
DEFAULT_CONCURRENT_CHILDREN = 4
DEFAULT_OUTPUT_RETRIES = 2
MAX_OUTPUT_RETRIES = 10
"""Corrections of a final answer, as in services/core/run/limits.py."""
DEFAULT_INJECTED_TOKENS = AgentGrants().memory_inject_max_tokens
DEFAULT_INDEX_BYTES = AgentGrants().memory_index_max_bytes
EFFORTS = ("low", "medium", "high")
TIERS: tuple[Tier, ...] = ("low", "middle", "high")
MAX_STOP_SEQUENCES = 8
MAX_QUOTA_BYTES = 1024**4
"""Bytes of a quota; far above what a partition can hold, so a larger one is a typo."""
MAX_BLOCK_BYTES = 256 * 1024
"""Bytes of a core block, those of the largest value that a scope of memory can hold."""
MAX_INJECTED_TOKENS = 1_000_000
MAX_INDEX_BYTES = 1024 * 1024
_Quota = Annotated[NonNegativeInt, Field(le=MAX_QUOTA_BYTES)]


@configuration_block
class Candidate:
    """A model a tier may use. Without a provider, `model` is an alias."""

    provider: ProviderId | None = None
    model: str = ""
    model_pattern: str = ""
    effort: Effort | None = None


Candidates = tuple[Annotated[Candidate, BeforeValidator(lambda value: to_block(value, "model"))], ...]
"""Models that a tier may use, best first. A text is the alias of one."""


@configuration_block
class SamplingBlock:
    """Sampling parameters; one that is not set is the provider's default."""

    temperature: Annotated[FiniteFloat, Field(ge=0, le=2)] | None = None
    top_p: Annotated[FiniteFloat, Field(ge=0, le=1)] | None = None
    top_k: PositiveInt | None = None
    frequency_penalty: Annotated[FiniteFloat, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[FiniteFloat, Field(ge=-2, le=2)] | None = None
    seed: StrictInt | None = None
    stop: Annotated[StringList, Field(max_length=MAX_STOP_SEQUENCES)] = ()


@configuration_block
class CompactionBlock:
    """Policy for summarising a long conversation: percentages of what is summarised, and of the context window.

    None leaves a field to the defaults of resolve.py, so a definition knows which fields its author set. `model` is an
    alias of `models`, or a model of the agent's own provider; empty: the agent's model. `memory_flush`: the dialogue
    that is left out goes to the memory that the agent may use.
    """

    enabled: Annotated[Switch | None, NEUTRAL] = None
    target_percentage: Annotated[Annotated[NonNegativeInt, Field(ge=10, le=50)] | None, NEUTRAL] = None
    keep_last_n: Annotated[NonNegativeInt | None, NEUTRAL] = None
    keep_first: Annotated[Switch | None, NEUTRAL] = None
    autocompact_at_pct: Annotated[Annotated[NonNegativeInt, Field(ge=50, le=95)] | None, NEUTRAL] = None
    model: Annotated[str | None, Grant(order=Order.NAMES)] = None
    memory_flush: Annotated[Switch | None, NEUTRAL] = None


@configuration_block
class CoreBlockDeclaration:
    """A labelled entry of memory that is always in the prompt: the key core/<label>."""

    label: BlockLabel
    scope: Literal["agent", "user", "tenant", ""] = ""
    """Scope of memory; empty: agent."""
    limit_bytes: Annotated[NonNegativeInt, Field(le=MAX_BLOCK_BYTES)] = 0
    read_only: Switch = False


def find_duplicate_label(blocks: Sequence[CoreBlockDeclaration]) -> int | None:
    """Return the position of the first core block whose label an earlier one has."""
    labels = [block.label for block in blocks]
    return next((position for position, label in enumerate(labels) if label in labels[:position]), None)


@configuration_block
class ChannelAccess:
    """Channels an agent may publish to and read."""

    publish: Annotated[StringList, Grant(order=Order.CHANNELS)] = ()
    subscribe: Annotated[StringList, Grant(order=Order.CHANNELS)] = ()


@configuration_block
class InterruptionOverrides:
    """Value of agents.<name>.interruption; unset fields have the values of InterruptionAccess. `enabled` None: true if
    the agent lists the tool.
    """

    enabled: Switch | None = None
    kinds: StringList = ()
    max_pending: NonNegativeInt = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionAccess:
    """Whether an agent may ask a person, the kinds of question, and how many may be pending."""

    enabled: bool = False
    kinds: tuple[str, ...] = ("question",)
    max_pending: int = 10


@configuration_block
class AgentBlock:
    """Value of agents.<name>."""

    description: Annotated[str, NEUTRAL] = ""
    provider: Annotated[ProviderId | None, Grant(order=Order.MODELS)] = None
    model: Annotated[str, Grant(order=Order.MODELS)] = ""
    tier: Annotated[Tier | None, Grant(order=Order.MODELS)] = None
    effort: Annotated[Effort | None, Bound(words=EFFORTS)] = None
    providers: Annotated[tuple[ProviderId, ...], Grant(order=Order.MODELS)] = ()
    models: Annotated[Mapping[Tier, Candidates], Grant(order=Order.MODELS)] = field(default_factory=dict)
    system_prompt: Annotated[str, NEUTRAL] = ""
    system_prompt_file: Annotated[str, NEUTRAL] = ""
    system_prompt_base: Annotated[str, NEUTRAL] = ""
    tools: Annotated[StringList, Grant(order=Order.TOOLS)] = ()
    volumes: Annotated[tuple[VolumeName, ...], Grant(order=Order.VOLUMES)] = ()
    max_tokens: Annotated[NonNegativeInt, BOUND] = 0
    max_iterations: Annotated[NonNegativeInt, Bound(absent=DEFAULT_ITERATIONS, lifted_by="unbounded_iterations")] = 0
    unbounded_iterations: Annotated[Switch, Grant(order=Order.SWITCH)] = False
    run_timeout_seconds: Annotated[NonNegativeInt, BOUND] = 0
    retry_attempts: Annotated[NonNegativeInt | None, Bound(counts_zero=True)] = None
    sampling: Annotated[SamplingBlock | None, NEUTRAL] = None
    unknown_outcome: Annotated[Literal["tell", "ask", "fail"], Bound(words=("fail", "ask", "tell"))] = "tell"
    disable_context: Annotated[Switch, Grant(order=Order.TOOLS)] = False

    code: Annotated[str, NEUTRAL] = ""
    code_body: Annotated[str, NEUTRAL] = ""
    skills: Annotated[StringList, Grant(order=Order.SKILLS)] = ()
    max_concurrent_children: Annotated[NonNegativeInt, Bound(absent=DEFAULT_CONCURRENT_CHILDREN)] = 0
    compaction: CompactionBlock | None = None
    search_providers: Annotated[StringList, Grant(order=Order.CHOICE)] = ()
    memory_scopes: Annotated[WordList[MemoryScope], Grant(order=Order.NAMES)] = ()
    memory_quota_bytes: Annotated[_Quota, BOUND] = 0
    sql_scopes: Annotated[WordList[SqlScope], Grant(order=Order.NAMES)] = ()
    sql_quota_bytes: Annotated[_Quota, BOUND] = 0
    memory_backend: Annotated[str, Grant(order=Order.SAME)] = ""
    core_blocks: Annotated[tuple[CoreBlockDeclaration, ...], Grant(order=Order.CORE_BLOCKS)] = ()
    inherit_core_blocks: Annotated[Switch, Grant(order=Order.SWITCH)] = False
    memory_inject_max_tokens: Annotated[
        NonNegativeInt, Field(le=MAX_INJECTED_TOKENS), Bound(absent=DEFAULT_INJECTED_TOKENS)
    ] = 0
    inject_tool_guide: Annotated[Switch, NEUTRAL] = False
    internal: Annotated[Switch, Grant(order=Order.SWITCH)] = False
    memory_protocol: Annotated[Switch, NEUTRAL] = False
    memory_consolidation: Annotated[Switch | JsonObject, Grant(order=Order.CONSOLIDATION)] = False
    memory_index_max_bytes: Annotated[NonNegativeInt, Field(le=MAX_INDEX_BYTES), Bound(absent=DEFAULT_INDEX_BYTES)] = 0
    memory_roots: Annotated[Literal["lazy", "force", "suppress"] | None, NEUTRAL] = None
    channels: ChannelAccess = field(default_factory=ChannelAccess)
    agent_def_scopes: Annotated[StringList, Grant(order=Order.AUTHORSHIP)] = ()
    skill_def_scopes: Annotated[StringList, Grant(order=Order.AUTHORSHIP)] = ()
    schedule_def_scopes: Annotated[StringList, Grant(order=Order.AUTHORSHIP)] = ()
    a2a_server_card_def_scopes: Annotated[StringList, Grant(order=Order.AUTHORSHIP)] = ()
    a2a_agent_def_scopes: Annotated[StringList, Grant(order=Order.AUTHORSHIP)] = ()
    volume_def_scopes: Annotated[StringList, Grant(order=Order.AUTHORSHIP)] = ()
    evaluation_scopes: Annotated[StringList, Grant(order=Order.EVALUATION)] = ()
    history_scope: Annotated[StringList, Grant(order=Order.NAMES)] = ()
    interruption: Annotated[InterruptionOverrides | None, Grant(order=Order.INTERRUPTION)] = None
    approvals: Annotated[ApprovalsBlock, Grant(order=Order.RULES)] = field(default_factory=ApprovalsBlock)
    output_schema: Annotated[OutputSchema, NEUTRAL] = field(default_factory=dict)
    output_retries: Annotated[
        Annotated[NonNegativeInt, Field(le=MAX_OUTPUT_RETRIES)] | None,
        Bound(absent=DEFAULT_OUTPUT_RETRIES, counts_zero=True),
    ] = None
