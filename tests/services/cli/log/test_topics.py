import json

import pytest
from typer.testing import CliRunner

from loomlog.redpanda.topics import TopicChange
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.log import topics
from loomlog.services.cli.main import app

CREATE = TopicChange(kind="create", topic="loom.run.events", text="make it with 4 partitions", settings={})
IGNORED = TopicChange(kind="ignored", topic="loom.run.deltas", text="this broker does not report x=1", settings={})


@pytest.fixture
def apply(monkeypatch, tmp_path):
    def run(changes: list[TopicChange] | Exception, *arguments: str):
        async def made(bootstrap, *, replicas, environ, check):
            assert (bootstrap, replicas, check) == ("k.test:9092", 1, "--check" in arguments)
            if isinstance(changes, Exception):
                raise changes
            return changes

        monkeypatch.setattr(topics, "apply_topics", made)
        environ = {"LOOMLOG_HOME": str(tmp_path), "LOOMLOG_KAFKA": "k.test:9092"}
        return CliRunner().invoke(app, ["topics", "apply", *arguments], env=environ)

    return run


def test_topics_that_are_as_they_should_be_are_0(apply):
    result = apply([IGNORED])
    assert result.exit_code == 0
    assert "as they should be" in result.stdout
    assert apply([], "--check").exit_code == 0


def test_what_was_changed_is_told(apply):
    result = apply([CREATE])
    assert result.exit_code == 0
    assert "create  loom.run.events  make it with 4 partitions" in result.stdout


def test_what_would_be_changed_is_1(apply):
    assert apply([CREATE], "--check").exit_code == 1


def test_what_must_not_be_repaired_here_is_a_sentence(apply):
    result = apply(CliError("Nothing was changed at k.test:9092. x."))
    assert (result.exit_code, result.stderr) == (1, "Nothing was changed at k.test:9092. x.\n")


def test_as_json_the_changes_are_one_document(apply):
    found = json.loads(apply([CREATE], "--check", "--json").stdout)
    assert (found["applied"], [change["kind"] for change in found["changes"]]) == (False, ["create"])
