"""Carries out summary calls: the older part of a conversation is sent to a model, its summary becomes a command.

A call like any other (bounded, paid, with an idempotency key), but without tools and without previews, and never
retried: a compaction that fails changes nothing. With `memory_flush` the dialogue that a summary takes the place of is
kept in memory first.

Before: react requested Summarise, and the intent is in the log. After: decide with SummaryCompleted or SummaryFailed.
"""

import time
from collections.abc import Callable

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import Blobs, ModelRequest, SystemBlock
from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_events import ContextCompacted
from loomlog.schemas.generated.values import MemoryBanked
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import SummaryCompleted, SummaryFailed
from loomlog.services.core.run.conversation.compaction import complete_compaction, policy_of, summary_tokens
from loomlog.services.core.run.conversation.compaction_split import CompactionSplit, omitted_messages
from loomlog.services.core.run.conversation.summary_prompt import SYSTEM, summary_request
from loomlog.services.core.run.react import Summarise
from loomlog.services.core.run.state import Compacting
from loomlog.services.families.ports.compactions import DialogueKeeper
from loomlog.services.runtime.content.encryption import NO_CIPHER, PLAINTEXT, ContentEncryption, NoCipher
from loomlog.services.runtime.content.payloads import load_messages, make_storable
from loomlog.services.runtime.models.model_calls import ModelCalls
from loomlog.services.stream.encryption.subject_keys import ContentCipher

ANSWER_FACTOR = 2
"""Output tokens allowed for each requested one: a summary that is cut off lacks its end."""


class SummaryCalls:
    """Makes summary calls through `models`. `mask` and `encryption` as there."""

    def __init__(
        self,
        models: ModelCalls,
        *,
        blobs: Blobs,
        clock_ms: Callable[[], int],
        mask: Callable[[str], str] = str,
        encryption: ContentEncryption = PLAINTEXT,
        memory: DialogueKeeper | None = None,
    ) -> None:
        """`memory` None: what is left out is not kept."""
        self._models = models
        self._blobs = blobs
        self._clock_ms = clock_ms
        self._mask = mask
        self._encryption = encryption
        self._memory = memory

    async def run(self, effect: Summarise, state: Compacting, tenant: str = "") -> SummaryCompleted | SummaryFailed:
        """Make the call and return its outcome as a command for the core. Cancelling it closes the connection."""
        began = time.monotonic()
        sealer: ContentCipher | NoCipher = NO_CIPHER
        try:
            sealer = await self._encryption.cipher(tenant, state.facts.user_id)
            older = await self._load_older(state, tenant)
            reply, key = await self._models.call_summary_model(
                effect, _build_request(effect, state, older), state, tenant
            )
        except (Transient, Permanent) as error:
            return SummaryFailed(
                at_ms=self._clock_ms(),
                number=effect.number,
                attempt=effect.attempt,
                kind=error.kind,
                message=sealer.short_text(make_storable(self._mask(str(error)))),
                duration_ms=_elapsed_ms(began),
            )
        whole = make_storable(self._mask(reply.text)).strip()
        summary = whole[: limits.SUMMARY_CHARACTERS_MAX]
        cost_micros, currency = self._models.cost(effect.provider, effect.model, reply.usage)
        completed = SummaryCompleted(
            at_ms=self._clock_ms(),
            number=effect.number,
            attempt=effect.attempt,
            # The summary may repeat anything the model has read, so it is shown fenced.
            summary=sealer.untrusted_text(summary),
            usage=reply.usage,
            provider=effect.provider,
            model=reply.model or effect.model,
            cost_micros=cost_micros,
            currency=currency,
            duration_ms=_elapsed_ms(began),
            credential_source=key.source,
            credential_scope=key.scope,
            is_truncated=reply.stop_reason == "max_tokens" or len(summary) < len(whole),
        )
        return replace(completed, memory_banked=await self._bank(state, completed, older, tenant))

    async def _load_older(self, state: Compacting, tenant: str) -> tuple[Message, ...]:
        """Return the messages before those that stay. Raises ConnectorError when they cannot be read."""
        messages = state.facts.messages
        older = messages[: len(messages) - state.keep_n]
        return await load_messages(older, self._blobs, self._encryption, tenant)

    async def _bank(
        self, state: Compacting, completed: SummaryCompleted, older: tuple[Message, ...], tenant: str
    ) -> MemoryBanked | None:
        """Keep what this summary takes the place of; None when it takes none, or nothing is to be kept."""
        if self._memory is None or not policy_of(state.facts.definition).memory_flush:
            return None
        if not isinstance(complete_compaction(state, completed), ContextCompacted):
            return None
        omitted = omitted_messages(older, CompactionSplit(keep_n=0, keep_first=state.keep_first))
        return await self._memory.bank(state, omitted, tenant, self._mask)


def _build_request(effect: Summarise, state: Compacting, older: tuple[Message, ...]) -> ModelRequest:
    tokens = summary_tokens(state.facts, state.split)
    return ModelRequest(
        call_id=f"{effect.run_id}:compact.{effect.number}.{effect.attempt}",
        # It is repeated only after an owner was lost, so every attempt requests the same answer.
        idempotency_key=f"{effect.run_id}:compact.{effect.number}",
        model=effect.model,
        system=(SystemBlock(text=SYSTEM),),
        messages=(summary_request(older, tokens=tokens, keeps_first=state.keep_first),),
        max_tokens=tokens * ANSWER_FACTOR,
    )


def _elapsed_ms(started_at: float) -> int:
    return int((time.monotonic() - started_at) * 1000)
