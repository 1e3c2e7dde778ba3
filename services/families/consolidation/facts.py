"""Op add: what an agent or an application wants to be remembered.

    infer true (default)    the text is kept as a pending entry; the consolidator makes facts of it
    infer false             the text is a fact as it is, at once, under a key made of it

Before: services/families/memory/entry_operations.py (protocol Learning). After: operations.py; the entries of the
scope.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from loomlog.schemas.generated.values import Provenance
from loomlog.services.families.consolidation.operations import ConsolidationOperations
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.fields import flag_field, refuse, text_field
from loomlog.services.families.memory.slug import DEFAULT_CLASS, fact_key
from loomlog.services.families.operation import Reply

ROLES = ("user", "assistant", "system", "tool")
MESSAGES_MAX = 1_000
CLASS_CHARACTERS_MAX = 64
PENDING, DONE = "pending", "done"

SetFact = Callable[[Scope, Author, str, Mapping[str, Any], Provenance], Awaitable[Reply]]
"""Sets a fact: takes scope, author, key, value and provenance. The value has `memory`, the text to be found by its
meaning, and may have `metadata`. Raises Refused, Unavailable.
"""


class FactLearning:
    """Protocol Learning of services/families/memory/entry_operations.py."""

    def __init__(self, consolidation: ConsolidationOperations, set_fact: SetFact) -> None:
        self._consolidation = consolidation
        self._set_fact = set_fact

    async def add(self, scope: Scope, fields: Mapping[str, Any], author: Author) -> Reply:
        """Return status and event_id: the id of the pending entry, or the position of the fact."""
        content = _content(fields)
        metadata = fields.get("metadata") or {}
        if not isinstance(metadata, Mapping):
            raise refuse("metadata: expected an object")
        if flag_field(fields, "infer", default=True):
            payload = {**content, **({"metadata": metadata} if metadata else {})}
            banked = await self._consolidation.bank(scope, payload, author.origin, author)
            return Reply(
                fields={"status": PENDING, "event_id": banked.fields["pending_id"]}, positions=banked.positions
            )
        text = _text(content)
        fact_class = _class(metadata)
        provenance = Provenance(
            fact_class=fact_class,
            origin=author.origin,
            source_session_id=author.session_id,
            source_run_id=author.run_id,
        )
        value = {"memory": text, **({"metadata": metadata} if metadata else {})}
        written = await self._set_fact(scope, author, fact_key(fact_class, text), value, provenance)
        return Reply(
            fields={"status": DONE, "event_id": written.positions[-1] if written.positions else ""},
            positions=written.positions,
        )

    async def pending_origin(self, scope: Scope, pending_id: str, author: Author) -> Mapping[str, str]:
        """Return origin, source_session_id and source_run_id of a pending entry. Raises Refused(not_found)."""
        return await self._consolidation.pending_source(scope, pending_id, author)

    async def require_lease(self, scope: Scope, author: Author) -> None:
        """Raise Refused(lease_lost) unless the author's run has the lease of the scope."""
        await self._consolidation.require_lease(scope, author)


def _content(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the messages or the content of a call."""
    has_messages, has_content = fields.get("messages") is not None, fields.get("content") is not None
    if has_messages == has_content:
        raise refuse("add: expected messages or content, and not both")
    if has_content:
        return {"content": text_field(fields, "content")}
    messages = fields["messages"]
    if not isinstance(messages, list | tuple) or not 0 < len(messages) <= MESSAGES_MAX:
        raise refuse(f"messages: expected a list of 1 to {MESSAGES_MAX} objects with role and content")
    return {"messages": [_message(number, one) for number, one in enumerate(messages)]}


def _message(number: int, message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise refuse(f"messages[{number}]: expected an object with role and content")
    role = message.get("role", "user")
    if role not in ROLES:
        raise refuse(f"messages[{number}].role: expected one of {', '.join(ROLES)}, not {str(role)[:60]!r}")
    name = f"messages[{number}].content"
    return {"role": role, "content": text_field({name: message.get("content")}, name)}


def _text(content: Mapping[str, Any]) -> str:
    if "content" in content:
        return str(content["content"])
    return "\n".join(f"{message['role']}: {message['content']}" for message in content["messages"])


def _class(metadata: Mapping[str, Any]) -> str:
    fact_class = metadata.get("class", DEFAULT_CLASS)
    is_word = isinstance(fact_class, str) and fact_class and fact_class.isprintable()
    if not is_word or len(fact_class) > CLASS_CHARACTERS_MAX:
        raise refuse(f"metadata.class: expected a word of at most {CLASS_CHARACTERS_MAX} characters")
    return str(fact_class)
