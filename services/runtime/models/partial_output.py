"""Partial output of model calls in progress, for the case that one of them is stopped.

A preview is not in the log, and a turn that is stopped has no reply. So its owner is asked for the text of the call it
is about to stop, and that goes into TurnCancelled. Reasoning is not kept: without its signature no provider takes it.

Before: model_calls.py adds text as it streams. After: services/runtime/run/command_handler.py puts it into the command.
"""

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.process.logs import about
from loomlog.connectors.protocols import Blobs
from loomlog.schemas.generated.values import BlobRef
from loomlog.services.core.run.react import CallModel
from loomlog.services.runtime.content.encryption import NoCipher
from loomlog.services.runtime.content.payloads import INLINE_TEXT_BYTES, inline_or_blob, make_storable
from loomlog.services.stream.encryption.subject_keys import ContentCipher

log = logging.getLogger(__name__)

TRUNCATED_CHARACTERS = INLINE_TEXT_BYTES // 8
"""Characters kept of a long text when the blob store is unavailable: encrypted, in any alphabet, it fits inline."""


class PartialOutputs:
    """The calls in progress, by run, turn and attempt. `mask` hides secrets."""

    def __init__(self, blobs: Blobs, *, mask: Callable[[str], str] = str) -> None:
        self._blobs = blobs
        self._mask = mask
        self._calls: dict[tuple[str, int, int], PartialOutput] = {}

    def track(self, effect: CallModel, cipher: ContentCipher | NoCipher) -> "PartialOutput":
        """Track one call, as a context manager, while it is in progress."""
        return PartialOutput(self._calls, (effect.run_id, effect.turn, effect.attempt), cipher)

    async def read(self, run_id: str, turn: int, attempt: int) -> tuple[str, BlobRef | None]:
        """Return the text for an event; empty when the call has none yet, or is not in progress here."""
        saying = self._calls.get((run_id, turn, attempt))
        if saying is None:
            return "", None
        text = make_storable(self._mask("".join(saying.pieces)))
        try:
            return await inline_or_blob(saying.cipher.text(text), self._blobs)
        except ConnectorError as error:
            log.warning("%s: only the beginning of a stopped turn is kept: %s", run_id, error, extra=about(run_id))
            return saying.cipher.text(text[:TRUNCATED_CHARACTERS]), None


class PartialOutput:
    """The text that one call has produced so far."""

    def __init__(
        self,
        calls: "dict[tuple[str, int, int], PartialOutput]",
        key: tuple[str, int, int],
        cipher: ContentCipher | NoCipher,
    ) -> None:
        self.pieces: list[str] = []
        self.cipher = cipher
        self._calls = calls
        self._key = key

    def __enter__(self) -> Self:
        self._calls[self._key] = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The same attempt may be in progress again after the partition was lost and taken over again.
        if self._calls.get(self._key) is self:
            del self._calls[self._key]
