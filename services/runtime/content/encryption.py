"""Encryption of user content on its way in and out of a runtime. It is in plaintext here only while a call is made.

    in    commands of microservices, before they are decided; replies of models and results of tools, before they
          become commands of the core; results that the core words itself, before they are appended
    out   the conversation sent to a model, the arguments and the metadata passed to a tool

Without a key the content stays as it is, and each direction costs one `if`.

Before: services/stream/encryption/subject_keys.py. After: services/runtime/run/command_handler.py,
services/runtime/models/model_calls.py, services/runtime/tools/tool_calls.py, services/runtime/models/previews.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loomlog.connectors.crypto.content_encryption import has_tokens, key_ids_in
from loomlog.schemas.conversation import Block, ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from loomlog.schemas.generated.run_commands import Command, ForkRun, PostInput, ResolveCall, StartRun
from loomlog.schemas.generated.run_events import ToolReturned
from loomlog.schemas.records import replace
from loomlog.services.stream.encryption.content_fields import encrypt_command, texts_of_command
from loomlog.services.stream.encryption.subject_keys import ContentCipher, SubjectKeys
from loomlog.services.stream.partition.lookups import continue_in_task


class NoCipher:
    """Counterpart of ContentCipher that leaves everything in plaintext."""

    def text(self, text: str) -> str:
        return text

    def untrusted_text(self, text: str) -> str:
        return text

    def short_text(self, text: str) -> str:
        return text


NO_CIPHER = NoCipher()


class ContentEncryption:
    """Encrypts and decrypts the content of runs; with `keys` None nothing is encrypted."""

    def __init__(self, keys: SubjectKeys | None = None) -> None:
        self._keys = keys

    @property
    def is_enabled(self) -> bool:
        return self._keys is not None

    def on_erased(self, call: Callable[[str, str], None]) -> None:
        """Have a function called with tenant and subject of each erasure, for what is kept in plaintext."""
        if self._keys is not None:
            self._keys.on_erased.append(call)

    async def cipher(self, tenant: str, subject: str) -> ContentCipher | NoCipher:
        """Return the cipher of a subject. Raises Transient."""
        return NO_CIPHER if self._keys is None else await self._keys.cipher_for(tenant, subject)

    async def is_encrypted(self, text: str, tenant: str, subject: str | None, *, untrusted: bool = False) -> bool:
        """As SubjectKeys.is_encrypted; False without keys."""
        return self._keys is not None and await self._keys.is_encrypted(text, tenant, subject, untrusted=untrusted)

    def describe_error(self, error: Exception) -> str:
        """Return the error text for the run; with encryption only the type, since a text may quote the call's input."""
        return type(error).__name__ if self.is_enabled else f"{type(error).__name__}: {error}"

    async def encrypt_command(self, command: Command, subject: str) -> Command:
        """The command with its content encrypted. Waits when the subject has no key yet, or one not seen here yet.

        A start that was erased is as it is: it will be refused, and must not give its subject a fresh key.
        """
        keys = self._keys
        if keys is None or not isinstance(command, StartRun | ForkRun | PostInput | ResolveCall):
            return command
        tenant = command.envelope.tenant
        named = _referenced_key_ids(command)
        if isinstance(command, StartRun) and _has_erased_key(keys, named, tenant):
            return command
        sealer = keys.cached(tenant, subject)
        if sealer is None or not all(map(keys.table.is_known, named)):
            await continue_in_task()
            await keys.wait_for_keys(*texts_of_command(command))
            if isinstance(command, StartRun) and self.is_erased(command):
                return command
            sealer = await keys.cipher_for(tenant, subject)
        return encrypt_command(command, keys.decrypt_if_encrypted(tenant, subject, sealer))

    def is_erased(self, command: Command) -> bool:
        """Return whether any content of the command was erased after it was sent, so that it is no longer readable."""
        keys = self._keys
        return keys is not None and _has_erased_key(keys, _referenced_key_ids(command), command.envelope.tenant)

    def encrypt_results(self, events: Sequence[Any], tenant: str, subject: str) -> Sequence[Any]:
        """Return the events with the results that the core words itself encrypted like those of tools.

        They contain nothing personal, but in plaintext that could not be verified later. Unchanged while the subject
        has no key.
        """
        if self._keys is None or not any(map(_is_plaintext_result, events)):
            return events
        sealer = self._keys.cached(tenant, subject)
        if sealer is None:
            return events
        return [
            replace(event, text=sealer.text(event.text)) if _is_plaintext_result(event) else event for event in events
        ]

    async def decrypt_text(self, text: str, tenant: str) -> str:
        """Return the text in plaintext, for a tool. Raises Transient; Permanent when it cannot be decrypted here."""
        if self._keys is None:
            return text
        await self._keys.wait_for_keys(text)
        return self._keys.decrypt_for_model(text, tenant)

    async def decrypt_texts(self, texts: tuple[str, ...], tenant: str) -> tuple[str, ...]:
        """Return the system texts in plaintext. Raises as `decrypt_text`."""
        if self._keys is None:
            return texts
        return tuple([await self.decrypt_text(text, tenant) for text in texts])

    async def decrypt_values(self, values: Mapping[str, str], tenant: str) -> Mapping[str, str]:
        """The values in clear, by their names. Raises as `decrypt_text`."""
        if self._keys is None:
            return values
        return {name: await self.decrypt_text(text, tenant) for name, text in values.items()}

    async def decrypt_json(self, value: Any, tenant: str) -> Any:
        """Return a JSON value with its texts in plaintext. Raises as `decrypt_text`."""
        if self._keys is None:
            return value
        match value:
            case str():
                return await self.decrypt_text(value, tenant)
            case list():
                return [await self.decrypt_json(item, tenant) for item in value]
            case dict():
                return {name: await self.decrypt_json(item, tenant) for name, item in value.items()}
            case _:
                return value

    async def decrypt_messages(self, messages: tuple[Message, ...], tenant: str) -> tuple[Message, ...]:
        """Return the conversation in plaintext, for a model. Raises as `decrypt_text`."""
        if self._keys is None:
            return messages
        return tuple([await self._decrypt_message(message, tenant) for message in messages])

    async def _decrypt_message(self, message: Message, tenant: str) -> Message:
        return replace(
            message,
            blocks=tuple([await self._decrypt_block(block, tenant) for block in message.blocks]),
            reasoning=await self.decrypt_text(message.reasoning, tenant),
            reasoning_signature=await self.decrypt_text(message.reasoning_signature, tenant),
        )

    async def _decrypt_block(self, block: Block, tenant: str) -> Block:
        match block:
            case TextBlock() | ToolResultBlock():
                return replace(block, text=await self.decrypt_text(block.text, tenant))
            case ImageBlock():
                return replace(block, data=await self.decrypt_text(block.data, tenant))
            case ToolUseBlock():
                return replace(block, input=await self.decrypt_text(block.input, tenant))


def _referenced_key_ids(command: Command) -> set[str]:
    return {key_id for text in texts_of_command(command) for key_id in key_ids_in(text)}


def _has_erased_key(keys: SubjectKeys, key_ids: set[str], tenant: str) -> bool:
    return any(keys.table.is_erased(key_id, tenant) for key_id in key_ids)


def _is_plaintext_result(event: Any) -> bool:
    """Return whether the event is a result without a token; text around a token is only ids and names."""
    return type(event) is ToolReturned and bool(event.text) and not has_tokens(event.text)


PLAINTEXT = ContentEncryption()
"""The encryption that leaves content in plaintext."""
