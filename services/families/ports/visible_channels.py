"""The channels that runs are told of.

Before: services/runtime/process.py gives them to tools. After: services/families/channel/declarations.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class VisibleChannels(Protocol):
    """The channels that a tenant sees."""

    def rows(self, tenant: str, prefix: str) -> Sequence[Mapping[str, Any]]:
        """Return what runs see of the channels whose names begin with the prefix, by name."""
        ...
