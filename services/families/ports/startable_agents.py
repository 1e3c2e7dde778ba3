"""Which agents can be started.

Before: services/runtime/models/definition_resolver.py provides it. After: services/families/consolidation/services.py.
"""

from typing import Protocol


class StartableAgents(Protocol):
    """Tells whether a tenant has an agent, on a model that can be called now."""

    def __call__(self, agent: str, tenant: str, /) -> bool: ...
