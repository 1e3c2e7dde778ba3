"""Previews of model turns while they stream, on their own topic. Not authoritative, and never waited for.

People notice how soon an answer begins, so the first characters of a call are sent at once. What follows is gathered
for a moment, so that a stream of tokens is a few records a second. A turn that ends as soon as it has begun (a cache, a
model that does not stream) sends nothing: its text is in ModelReplied.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from types import TracebackType

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogAppender, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import ModelDelta
from loomlog.schemas.ids import partition_key
from loomlog.services.core.run.react import CallModel
from loomlog.services.runtime.content.payloads import make_storable
from loomlog.services.runtime.content.redaction import NO_REDACTION
from loomlog.services.stream.snapshots.snapshots import batch_records

log = logging.getLogger(__name__)

FLUSH_INTERVAL_S = 0.04
"""Seconds for which characters are gathered: below what a person sees as a stutter, 25 records a second per stream."""
RECORDS_PER_S = 4_000
"""Records a second of all streams together: what 1,000 streams say is gathered for 250 ms."""
FIRST_FLUSH_PAUSE_S = 0.005
"""Seconds of pause after first characters were sent, before those of other calls are, so that many calls share an
append: at most 200 appends a second. It is a third of what a start may add to the first token of its provider (15 ms).
"""
MAX_CHARACTERS = 100_000
"""Characters of one record, so that it fits an append; a provider without streaming sends one large piece."""
MAX_WAITING = 10_000
"""Records waiting to be sent; more are dropped, since the whole turn follows in any case."""


class Previews:
    """Sends ModelDelta records. `term_of` returns the term under which a partition is held, -1 when it is not."""

    def __init__(
        self, codec: Codec, appender: LogAppender, *, topic: str, partitions: int, term_of: Callable[[int], int]
    ) -> None:
        self.dropped = 0
        self._codec = codec
        self._appender = appender
        self._topic = topic
        self._partitions = partitions
        self._term_of = term_of
        self._first_text_waiting: set[ModelPreview] = set()
        """Calls whose first characters wait to be sent."""
        self._more_text_waiting: set[ModelPreview] = set()
        """Calls whose further characters wait to be sent."""
        self._wakeup = asyncio.Event()
        self._waiting: dict[int, list[ProducerRecord]] = {}
        self._waiting_count = 0

    def open_preview(
        self,
        effect: CallModel,
        encrypt: Callable[[str], str] = str,
        mask: Callable[[str], tuple[str, str]] = NO_REDACTION.mask_prefix,
    ) -> "ModelPreview":
        """Return the preview of one model call, as a context manager; `encrypt` encrypts what is sent, `mask` splits a
        text into its final part, without secrets, and the rest (Redaction.mask_prefix).
        """
        return ModelPreview(self, effect, encrypt, mask)

    def schedule(self, preview: "ModelPreview", *, is_first: bool) -> None:
        """Schedule a call whose characters wait to be sent."""
        if is_first:
            self._first_text_waiting.add(preview)
            self._wakeup.set()
        elif preview not in self._first_text_waiting:
            if not self._more_text_waiting:
                self._wakeup.set()
            self._more_text_waiting.add(preview)

    def discard(self, preview: "ModelPreview") -> None:
        """Send nothing more of a call that has returned."""
        self._first_text_waiting.discard(preview)
        self._more_text_waiting.discard(preview)

    async def run(self) -> None:
        """Send groups until cancelled."""
        clock = asyncio.get_running_loop().time
        group_at = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(group_at if self._more_text_waiting else None):
                    await self._wakeup.wait()
            self._wakeup.clear()
            if clock() >= group_at:
                group_at = clock() + max(FLUSH_INTERVAL_S, len(self._more_text_waiting) / RECORDS_PER_S)
                self._gather_all(self._more_text_waiting)
            if self._first_text_waiting:
                self._gather_all(self._first_text_waiting)
            if self._waiting:
                await self._send()
                await asyncio.sleep(FIRST_FLUSH_PAUSE_S)

    def _gather_all(self, previews: "set[ModelPreview]") -> None:
        for preview in previews:
            self._gather(preview)
        previews.clear()

    async def _send(self) -> None:
        """Append to all partitions concurrently: in sequence, the last one's listeners would wait for all."""
        waiting, self._waiting, self._waiting_count = self._waiting, {}, 0
        async with asyncio.TaskGroup() as group:
            for partition, records in waiting.items():
                group.create_task(self._append(partition, records))

    async def _append(self, partition: int, records: list[ProducerRecord]) -> None:
        try:
            for batch in batch_records(records):
                await self._appender.append(self._topic, partition, batch)
        except UnknownOutcome as error:
            self.dropped += len(records)
            log.warning("previews of partition %d are lost: %s", partition, error)

    def _gather(self, preview: "ModelPreview") -> None:
        effect = preview.effect
        key = partition_key(effect.run_id).encode()
        partition = partition_of(key, self._partitions)
        for thinking in (True, False):
            start = preview.sent_characters[thinking]
            text = preview.drain(thinking=thinking)
            for at in range(0, len(text), MAX_CHARACTERS):
                if self._waiting_count >= MAX_WAITING:
                    self.dropped += 1
                    continue
                delta = ModelDelta(
                    term=self._term_of(partition),
                    run_id=effect.run_id,
                    turn=effect.turn,
                    attempt=effect.attempt,
                    start=start + at,
                    text=preview.encrypt(make_storable(text[at : at + MAX_CHARACTERS])),
                    thinking=thinking,
                )
                self._waiting.setdefault(partition, []).append(ProducerRecord(key=key, value=self._codec.encode(delta)))
                self._waiting_count += 1


class ModelPreview:
    """Characters of one call that were not sent yet."""

    def __init__(
        self,
        previews: Previews,
        effect: CallModel,
        encrypt: Callable[[str], str],
        mask: Callable[[str], tuple[str, str]],
    ) -> None:
        self.effect = effect
        self.encrypt = encrypt
        self._mask = mask
        self._has_text = False
        self.sent_characters = {True: 0, False: 0}
        self._buffers: dict[bool, list[str]] = {True: [], False: []}
        self._previews = previews

    def add(self, text: str, *, thinking: bool) -> None:
        if text:
            self._buffers[thinking].append(text)
            self._previews.schedule(self, is_first=not self._has_text)
            self._has_text = True

    def drain(self, *, thinking: bool) -> str:
        """Return the text gathered since the last call, masked; `sent_characters` counts it."""
        pieces = self._buffers[thinking]
        if not pieces:
            return ""
        text, rest = self._mask("".join(pieces))
        pieces[:] = [rest] if rest else []
        self.sent_characters[thinking] += len(text)
        return text

    def __enter__(self) -> "ModelPreview":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._previews.discard(self)
