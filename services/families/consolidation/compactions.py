"""Dialogue that a compaction leaves out, kept for the consolidator (`memory_flush` of a compaction).

It becomes a pending entry of the user of the run, else of its agent, before the turns are dropped. What the event of
the compaction says of it is all that a replay needs: a replay keeps nothing again. An entry that cannot be written does
not hold up the run, and its error is in that event.

Every message names its run and its event, so that a fact has the place where it was learnt. They are looked up among
the frames of the session; a message that is not there, or whose frame is masked, has seq 0.

Before: services/families/ports/compactions.py. After: operations.py.
"""

import asyncio
import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import orjson

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.models.untrusted_json import repair_text
from loomlog.connectors.process.logs import about
from loomlog.schemas.conversation import Message, TextBlock
from loomlog.schemas.generated.values import MemoryBanked
from loomlog.services.core.operations import Answer
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Compacting
from loomlog.services.families.consolidation.chats import Chats
from loomlog.services.families.consolidation.chats import Message as ShownMessage
from loomlog.services.families.consolidation.learning import is_internal, learning_scopes
from loomlog.services.families.consolidation.limits import PAYLOAD_BYTES_MAX
from loomlog.services.families.memory.author import Author, Scope, author_of_run
from loomlog.services.families.ports.isolation import Isolation

log = logging.getLogger(__name__)

ORIGIN = "compaction"
BANK_WAIT_S = 15.0
"""Seconds that a run waits for its entry."""
PLACES_WAIT_S = 3.0
"""Seconds of them for the frames of the session."""
PLACES_BYTES_MAX = 4 * PAYLOAD_BYTES_MAX
"""Bytes of the newest messages that are looked through; those that a compaction keeps come first."""
PAYLOAD_OVERHEAD_BYTES = 64
"""Bytes of a payload besides its messages."""


class Targets(Protocol):
    """Targets of consolidation (services/families/consolidation/operations.py)."""

    async def bank(self, scope: Scope, payload: Mapping[str, Any], origin: str, author: Author) -> Answer[str]:
        """Keep dialogue; return pending_id. Raises Refused, Unavailable."""
        ...


class CompactionMemory:
    """Protocol DialogueKeeper of ports/compactions.py."""

    def __init__(
        self,
        targets: Targets,
        chats: Chats,
        *,
        internal_agents: Collection[str] = (),
        require_local: Callable[[str, Author], Awaitable[None]],
        is_isolated: Isolation = lambda tenant, subject: False,
        clock_ms: Callable[[], int],
    ) -> None:
        """`require_local` raises Refused when the author's memory is in another installation."""
        self._targets = targets
        self._chats = chats
        self._internal_agents = frozenset(internal_agents)
        self._require_local = require_local
        self._is_isolated = is_isolated
        self._clock_ms = clock_ms

    async def bank(
        self, state: Compacting, omitted: Sequence[Message], tenant: str, mask: Callable[[str], str]
    ) -> MemoryBanked | None:
        """Keep the dialogue of messages, which are in plaintext; None when the run has no memory that learns from it.

        An attempt after the first one gives the entry of the first.
        """
        facts = state.facts
        if facts.parent is not None or is_internal(facts.definition.name, self._internal_agents):
            return None  # what a sub-agent was asked is no dialogue
        author = author_of_run(
            tenant,
            facts,
            f"{facts.run_id}:compact.{state.number}.memory",
            issued_at_ms=self._clock_ms() if state.attempt == 1 else 0,
            turn=facts.turns + 1,
            is_isolated=self._is_isolated(tenant, facts.subject),
        )
        scopes = learning_scopes(author)
        if not scopes:
            return None
        messages = [(role, repair_text(mask(text))) for role, text in dialogue(omitted)]
        if not messages:
            return MemoryBanked()
        try:
            async with asyncio.timeout(BANK_WAIT_S):
                return await self._bank(scopes[0], facts, messages, author)
        except Refused as refused:
            error = f"{refused.code}: {refused}"
        except Unavailable as unavailable:
            error = str(unavailable)
        except TimeoutError:
            error = f"no answer in {BANK_WAIT_S:g} s; it may be kept all the same"
        log.warning(
            "%s: what compaction %d leaves out is not in memory: %s",
            facts.run_id,
            state.number,
            error,
            extra=about(facts.run_id, tenant),
        )
        return MemoryBanked(error=error)

    async def _bank(
        self, scope: Scope, facts: RunFacts, messages: Sequence[tuple[str, str]], author: Author
    ) -> MemoryBanked:
        await self._require_local("compaction.memory_flush", author)
        shown = await self._shown(scope, facts.session_id)
        kept = newest(with_places(messages, shown, facts.run_id), PAYLOAD_BYTES_MAX - PAYLOAD_OVERHEAD_BYTES)
        if not kept:
            text = f"the last message that is left out is longer than the {PAYLOAD_BYTES_MAX} bytes of a pending entry"
            raise Refused("memory_value_too_large", text)
        banked = await self._targets.bank(scope, {"messages": kept}, ORIGIN, author)
        return MemoryBanked(pending_id=banked.value, messages=len(kept))

    async def _shown(self, scope: Scope, session_id: str) -> Sequence[ShownMessage]:
        try:
            async with asyncio.timeout(PLACES_WAIT_S):
                return (await self._chats.dialogue(scope, session_id, bytes_max=PLACES_BYTES_MAX)).messages
        except (ConnectorError, TimeoutError) as error:
            log.warning("the messages of %s are kept without their places: %s", session_id, error or "no answer")
            return ()


def dialogue(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """Yield role and text of what a person wrote and what the agent answered. Summaries, untrusted texts, images, and
    calls with their results are none.
    """
    for message in messages:
        blocks = [one for one in message.blocks if isinstance(one, TextBlock)]
        text = "\n".join(one.text for one in blocks if one.text and not (one.is_summary or one.is_untrusted))
        if text.strip():
            yield message.role, text


def with_places(
    messages: Sequence[tuple[str, str]], shown: Sequence[ShownMessage], run_id: str
) -> list[dict[str, Any]]:
    """Return messages with the run and the seq of the frames that show them, in the order of both."""
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, one in enumerate(shown):
        numbers[one.role, one.text].append(number)
    placed, start = [], 0
    for role, text in messages:
        same = numbers.get((role, text), [])
        at = bisect_left(same, start)
        place = {"run_id": run_id, "seq": 0}
        if at < len(same):
            start = same[at] + 1
            place = {"run_id": shown[same[at]].run_id, "seq": shown[same[at]].seq}
        placed.append({"role": role, "content": text, **place})
    return placed


def newest(messages: Sequence[dict[str, Any]], bytes_max: int) -> list[dict[str, Any]]:
    """Return the last messages that have at most so many bytes together as JSON."""
    start, room = len(messages), bytes_max
    while start and (room := room - len(orjson.dumps(messages[start - 1])) - 1) >= 0:
        start -= 1
    return list(messages[start:])
