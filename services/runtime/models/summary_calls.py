"""Carries out summary calls: the older part of a conversation is sent to a model, its summary becomes a command.

A call like any other (bounded, paid, with an idempotency key), but without tools and without previews, and never
retried: a compaction that fails changes nothing.

Before: react requested Summarise, and the intent is in the log. After: decide with SummaryCompleted or SummaryFailed.
"""

import time
from collections.abc import Callable

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import Blobs, ModelRequest, SystemBlock
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import SummaryCompleted, SummaryFailed
from loomlog.services.core.run.conversation.compaction import summary_tokens
from loomlog.services.core.run.conversation.summary_prompt import SYSTEM, summary_request
from loomlog.services.core.run.react import Summarise
from loomlog.services.core.run.state import Compacting
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
    ) -> None:
        self._models = models
        self._blobs = blobs
        self._clock_ms = clock_ms
        self._mask = mask
        self._encryption = encryption

    async def run(self, effect: Summarise, state: Compacting, tenant: str = "") -> SummaryCompleted | SummaryFailed:
        """Make the call and return its outcome as a command for the core. Cancelling it closes the connection."""
        began = time.monotonic()
        sealer: ContentCipher | NoCipher = NO_CIPHER
        try:
            sealer = await self._encryption.cipher(tenant, state.facts.user_id)
            reply, key = await self._models.call_summary_model(
                effect, await self._build_request(effect, state, tenant), state, tenant
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
        return SummaryCompleted(
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

    async def _build_request(self, effect: Summarise, state: Compacting, tenant: str) -> ModelRequest:
        """Build the request. Raises ConnectorError when the conversation cannot be read."""
        facts, tokens = state.facts, summary_tokens(state.facts, state.split)
        older = facts.messages[: len(facts.messages) - state.keep_n]
        messages = await load_messages(older, self._blobs, self._encryption, tenant)
        return ModelRequest(
            call_id=f"{effect.run_id}:compact.{effect.number}.{effect.attempt}",
            # It is repeated only after an owner was lost, so every attempt requests the same answer.
            idempotency_key=f"{effect.run_id}:compact.{effect.number}",
            model=effect.model,
            system=(SystemBlock(text=SYSTEM),),
            messages=(summary_request(messages, tokens=tokens, keeps_first=state.keep_first),),
            max_tokens=tokens * ANSWER_FACTOR,
        )


def _elapsed_ms(started_at: float) -> int:
    return int((time.monotonic() - started_at) * 1000)
