"""State of the embedder of a process.

Before: services/application/memory_changes.py. After: services/families/memory/services.py.
"""

from collections.abc import Mapping
from typing import Any, Protocol


class EmbedderState(Protocol):
    """Returns `state`, and how often the embedder answered and failed: no texts, no addresses."""

    def __call__(self) -> Mapping[str, Any]: ...
