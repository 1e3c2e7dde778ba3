"""Where the dialogue goes that a compaction leaves out.

Before: services/runtime/models/summary_calls.py. After: services/families/consolidation/compactions.py.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.values import MemoryBanked
from loomlog.services.core.run.state import Compacting


class DialogueKeeper(Protocol):
    """Keeps dialogue that a run drops."""

    async def bank(
        self, state: Compacting, omitted: Sequence[Message], tenant: str, mask: Callable[[str], str]
    ) -> MemoryBanked | None:
        """Keep the dialogue of messages, which are in plaintext; None when nothing is kept of such a run.

        An attempt after the first one gives what the first gave. A failure is in what is returned.
        """
        ...
