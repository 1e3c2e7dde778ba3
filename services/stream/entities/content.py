"""Encryption of the user content of entities: what the schemas class so, before a family decides.

A text that is a token of its subject already stays as it is: its sender has encrypted it, because the commands topic is
a log too. So does one of any subject of the tenant in a command of the outbox, which copies texts of events.

Before: client.py sends a command, handler.py has one. After: the family decides; its events and states hold ciphertext
where they copy it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import Family
from loomlog.services.stream.encryption.content_fields import content_parts, has_content
from loomlog.services.stream.encryption.content_fields import encrypt_content as encrypt_record
from loomlog.services.stream.partition.lookups import continue_in_task


class Cipher(Protocol):
    """Encrypts the texts of one subject."""

    def text(self, text: str) -> str: ...

    def untrusted_text(self, text: str) -> str: ...


class IsEncrypted(Protocol):
    """Whether a text is one token of a tenant, of a subject if one is named, and of that form."""

    async def __call__(self, text: str, tenant: str, subject: str | None, *, untrusted: bool = False) -> bool: ...


async def _never(text: str, tenant: str, subject: str | None, *, untrusted: bool = False) -> bool:
    return False


def encrypt_content(
    cipher_for: Callable[[str, str], Awaitable[Cipher]], is_encrypted: IsEncrypted = _never
) -> Callable[[Family[Any, Any, Any], Any], Awaitable[Any]]:
    """Return the function that encrypts the content of a command. `cipher_for` takes tenant and subject."""

    async def encrypt(family: Family[Any, Any, Any], command: Any) -> Any:
        if not has_content(type(command)) or (subject := family.content_subject(command)) is None:
            return command
        if not (parts := content_parts(command)):
            return command
        await continue_in_task()
        tenant = command.envelope.tenant
        cipher = await cipher_for(tenant, subject)
        owner = None if is_from_outbox(command.envelope) else subject
        tokens = {part for part in parts if await is_encrypted(part[0], tenant, owner, untrusted=part[1])}

        def seal(text: str, untrusted: bool) -> str:
            if (text, untrusted) in tokens:
                return text
            return cipher.untrusted_text(text) if untrusted else cipher.text(text)

        return encrypt_record(command, seal)

    return encrypt


def is_from_outbox(envelope: CommandEnvelope) -> bool:
    """Whether a command was sent by an aggregate: its subject is one, and its id continues the subject's."""
    return bool(envelope.subject) and envelope.command_id.rpartition(":")[0] == envelope.subject
