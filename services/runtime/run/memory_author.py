"""The author of what a runtime itself does with memory on behalf of a run.

Before: run_end_memory.py, compaction_memory.py. After: services/families/memory/author.py.
"""

from collections.abc import Collection

from loomlog.projections.settled_sessions import MAINTENANCE_AGENTS
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.families.memory.author import AGENT, USER, Author, Scope, grants_of_run, resolve_scope


def author_of_run(
    tenant: str, facts: RunFacts, command_id: str, *, issued_at_ms: int, turn: int = 0, is_isolated: bool = False
) -> Author:
    """Return the author; `issued_at_ms` 0: an earlier attempt may have been made."""
    definition = facts.definition
    return Author(
        tenant=tenant,
        subject=facts.subject,
        command_id=command_id,
        issued_at_ms=issued_at_ms,
        user_id=facts.user_id,
        agent=definition.name,
        run_id=facts.run_id,
        root_run_id=facts.run_id if facts.parent is None else facts.parent.root_run_id,
        session_id=facts.session_id,
        turn=turn,
        grants=grants_of_run(definition),
        is_isolated=is_isolated,
        positions=facts.positions,
    )


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
