"""The fixtures of the projections, for the process that writes them."""

from tests.projections.conftest import builds, connecting, connection, options, prefix, project, reader
from tests.projections.entity_fixtures import entity_builds, entity_prefix, entity_reader, project_entities

__all__ = [
    "builds",
    "connecting",
    "connection",
    "entity_builds",
    "entity_prefix",
    "entity_reader",
    "options",
    "prefix",
    "project",
    "project_entities",
    "reader",
]
