"""The fixtures of the projections, for the commands that read them."""

from tests.projections.conftest import builds, connection, options, prefix, project, reader
from tests.projections.entity_fixtures import entity_builds, entity_prefix, entity_reader, project_entities

__all__ = [
    "builds",
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
