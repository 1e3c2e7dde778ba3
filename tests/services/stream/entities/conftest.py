"""The fixtures of the read model of entities, for those that read it."""

from tests.projections.conftest import (
    connection,
    entity_builds,
    entity_prefix,
    entity_reader,
    options,
    prefix,
    project_entities,
)

__all__ = ["connection", "entity_builds", "entity_prefix", "entity_reader", "options", "prefix", "project_entities"]
