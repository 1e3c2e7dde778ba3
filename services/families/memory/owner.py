"""How memory asks the owner of an aggregate: the same for entries, databases and consolidation targets.

Before: store.py, services/families/database/operations.py, services/families/consolidation/operations.py. After:
services/stream/entities/client.py.
"""

from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.services.families.memory.author import MemoryRefused, MemoryUnavailable
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandUnanswered, EntityCommands


async def ask_owner(
    commands: EntityCommands, command: Any, *, wait_s: float, invalid_code: str = "bad_request"
) -> Answer:
    """Return the answer of the owner, which may be a refusal.

    Raises MemoryRefused(invalid_code) for a command that cannot be; MemoryUnavailable, with an unknown outcome.
    """
    try:
        return await commands.ask(command, wait_s=wait_s)
    except CommandInvalid as error:
        raise MemoryRefused(invalid_code, str(error)) from error
    except (CommandUnanswered, Transient) as error:
        raise MemoryUnavailable(str(error), is_unknown=True) from error


async def plaintext(value: Any, tenant: str) -> Any:
    """Return the value as it is: content is not encrypted."""
    return value


async def plain_text(text: str, tenant: str, subject: str) -> str:
    """Return the text as it is: content is not encrypted."""
    return text
