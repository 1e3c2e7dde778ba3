"""Configuration of the embedder as values; the files they come from are not known here.

Before: connectors/configuration, catalog.py. After: nothing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderOptions:
    """The block `memory.embedder`. Empty texts and `dimensions` 0 stand for the provider's defaults."""

    provider: str
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    """Name of the variable with the key, never the key."""
    dimensions: int = 0
    timeout_ms: int = 30_000
    """Milliseconds of one request."""
    batch_size: int = 100
    """Texts of one request."""
