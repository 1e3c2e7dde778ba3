import asyncio
import json
import time
from dataclasses import replace

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply, main
from loomlog.redpanda.cluster import ClusterProblem, connect
from loomlog.redpanda.topics import Topic, TopicProblem, load_topics
from loomlog.services.cli.stack.ports import pick_port

pytestmark = pytest.mark.integration


async def test_the_second_run_finds_nothing_to_do(kafka: str, topic_prefix: str) -> None:
    first = await apply(kafka, prefix=topic_prefix)
    assert {change.kind for change in first} == {"create"}
    assert len(first) == len(load_topics())
    assert await apply(kafka, prefix=topic_prefix) == []


async def test_a_check_changes_nothing(kafka: str, topic_prefix: str) -> None:
    assert await apply(kafka, prefix=topic_prefix, check=True)
    assert {change.kind for change in await apply(kafka, prefix=topic_prefix, check=True)} == {"create"}


async def test_the_broker_has_the_settings_of_the_file(kafka: str, topic_prefix: str) -> None:
    await apply(kafka, prefix=topic_prefix)
    required = {topic.name: topic for topic in load_topics(prefix=topic_prefix)}
    async with connect(kafka, timeout_s=30) as cluster:
        existing = await cluster.existing(list(required))
    assert existing.keys() == required.keys()
    for name, topic in required.items():
        assert existing[name].partitions == topic.partitions
        assert {key: existing[name].settings[key] for key in topic.settings} == dict(topic.settings)


def named(topics: list[Topic], name: str) -> Topic:
    return next(topic for topic in topics if topic.name.endswith(name))


async def test_a_changed_setting_is_altered_and_an_operators_own_setting_survives(
    kafka: str, topic_prefix: str
) -> None:
    topic = named(load_topics(prefix=topic_prefix), ".commands")
    await apply(kafka, topics=[topic])
    async with connect(kafka, timeout_s=30) as cluster:
        await cluster.alter(topic.name, {**topic.settings, "segment.ms": "777000", "retention.ms": "1000"})
    (change,) = await apply(kafka, topics=[topic])
    assert (change.kind, change.text) == ("alter", f"retention.ms 1000 -> {topic.settings['retention.ms']}")
    async with connect(kafka, timeout_s=30) as cluster:
        existing = (await cluster.existing([topic.name]))[topic.name]
    assert existing.settings["segment.ms"] == "777000"
    assert await apply(kafka, topics=[topic]) == []


@pytest.mark.parametrize("hours", [-24 * 30, 24 * 30])
async def test_a_writer_with_a_wrong_clock_is_not_refused(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    topics = load_topics(prefix=topic_prefix)
    await apply(kafka, topics=topics)
    appender = KafkaAppender(KafkaOptions(bootstrap=kafka))
    await appender.start()
    try:
        now_s = time.time()
        monkeypatch.setattr("loomlog.connectors.kafka.appender.time.time", lambda: now_s + hours * 3_600)
        for topic in topics:
            assert await appender.append(topic.name, 0, [ProducerRecord(key=b"k", value=b"v")]) == 0
    finally:
        await appender.close()


async def test_a_refusal_stops_everything_before_the_first_change(kafka: str, topic_prefix: str) -> None:
    topics = load_topics(prefix=topic_prefix)
    events = named(topics, ".events")
    await apply(kafka, topics=[events])
    with pytest.raises(TopicProblem, match=r"Nothing was changed\. .*\.events: it has 4 partitions.*keys would move"):
        await apply(kafka, topics=[named(topics, ".commands"), replace(events, partitions=8)])
    async with connect(kafka, timeout_s=30) as cluster:
        assert list(await cluster.existing([topic.name for topic in topics])) == [events.name]


async def test_a_topic_without_keys_grows(kafka: str, topic_prefix: str) -> None:
    topic = named(load_topics(prefix=topic_prefix), ".dead-letter")
    await apply(kafka, topics=[topic])
    (change,) = await apply(kafka, topics=[replace(topic, partitions=2)])
    assert change.kind == "grow"
    assert await apply(kafka, topics=[replace(topic, partitions=2)]) == []


async def test_an_error_inside_the_response_is_raised(kafka: str, topic_prefix: str) -> None:
    topic = named(load_topics(prefix=topic_prefix), ".events")
    with pytest.raises(ClusterProblem, match=r"creating topic .*\.events.*(InvalidReplicationFactor|replication)"):
        await apply(kafka, topics=[replace(topic, replicas=3)])
    with pytest.raises(ClusterProblem, match=r"creating topic .*no\.such\.setting"):
        await apply(kafka, topics=[replace(topic, settings={"no.such.setting": "1"})])
    await apply(kafka, topics=[topic])
    with pytest.raises(ClusterProblem, match=r"changing the settings of topic .*\.events"):
        await apply(kafka, topics=[replace(topic, settings={"retention.ms": "soon"})])


async def test_an_unreachable_cluster_is_an_error_within_the_timeout() -> None:
    with pytest.raises(ClusterProblem, match="connecting to"):
        await apply(f"127.0.0.1:{pick_port()}", timeout_s=1)


async def test_the_command_prints_changes_and_its_exit_code_shows_differences(
    kafka: str, topic_prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--bootstrap", kafka, "--prefix", topic_prefix]
    assert await asyncio.to_thread(main, [*arguments, "--check", "--json"]) == 1
    changes = json.loads(capsys.readouterr().out)
    assert {change["kind"] for change in changes} == {"create"}
    assert await asyncio.to_thread(main, arguments) == 0
    assert "create" in capsys.readouterr().out
    assert await asyncio.to_thread(main, [*arguments, "--check"]) == 0
    assert "as they should be (local)" in capsys.readouterr().out
    assert await asyncio.to_thread(main, [*arguments, "--replicas", "3"]) == 1
    assert "expected 3" in capsys.readouterr().err
    unreachable = ["--bootstrap", f"127.0.0.1:{pick_port()}", "--timeout-s", "1"]
    assert await asyncio.to_thread(main, unreachable) == 2
    assert "Is the broker up" in capsys.readouterr().err
