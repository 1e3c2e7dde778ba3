"""Previews of model turns while they stream, on their own topic. Never truth, and never waited for.

Characters are gathered for a moment before they are sent, so that a stream of tokens is a few records a second, and a
turn that is done before the first group would leave sends nothing: its text is in ModelReplied anyway.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from types import TracebackType

from connectors.errors import UnknownOutcome
from connectors.partitioner import partition_of
from connectors.protocols import LogAppender, Outgoing
from schemas.codec import Codec
from schemas.ids import partition_key
from schemas.stream_records import ModelDelta
from services.core.run.react import CallModel
from services.runtime.payloads import storable
from services.stream.snapshot import batches

log = logging.getLogger(__name__)

GROUP_S = 0.04
"""How long characters gather: below what a person sees as a stutter, 25 records a second for each stream."""
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
        self._open: set[Preview] = set()
        self._waiting: dict[int, list[Outgoing]] = {}
        self._count = 0

    def of(self, effect: CallModel, seal: Callable[[str], str] = str) -> "Preview":
        """The preview of one model call, as a context manager; `seal` encrypts what goes out."""
        return Preview(self, effect, seal)

    async def run(self) -> None:
        """Sends groups until cancelled."""
        while True:
            await asyncio.sleep(GROUP_S)
            now = time.monotonic()
            for preview in list(self._open):
                if now - preview.began >= GROUP_S:
                    self._gather(preview)
            waiting, self._waiting, self._count = self._waiting, {}, 0
            for partition, records in waiting.items():
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
                self._waiting.setdefault(partition, []).append(Outgoing(key=key, value=self._codec.encode(delta)))
                self._count += 1


class Preview:
    """Characters of one call that were not sent yet."""

    def __init__(self, previews: Previews, effect: CallModel, seal: Callable[[str], str]) -> None:
        self.effect = effect
        self.seal = seal
        self.began = time.monotonic()
        self.sent = {True: 0, False: 0}
        self._gathered: dict[bool, list[str]] = {True: [], False: []}
        self._previews = previews

    def add(self, text: str, *, thinking: bool) -> None:
        self._gathered[thinking].append(text)

    def take(self, *, thinking: bool) -> str:
        """What gathered since the last time; `sent` counts it."""
        pieces = self._gathered[thinking]
        if not pieces:
            return ""
        text = "".join(pieces)
        pieces.clear()
        self.sent[thinking] += len(text)
        return text

    def __enter__(self) -> "Preview":
        self._previews._open.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._previews._open.discard(self)
