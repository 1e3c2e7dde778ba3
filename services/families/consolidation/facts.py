"""Op add: what an agent or an application wants to be remembered.

    infer true (default)    the text is kept as a pending entry; the consolidator makes facts of it
    infer false             the text is a fact as it is, at once, under a key made of it

Before: services/families/memory/entry_operations.py (protocol Learning). After: operations.py; the entries of the
scope.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import UNSET, to_builtins

from loomlog.schemas.generated.values import Provenance
from loomlog.services.core.operations import Answer
from loomlog.services.core.refusals import Refused
from loomlog.services.families.consolidation.operations import ConsolidationOperations
from loomlog.services.families.memory.api import FACT_CLASS_CHARACTERS_MAX, MemoryAdd, MemoryAdded
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.slug import DEFAULT_CLASS, fact_key

PENDING, DONE = "pending", "done"

SetFact = Callable[[Scope, Author, str, Mapping[str, Any], Provenance], Awaitable[tuple[str, ...]]]
"""Sets a fact: takes scope, author, key, value and provenance; returns the position of the event. The value has
`memory`, the text to be found by its meaning, and may have `metadata`. Raises Refused, Unavailable.
"""


class FactLearning:
    """Protocol Learning of services/families/memory/entry_operations.py."""

    def __init__(self, consolidation: ConsolidationOperations, set_fact: SetFact) -> None:
        self._consolidation = consolidation
        self._set_fact = set_fact

    async def add(self, scope: Scope, asked: MemoryAdd, author: Author) -> Answer[MemoryAdded]:
        """Return status and event_id: the id of the pending entry, or the position of the fact."""
        content = _content(asked)
        metadata = {"metadata": asked.metadata} if asked.metadata else {}
        if asked.infer:
            banked = await self._consolidation.bank(scope, {**content, **metadata}, author.origin, author)
            return Answer(value=MemoryAdded(status=PENDING, event_id=banked.value), positions=banked.positions)
        text = _text(content)
        fact_class = _class(asked.metadata)
        provenance = Provenance(
            fact_class=fact_class,
            origin=author.origin,
            source_session_id=author.session_id,
            source_run_id=author.run_id,
        )
        value = {"memory": text, **metadata}
        positions = await self._set_fact(scope, author, fact_key(fact_class, text), value, provenance)
        return Answer(value=MemoryAdded(status=DONE, event_id=positions[-1] if positions else ""), positions=positions)

    async def pending_origin(self, scope: Scope, pending_id: str, author: Author) -> Mapping[str, str]:
        """Return origin, source_session_id and source_run_id of a pending entry. Raises Refused(not_found)."""
        return await self._consolidation.pending_source(scope, pending_id, author)

    async def require_lease(self, scope: Scope, author: Author) -> None:
        """Raise Refused(lease_lost) unless the author's run has the lease of the scope."""
        await self._consolidation.require_lease(scope, author)


def _content(asked: MemoryAdd) -> dict[str, Any]:
    """Return the messages or the content of a call."""
    if (asked.messages is UNSET) == (asked.content is UNSET):
        raise Refused("bad_request", "add: expected messages or content, and not both")
    if asked.messages is UNSET:
        return {"content": asked.content}
    return {"messages": to_builtins(asked.messages)}


def _text(content: Mapping[str, Any]) -> str:
    if "content" in content:
        return str(content["content"])
    return "\n".join(f"{message['role']}: {message['content']}" for message in content["messages"])


def _class(metadata: Mapping[str, Any]) -> str:
    fact_class = metadata.get("class", DEFAULT_CLASS)
    is_word = isinstance(fact_class, str) and fact_class and fact_class.isprintable()
    if not is_word or len(fact_class) > FACT_CLASS_CHARACTERS_MAX:
        text = f"metadata.class: expected a word of at most {FACT_CLASS_CHARACTERS_MAX} characters"
        raise Refused("bad_request", text)
    return str(fact_class)
