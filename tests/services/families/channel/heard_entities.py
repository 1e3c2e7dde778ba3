"""The queues of MemoryEntities, whose events a cache of messages hears as it would from the log."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.reader import RawEvent
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.channel import FAMILY
from loomlog.services.families.channel.caller import FAMILY_NAME, queue_name
from loomlog.services.families.channel.message_cache import READ, MessageCache
from loomlog.services.stream.entities.answers import Answer
from tests.services.entities import NOW_MS, TOPIC, MemoryEntities


class HeardEntities(MemoryEntities):
    """Entities of channels with the cache of the process."""

    def __init__(self) -> None:
        super().__init__(FAMILY)
        self.codec = local_codec()
        self.cache = MessageCache(self.codec, topic=TOPIC)

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        is_new = command.envelope.command_id not in self.answers
        answer = await super().ask(command, wait_s=wait_s)
        if is_new:
            name = queue_name(command.channel, command.scope, command.scope_id)
            self._hear(aggregate_id(FAMILY_NAME, command.envelope.tenant, name), answer.events, answer.offset)
        return answer

    def _hear(self, aggregate: str, events: Sequence[Any], offset: int) -> None:
        for event in events:
            if event.SCHEMA not in READ:
                continue
            envelope = Envelope(
                term=1, seq=1, aggregate=aggregate, tenant="", at_ms=NOW_MS, prev=bytes(16), cause_id="c"
            )
            value = self.codec.encode_event(envelope, event)
            schema_id = int.from_bytes(value[1:5], "big")
            self.cache.read(1, RawEvent(offset, schema_id, 1, 1, aggregate, value))
