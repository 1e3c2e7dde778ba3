"""An API for commands, and the fixtures of the projections, for the commands that read them."""

import pytest

from tests.projections.conftest import builds, connection, options, prefix, project, reader
from tests.projections.entity_fixtures import entity_builds, entity_prefix, entity_reader, project_entities
from tests.services.cli.fake_api import FakeApi, let_commands_use

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


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """An API that all commands use, whose tables are as wide as they need."""
    made = FakeApi()
    let_commands_use(monkeypatch, made.client)
    monkeypatch.setenv("COLUMNS", "200")
    return made
