"""Encryption of the user content of entities: the fields a family declares, before it decides.

A text that is a token of its subject already stays as it is: its sender has encrypted it, because the commands topic is
a log too. So does one of any subject of the tenant in a command of the outbox, which copies texts of events.

Before: client.py sends a command, handler.py has one. After: the family decides; its events and states hold ciphertext
where they copy it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import replace
from loomlog.services.core.families import Family
from loomlog.services.stream.partition.lookups import continue_in_task


class Cipher(Protocol):
    """Encrypts the texts of one subject."""

    def text(self, text: str) -> str: ...


IsEncrypted = Callable[[str, str, str | None], Awaitable[bool]]
"""Whether a text is a token of a tenant, and of a subject if one is named."""


async def _never(text: str, tenant: str, subject: str | None) -> bool:
    return False


def encrypt_content(
    cipher_for: Callable[[str, str], Awaitable[Cipher]], is_encrypted: IsEncrypted = _never
) -> Callable[[Family[Any, Any, Any], Any], Awaitable[Any]]:
    """Return the function that encrypts the content of a command. `cipher_for` takes tenant and subject."""

    async def encrypt(family: Family[Any, Any, Any], command: Any) -> Any:
        fields = [name for name in family.content.fields.get(type(command), ()) if getattr(command, name)]
        if not fields:
            return command
        await continue_in_task()
        envelope = command.envelope
        tenant, subject = envelope.tenant, family.content.subject(command)
        cipher = await cipher_for(tenant, subject)
        owner = None if is_from_outbox(envelope) else subject

        async def token(text: str) -> str:
            return text if await is_encrypted(text, tenant, owner) else cipher.text(text)

        changed: dict[str, Any] = {}
        for name in fields:
            value = getattr(command, name)
            if isinstance(value, str):
                changed[name] = await token(value)
            elif isinstance(value, tuple):
                changed[name] = tuple([await token(one) for one in value])
            else:
                changed[name] = {key: await token(one) for key, one in value.items()}
        return replace(command, **changed)

    return encrypt


def is_from_outbox(envelope: CommandEnvelope) -> bool:
    """Whether a command was sent by an aggregate: its subject is one, and its id continues the subject's."""
    return bool(envelope.subject) and envelope.command_id.rpartition(":")[0] == envelope.subject
