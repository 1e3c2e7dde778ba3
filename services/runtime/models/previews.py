"""Previews of model turns while they stream, on their own topic. Never truth, and never waited for.

How soon an answer begins is what people notice, so the first characters of a call leave at once. What follows is
gathered for a moment, so that a stream of tokens is a few records a second. A turn that is done as soon as it has begun
(a cache, a model that does not stream) sends nothing: its text is in ModelReplied.
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
from loomlog.services.runtime.content.payloads import storable
from loomlog.services.runtime.content.redaction import NO_REDACTION
from loomlog.services.stream.snapshots.snapshots import batches

log = logging.getLogger(__name__)

GROUP_S = 0.04
"""How long characters gather: below what a person sees as a stutter, 25 records a second for each stream."""
FIRST_S = 0.005
"""Pause after first characters have left before those of other calls do, so that many calls share an append: at most
200 appends a second. It is a third of what a start may add to the first token of its provider (15 ms)."""
MAX_CHARACTERS = 100_000
"""Characters of one record, so that it fits an append; a provider that does not stream gives its text in one piece."""
MAX_WAITING = 10_000
"""Records waiting to be sent; more are dropped, the whole turn follows in any case."""


class Previews:
    """Sends ModelDelta records. `term_of` gives the term under which a partition is held, -1 when it is not."""

    def __init__(
        self, codec: Codec, appender: LogAppender, *, topic: str, partitions: int, term_of: Callable[[int], int]
    ) -> None:
        self.dropped = 0
        self._codec = codec
        self._appender = appender
        self._topic = topic
        self._partitions = partitions
        self._term_of = term_of
        self._begun: set[Preview] = set()
        """Calls whose first characters wait."""
        self._going_on: set[Preview] = set()
        """Calls of which further characters wait."""
        self._woken = asyncio.Event()
        self._waiting: dict[int, list[ProducerRecord]] = {}
        self._count = 0

    def of(
        self,
        effect: CallModel,
        seal: Callable[[str], str] = str,
        mask: Callable[[str], tuple[str, str]] = NO_REDACTION.beginning,
    ) -> "Preview":
        """The preview of one model call, as a context manager; `seal` encrypts what goes out, `mask` gives what of a
        text is certain, without secrets, and the rest (Redaction.beginning)."""
        return Preview(self, effect, seal, mask)

    def said(self, preview: "Preview", *, is_first: bool) -> None:
        """Characters of a call wait."""
        if is_first:
            self._begun.add(preview)
            self._woken.set()
        elif preview not in self._begun:
            if not self._going_on:
                self._woken.set()
            self._going_on.add(preview)

    def over(self, preview: "Preview") -> None:
        """Of a call that has returned nothing more is sent."""
        self._begun.discard(preview)
        self._going_on.discard(preview)

    async def run(self) -> None:
        """Sends groups until cancelled."""
        clock = asyncio.get_running_loop().time
        group_at = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(group_at if self._going_on else None):
                    await self._woken.wait()
            self._woken.clear()
            if clock() >= group_at:
                self._gather_of(self._going_on)
                group_at = clock() + GROUP_S
            if self._begun:
                self._gather_of(self._begun)
            if self._waiting:
                await self._send()
                await asyncio.sleep(FIRST_S)

    def _gather_of(self, previews: "set[Preview]") -> None:
        for preview in previews:
            self._gather(preview)
        previews.clear()

    async def _send(self) -> None:
        """All partitions at once: one after the other, the last one's listeners would wait for every other append."""
        waiting, self._waiting, self._count = self._waiting, {}, 0
        async with asyncio.TaskGroup() as group:
            for partition, records in waiting.items():
                group.create_task(self._append(partition, records))

    async def _append(self, partition: int, records: list[ProducerRecord]) -> None:
        try:
            for batch in batches(records):
                await self._appender.append(self._topic, partition, batch)
        except UnknownOutcome as error:
            self.dropped += len(records)
            log.warning("previews of partition %d are lost: %s", partition, error)

    def _gather(self, preview: "Preview") -> None:
        effect = preview.effect
        key = partition_key(effect.run_id).encode()
        partition = partition_of(key, self._partitions)
        for thinking in (True, False):
            start = preview.sent[thinking]
            text = preview.take(thinking=thinking)
            for at in range(0, len(text), MAX_CHARACTERS):
                if self._count >= MAX_WAITING:
                    self.dropped += 1
                    continue
                delta = ModelDelta(
                    term=self._term_of(partition),
                    run_id=effect.run_id,
                    turn=effect.turn,
                    attempt=effect.attempt,
                    start=start + at,
                    text=preview.seal(storable(text[at : at + MAX_CHARACTERS])),
                    thinking=thinking,
                )
                self._waiting.setdefault(partition, []).append(ProducerRecord(key=key, value=self._codec.encode(delta)))
                self._count += 1


class Preview:
    """Characters of one call that were not sent yet."""

    def __init__(
        self,
        previews: Previews,
        effect: CallModel,
        seal: Callable[[str], str],
        mask: Callable[[str], tuple[str, str]],
    ) -> None:
        self.effect = effect
        self.seal = seal
        self._mask = mask
        self._has_begun = False
        self.sent = {True: 0, False: 0}
        self._gathered: dict[bool, list[str]] = {True: [], False: []}
        self._previews = previews

    def add(self, text: str, *, thinking: bool) -> None:
        if text:
            self._gathered[thinking].append(text)
            self._previews.said(self, is_first=not self._has_begun)
            self._has_begun = True

    def take(self, *, thinking: bool) -> str:
        """What gathered since the last time, masked; `sent` counts it."""
        pieces = self._gathered[thinking]
        if not pieces:
            return ""
        text, rest = self._mask("".join(pieces))
        pieces[:] = [rest] if rest else []
        self.sent[thinking] += len(text)
        return text

    def __enter__(self) -> "Preview":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._previews.over(self)
