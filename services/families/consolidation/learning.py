"""What consolidation learns from: the dialogue of which agents, for whose memory.

Before: run_ends.py, compactions.py. After: services/families/memory/author.py.
"""

from collections.abc import Collection

from loomlog.projections.settled_sessions import MAINTENANCE_AGENTS
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory.author import AGENT, USER, Author, Scope, resolve_scope


def is_internal(agent: str, internal_agents: Collection[str]) -> bool:
    """Whether nothing is learnt from the dialogue of an agent: one that maintains memory, or one of these."""
    return agent.startswith(MAINTENANCE_AGENTS) or agent in internal_agents


def learning_scopes(author: Author) -> tuple[Scope, ...]:
    """Return whose memory learns from the dialogue of a run: its user's and its agent's, as far as it may use them."""
    scopes = []
    for name in (USER, AGENT):
        try:
            scopes.append(resolve_scope(author, name))
        except Refused:
            continue
    return tuple(scopes)
