from loomlog.services.cli.doctor import entity_checks
from loomlog.services.cli.doctor.entity_checks import check_entities, recovery_checks
from loomlog.services.cli.errors import Unreachable
from loomlog.services.core.check import FAIL, OK, WARN
from tests.services.cli.places import settings_in
from tests.services.runtime.telemetry.test_exposition import exposition_of
from tests.services.stream.entities.world import EntityWorld

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"


async def test_a_checkpoint_that_cannot_be_made_is_named_with_its_reason(monkeypatch):
    monkeypatch.setattr("loomlog.services.stream.entities.checkpoints.PROJECTOR_WAIT_S", 0)
    world = EntityWorld(partitions=1)
    try:
        process = await world.process()
        answer = await world.ask(process, world.increment("hits", "c1"))
        page = exposition_of(process)
        before = recovery_checks([HEAD + page()])
        world.rows.behind = {0: answer.offset}
        topic_set = process.entities.topic_set
        await topic_set.checkpoints.make(topic_set.owners[0])
        [check] = recovery_checks([b"loomlog liveness\r\n", HEAD + page(), HEAD + page()])
    finally:
        await world.close()
    assert [one.state for one in before] == [OK]
    assert (check.name, check.state) == ("recovery", WARN)
    assert check.text == "2 partitions without a new partition snapshot or checkpoint"
    assert "2 partitions of entities: the projector has reached N, N is needed" in check.remedy


def test_without_metrics_of_runtimes_nothing_is_said():
    assert recovery_checks([b"loomlog liveness\r\n", HEAD + b"loomlog_runs_per_minute 1\n"]) == []


async def test_a_database_that_is_away_is_a_failure_with_its_reason(tmp_path, monkeypatch):
    async def away(cli, topic, tables):
        raise Unreachable(f"Postgres does not answer for {tables.prefix}.")

    monkeypatch.setattr(entity_checks, "read_entity_status", away)
    checks = await check_entities(settings_in(tmp_path))
    assert [(check.name, check.state, check.text) for check in checks] == [
        ("entities", FAIL, "Postgres does not answer for loom_entities."),
        ("channels", FAIL, "Postgres does not answer for loom_channels."),
    ]
