"""The search index of memory in the projector's process: the indexer with what it reads content with.

The indexer decrypts, so it needs the data keys of content and follows their topic. While the broker does not answer it
waits; a process without the right key of the installation has no index, and says so once.

Before: main.py. After: memory_indexer.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys, is_token
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import KafkaAppender, KafkaRanges, open_tail
from loomlog.projections.memory_index.entries import Decrypt
from loomlog.projections.memory_index.vectors import Embedder
from loomlog.schemas.codec import Codec
from loomlog.services.core.refusals import StartProblem
from loomlog.services.projector.memory_indexer import MemoryIndexer, readable_by
from loomlog.services.projector.settings import ProjectorSettings
from loomlog.services.stream.encryption.subject_keys import SubjectKeys, open_subject_keys
from loomlog.services.stream.global_tables.global_table import PARTITION, GlobalTables

log = logging.getLogger("loomlog.projector")

KEYS_TOPIC = "loom.subject.keys"
RETRY_S = 1.0


class MemoryIndexing:
    """The loop."""

    def __init__(
        self,
        settings: ProjectorSettings,
        make_codec: Callable[[], Awaitable[Codec]],
        *,
        wrapping: KeyEncryptionKeys | None,
        embedder: Embedder | None,
        clock_ms: Callable[[], int],
    ) -> None:
        """`wrapping` None: content is not encrypted."""
        self._settings = settings
        self._make_codec = make_codec
        self._wrapping = wrapping
        self._embedder = embedder
        self._clock_ms = clock_ms

    async def run(self, stop: asyncio.Event) -> None:
        """Index until `stop`."""
        while not stop.is_set():
            try:
                async with AsyncExitStack() as stack:
                    await self._index(stack, stop)
                return
            except Transient as error:
                log.warning("the search index of memory waits: %s", error)
            except StartProblem as error:
                log.error("memory is not indexed for search: %s", error)
                return
            try:
                async with asyncio.timeout(RETRY_S):
                    await stop.wait()
            except TimeoutError:
                continue

    async def _index(self, stack: AsyncExitStack, stop: asyncio.Event) -> None:
        codec = await self._make_codec()
        ranges = KafkaRanges(self._settings.kafka)
        await ranges.start()
        stack.push_async_callback(ranges.close)
        keys, tables = await self._open_keys(stack, codec, ranges)
        decrypt = unencrypted(ranges.end_offset) if keys is None else readable_by(keys)
        indexer = MemoryIndexer(self._settings, codec=codec, decrypt=decrypt, embedder=self._embedder)
        try:
            async with asyncio.TaskGroup() as tasks:
                followers = [tasks.create_task(follow()) for follow in tables.followers.values()]
                await indexer.run(stop)
                for follower in followers:
                    follower.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    async def _open_keys(
        self, stack: AsyncExitStack, codec: Codec, ranges: KafkaRanges
    ) -> tuple[SubjectKeys | None, GlobalTables]:
        kafka = self._settings.kafka
        appender = KafkaAppender(kafka)
        await appender.start()
        stack.push_async_callback(appender.close)
        keys = await open_subject_keys(
            self._wrapping, codec, appender, ranges, topic=KEYS_TOPIC, clock_ms=self._clock_ms
        )
        tables = GlobalTables(stack, ranges, partial(open_tail, kafka))
        if keys is not None:
            await tables.open(keys.global_table)
        return keys, tables


def unencrypted(end_offset: Callable[[str, int], Awaitable[int]]) -> Decrypt:
    """Return the function that reads texts of an installation without encryption.

    It raises StartProblem when other processes encrypt: a text is indexed once, so it waits for the key.
    """

    async def read(text: str, tenant: str) -> str | None:
        if is_token(text) and await end_offset(KEYS_TOPIC, PARTITION):
            raise StartProblem(
                "LOOMLOG_ENCRYPTION_KEY is not set, and content of memory is encrypted: set it and restart the "
                "projector"
            )
        return text

    return read
