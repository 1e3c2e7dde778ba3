"""The topics of an installation of its own, for tests that start a runtime over the broker all tests share."""

from collections.abc import Mapping
from typing import Any

from loomlog.services.runtime import topics
from loomlog.services.stream.family import Topics


def names_under(prefix: str) -> Mapping[str, Any]:
    """Every name of services.runtime.topics, with the prefix instead of `loom`; a new one cannot be forgotten."""
    result: dict[str, Any] = {
        "GROUP": prefix,
        "TOPICS": Topics.of("run", prefix),
        "ENTITY_TOPICS": Topics.of("entity", prefix),
        "CHANNEL_TOPICS": Topics.of("channel", prefix),
    }
    for name, value in vars(topics).items():
        if name.endswith("_TOPIC"):
            result[name] = f"{prefix}.{value.removeprefix('loom.')}"
    return result
