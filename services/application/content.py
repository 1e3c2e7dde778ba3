"""Encryption of user content at the edge of the application: encrypted on the way in, decrypted for permitted callers.

Everything behind it (commands, events, rows, the hub's buffer, stored frames and state files) contains encrypted
tokens. They are decrypted at the last moment, for one response and the tenant it belongs to, so that erasing a subject
only requires deleting its key. Without a key, content is in plaintext.

Before: a use case has found what its caller may see. After: a transport writes it. services/application/runs/start.py
and services/application/runs/control.py encrypt.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from msgspec import Struct, structs
from msgspec.structs import asdict

from loomlog.connectors.crypto.content_encryption import TOKEN_PREFIX, has_tokens, is_token
from loomlog.connectors.errors import ConnectorError
from loomlog.projections.frames.frame import Frame
from loomlog.projections.frames.frame_json import parse_input
from loomlog.projections.frames.masking import mask_frame
from loomlog.projections.interrupts import InterruptRow
from loomlog.projections.runs import RunRow
from loomlog.projections.transcript import TranscriptRow
from loomlog.schemas.records import replace
from loomlog.services.application.errors import RETRY_SOON_S, unavailable
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.encryption.subject_keys import ContentEncryptor, NewerInstallationKey, SubjectKeys

ValueT = TypeVar("ValueT")


def keys_unavailable(error: ConnectorError) -> Refused:
    """Return the refusal for a subject key that is unavailable: the log does not answer, or this process has an old
    key-encryption key.
    """
    if isinstance(error, NewerInstallationKey):
        return Refused("keys_unavailable", str(error), retry_after_s=RETRY_SOON_S)
    return unavailable("log", error)


class ContentAccess:
    """Encrypts and decrypts. `keys` None: content is not encrypted."""

    def __init__(self, keys: SubjectKeys | None = None) -> None:
        self.keys = keys

    async def encryptor_for(self, tenant: str, subject: str) -> ContentEncryptor | None:
        """Return the encryptor of a user of the tenant; None when content is not encrypted. Raises Refused."""
        if self.keys is None:
            return None
        try:
            sealer = await self.keys.cipher_for(tenant, subject)
        except ConnectorError as error:
            raise keys_unavailable(error) from error
        return lambda text, untrusted: sealer.untrusted_text(text) if untrusted else sealer.text(text)

    async def keyed_digest(self, tenant: str, subject: str, digest: str) -> str:
        """Return a keyed digest of content, which cannot be compared with a guess. Raises Refused."""
        if self.keys is None or not digest:
            return digest
        try:
            return (await self.keys.cipher_for(tenant, subject)).key.digest(digest)
        except ConnectorError as error:
            raise keys_unavailable(error) from error

    async def wait_for_keys(self, value: Any) -> None:
        """Wait until the keys used in a value are up to date. Raises Refused."""
        if self.keys is None:
            return
        try:
            await self.keys.wait_for_keys(*_strings(value))
        except ConnectorError as error:
            raise keys_unavailable(error) from error

    async def decrypt(self, value: ValueT, tenant: str) -> ValueT:
        """Return the value with all texts decrypted; its hashes remain those of the stored form.
        Raises Refused.
        """
        if self.keys is None:
            return value
        await self.wait_for_keys(value)
        opened: ValueT = self._decrypt_value(value, tenant)
        return opened

    async def decrypt_rows(self, rows: Sequence[RunRow]) -> tuple[RunRow, ...]:
        """Decrypt runs for display. Raises Refused."""
        if self.keys is None:
            return tuple(rows)
        await self.wait_for_keys(
            [text for row in rows for text in (row.error, row.metadata, row.parent_context, row.result)]
        )
        return tuple([self._decrypt_run_row(row) for row in rows])

    async def decrypt_row(self, row: RunRow) -> RunRow:
        """Decrypt one run, as `decrypt_rows`."""
        return row if self.keys is None else (await self.decrypt_rows([row]))[0]

    async def decrypt_transcript(self, rows: Sequence[TranscriptRow]) -> tuple[TranscriptRow, ...]:
        """Decrypt stored frames for display. Raises Refused."""
        if self.keys is None:
            return tuple(rows)
        await self.wait_for_keys([text for row in rows for text in (row.event, row.payload or "")])
        return tuple(
            [
                row._replace(
                    event=self._decrypt_stored_frame(row.event, row.tenant),
                    payload=self._decrypt_json(row.payload, row.tenant),
                )
                for row in rows
            ]
        )

    async def decrypt_interrupts(self, rows: Sequence[InterruptRow]) -> tuple[InterruptRow, ...]:
        """Decrypt interruptions for display. Raises Refused."""
        if self.keys is None:
            return tuple(rows)
        await self.wait_for_keys(
            [
                text
                for row in rows
                for text in (row.question, row.options, row.context, row.answer, row.terms, row.votes)
            ]
        )
        return tuple([self._decrypt_interrupt_row(row) for row in rows])

    def decrypt_text(self, text: str, tenant: str) -> str:
        """Decrypt a text; call `wait_for_keys` first."""
        return text if self.keys is None else self.keys.decrypt(text, tenant)

    def decrypt_frame(self, frame: Frame, tenant: str) -> Frame:
        """Decrypt a live frame; call `wait_for_keys` first."""
        return replace(frame, event=self._decrypt_event(frame.event, tenant))

    def _decrypt_run_row(self, row: RunRow) -> RunRow:
        return row._replace(
            error=self.decrypt_text(row.error, row.tenant),
            metadata=self._decrypt_json(row.metadata, row.tenant),
            parent_context=self._decrypt_json(row.parent_context, row.tenant),
            result=self.decrypt_text(row.result, row.tenant),
        )

    def _decrypt_interrupt_row(self, row: InterruptRow) -> InterruptRow:
        return row._replace(
            question=self._decrypt_value(row.question, row.tenant),
            options=self._decrypt_json(row.options, row.tenant),
            context=self._decrypt_value(row.context, row.tenant),
            answer=self._decrypt_value(row.answer, row.tenant),
            terms=self._decrypt_json(row.terms, row.tenant),
            votes=self._decrypt_json(row.votes, row.tenant),
        )

    def _decrypt_stored_frame(self, event: str, tenant: str) -> str:
        """Decrypt a stored frame, and redact what could not be redacted in encrypted form."""
        if TOKEN_PREFIX not in event:
            return event
        return orjson.dumps(mask_frame(self._decrypt_event(orjson.loads(event), tenant))).decode()

    def _decrypt_json(self, text: Any, tenant: str) -> Any:
        if not isinstance(text, str) or TOKEN_PREFIX not in text:
            return text
        value = orjson.loads(text)
        return orjson.dumps(
            self._decrypt_event(value, tenant) if isinstance(value, dict) else self._decrypt_value(value, tenant)
        ).decode()

    def _decrypt_event(self, event: Mapping[str, Any], tenant: str) -> dict[str, Any]:
        opened: dict[str, Any] = self._decrypt_value(dict(event), tenant)
        use = event.get("tool_use")
        if isinstance(use, dict) and isinstance(sealed := use.get("input"), str) and is_token(sealed, untrusted=False):
            # The frame was made from the token; in plaintext it would have shown the arguments as JSON.
            opened["tool_use"]["input"] = parse_input(opened["tool_use"]["input"])
        acted = event.get("hook_acted")
        if (
            isinstance(acted, dict)
            and isinstance(input_text := acted.get("input"), str)
            and is_token(input_text, untrusted=False)
        ):
            opened["hook_acted"]["input"] = parse_input(opened["hook_acted"]["input"])
        if isinstance(sealed := event.get("result"), str) and is_token(sealed, untrusted=False):
            opened["result"] = parse_input(opened["result"])
        return opened

    def _decrypt_value(self, value: Any, tenant: str) -> Any:
        """Return the same shape with texts decrypted; values without tokens are the same object."""
        if isinstance(value, str):
            return self.decrypt_text(value, tenant) if has_tokens(value) else value
        if isinstance(value, list):
            return [self._decrypt_value(item, tenant) for item in value]
        if isinstance(value, tuple):
            items = [self._decrypt_value(item, tenant) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if isinstance(value, Mapping):
            return {name: self._decrypt_value(item, tenant) for name, item in value.items()}
        if isinstance(value, Struct):
            fields = asdict(value)
            changes = {name: now for name, was in fields.items() if (now := self._decrypt_value(was, tenant)) != was}
            return structs.replace(value, **changes) if changes else value
        return value


PLAINTEXT = ContentAccess()
"""Content is not encrypted."""


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, Struct):
        for item in asdict(value).values():
            yield from _strings(item)
