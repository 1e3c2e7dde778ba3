"""What runs have of memory: in their prompts, at their ends, at compactions; and the entries of the files.

Before: main.py. After: services/families/memory, services/families/database, services/families/consolidation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from loomlog.schemas.generated.values import AgentDefinition
from loomlog.services.families.consolidation.decide import CONSOLIDATOR
from loomlog.services.families.consolidation.services import ConsolidationServices
from loomlog.services.families.database.services import DatabaseServices
from loomlog.services.families.memory.prompt import bands_part
from loomlog.services.families.memory.services import MemoryServices
from loomlog.services.families.opening import FamilyContext
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run.compaction_memory import CompactionMemory
from loomlog.services.runtime.run.prompt_memory import PromptMemory
from loomlog.services.runtime.run.run_end_memory import RunEndMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMemory:
    """What a runtime has of memory beside the tool."""

    prompts: Callable[[DefinitionTexts], PromptMemory]
    """Returns what fills the prompts of runs."""
    run_ends: RunEndMemory
    """What the ends of runs lead to."""
    compaction: CompactionMemory
    """Where the dialogue goes that compactions leave out."""


def build_run_memory(
    context: FamilyContext,
    *,
    agents: DefinitionResolver,
    encryption: ContentEncryption,
    is_isolated: Callable[[str, str], bool],
) -> RunMemory:
    """Build everything over the families of this process, which are open."""
    memory, consolidation = context.get(MemoryServices), context.get(ConsolidationServices)
    policy, internal_agents = consolidation.options.policy, consolidation.options.internal_agents
    require_local = memory.backends.require_local
    return RunMemory(
        prompts=lambda texts: PromptMemory(
            memory.backends.backend_of,
            texts=texts,
            blobs=context.blobs,
            bands=bands_part(policy.merge_threshold, policy.related_threshold),
            encryption=encryption,
            finder=memory.backends,
            is_isolated=is_isolated,
        ),
        run_ends=RunEndMemory(
            consolidation.operations,
            context.get(DatabaseServices).operations,
            has_consolidator=partial(has_consolidator, agents),
            internal_agents=internal_agents,
            require_local=require_local,
            is_isolated=is_isolated,
            clock_ms=context.clock_ms,
        ),
        compaction=CompactionMemory(
            consolidation.operations,
            consolidation.chats,
            internal_agents=internal_agents,
            require_local=require_local,
            is_isolated=is_isolated,
            clock_ms=context.clock_ms,
        ),
    )


def has_consolidator(agents: DefinitionResolver, tenant: str) -> bool:
    """Return whether a tenant has the agent that a target starts, on a model that can be called now."""
    resolved = agents.resolve(CONSOLIDATOR, tenant=tenant, user_tier="")
    return isinstance(resolved, AgentDefinition) or resolved.code == "definition_pending"
