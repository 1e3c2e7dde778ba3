"""Encryption of the user content of entities: the fields a family declares, before it decides.

Before: handler.py has a command. After: the family decides; its events and states hold ciphertext where they copy it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from loomlog.schemas.records import replace
from loomlog.services.core.families import Family
from loomlog.services.stream.partition.lookups import continue_in_task


class Cipher(Protocol):
    """Encrypts the texts of one subject."""

    def text(self, text: str) -> str: ...


def encrypt_content(
    cipher_for: Callable[[str, str], Awaitable[Cipher]],
) -> Callable[[Family[Any, Any, Any], Any], Awaitable[Any]]:
    """Return the function that encrypts the content of a command. `cipher_for` takes tenant and subject."""

    async def encrypt(family: Family[Any, Any, Any], command: Any) -> Any:
        fields = [name for name in family.content.fields.get(type(command), ()) if getattr(command, name)]
        if not fields:
            return command
        await continue_in_task()
        cipher = await cipher_for(command.envelope.tenant, family.content.subject(command))
        changed: dict[str, Any] = {}
        for name in fields:
            value = getattr(command, name)
            if isinstance(value, str):
                changed[name] = cipher.text(value)
            elif isinstance(value, tuple):
                changed[name] = tuple(cipher.text(one) for one in value)
            else:
                changed[name] = {key: cipher.text(one) for key, one in value.items()}
        return replace(command, **changed)

    return encrypt
