"""The fixtures of the projections, for the process that writes them."""

from tests.projections.conftest import builds, connecting, connection, options, prefix, project, reader

__all__ = ["builds", "connecting", "connection", "options", "prefix", "project", "reader"]
