"""Long prompts and scripts of definitions: in the blob store, with a reference in the events of runs.

A definition is the same for thousands of runs, so a process stores a text once and keeps it for the calls of its runs.
Dropping it costs a read of the store, or writing bytes that are there already.

Before: services/runtime/run stores the texts of a definition before a run begins,
services/runtime/models/model_calls.py loads them for each call. After: the blob store.
"""

from collections import OrderedDict
from typing import Any

from loomlog.connectors.protocols import Blobs
from loomlog.schemas.generated.values import AgentDefinition, ApprovalPolicy, BlobRef
from loomlog.schemas.records import replace
from loomlog.services.core.run.lifecycle.fork import LONG_TEXTS, is_long
from loomlog.services.runtime.content.payloads import make_storable

CACHE_BYTES = 16 * 1024 * 1024
"""Bytes of texts kept in memory: the largest prompts of a hundred definitions."""


class DefinitionTexts:
    """The long texts of definitions, as far as this process has stored or loaded them."""

    def __init__(self, blobs: Blobs, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._blobs = blobs
        self._cache_bytes = cache_bytes
        self._refs: OrderedDict[str, BlobRef] = OrderedDict()
        """By text, the least recently used first."""
        self._texts: dict[str, str] = {}
        """By SHA-256."""
        self._size_bytes = 0

    def unstored(self, definition: AgentDefinition) -> list[str]:
        """Return the long texts that are not known to be in the blob store."""
        texts = [getattr(definition, text) for text, _ in LONG_TEXTS]
        texts += [policy.text for policy in definition.approvals]
        return [text for text in texts if is_long(text) and text not in self._refs]

    async def store(self, texts: list[str]) -> None:
        """Store the texts. Raises ConnectorError."""
        for text in texts:
            self._keep(text, await self._blobs.put(make_storable(text).encode()))

    def with_references(self, definition: AgentDefinition) -> AgentDefinition:
        """Return the definition with references in place of the long texts that are stored."""
        for text, blob in LONG_TEXTS:
            value = getattr(definition, text)
            if value and is_long(value) and (ref := self._refs.get(value)) is not None:
                self._refs.move_to_end(value)
                changes: dict[str, Any] = {text: "", blob: ref}
                definition = replace(definition, **changes)
        if definition.approvals:
            definition = replace(definition, approvals=tuple(map(self._with_reference, definition.approvals)))
        return definition

    def _with_reference(self, policy: ApprovalPolicy) -> ApprovalPolicy:
        ref = self._refs.get(policy.text) if is_long(policy.text) else None
        return policy if ref is None else replace(policy, text="", text_blob=ref)

    async def load(self, ref: BlobRef) -> str:
        """Return a text as it is stored. Raises ConnectorError."""
        text = self._texts.get(ref.sha256)
        if text is None:
            text = (await self._blobs.get(ref)).decode()
            self._keep(text, ref)
        return text

    def _keep(self, text: str, ref: BlobRef) -> None:
        if text in self._refs:
            return  # two runs stored or loaded it at the same time
        self._refs[text], self._texts[ref.sha256] = ref, text
        self._size_bytes += ref.size_bytes
        while self._size_bytes > self._cache_bytes and len(self._refs) > 1:
            _, oldest = self._refs.popitem(last=False)
            self._texts.pop(oldest.sha256, None)
            self._size_bytes -= oldest.size_bytes
