"""The fixtures of the projections, for the commands that read them."""

from tests.projections.conftest import builds, connection, options, prefix, project, reader

__all__ = ["builds", "connection", "options", "prefix", "project", "reader"]
