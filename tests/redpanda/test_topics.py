from pathlib import Path

import pytest

from loomlog.redpanda.topics import ExistingTopic, Topic, TopicProblem, load_topics, plan


def topic(
    name: str = "loom.x", *, partitions: int = 4, replicas: int = 1, keyed: bool = True, **settings: str
) -> Topic:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Topic(name=name, partitions=partitions, replicas=replicas, keyed=keyed, settings=named)


def existing(
    required: Topic, *, partitions: int | None = None, replicas: int | None = None, **own: str
) -> ExistingTopic:
    named = {key.replace("_", "."): value for key, value in own.items()}
    return ExistingTopic(
        name=required.name,
        partitions=partitions or required.partitions,
        replicas=replicas or required.replicas,
        settings={**required.settings, "segment.bytes": "1", **named},
        own=named,
    )


def test_a_missing_topic_is_created_with_all_its_settings() -> None:
    required = topic(retention_ms="-1")
    (change,) = plan([required], {})
    assert (change.kind, change.partitions, change.replicas, dict(change.settings)) == (
        "create",
        4,
        1,
        {"retention.ms": "-1"},
    )
    assert change.changes_something


def test_an_equal_topic_needs_nothing() -> None:
    required = topic(retention_ms="-1")
    assert plan([required], {required.name: existing(required)}) == []


def test_a_number_written_differently_is_no_change() -> None:
    required = topic(min_cleanable_dirty_ratio="0.1")
    assert plan([required], {required.name: existing(required, min_cleanable_dirty_ratio="0.10")}) == []


def test_a_changed_setting_is_sent_with_all_others_because_the_request_replaces_them() -> None:
    required = topic(retention_ms="5", cleanup_policy="delete")
    current = existing(required, retention_ms="9", cleanup_policy="delete", segment_ms="77")
    (change,) = plan([required], {required.name: current})
    assert change.kind == "alter"
    assert dict(change.settings) == {"retention.ms": "5", "cleanup.policy": "delete", "segment.ms": "77"}
    assert change.text == "retention.ms 9 -> 5"


def test_partitions_of_a_keyed_topic_are_never_added() -> None:
    required = topic(partitions=8)
    (change,) = plan([required], {required.name: existing(required, partitions=4)})
    assert change.kind == "refuse"
    assert "4 partitions" in change.text
    assert "keys would move" in change.text
    assert not change.changes_something


def test_partitions_of_a_topic_without_keys_may_be_added() -> None:
    required = topic(partitions=3, keyed=False)
    (change,) = plan([required], {required.name: existing(required, partitions=1)})
    assert (change.kind, change.partitions) == ("grow", 3)


@pytest.mark.parametrize("keyed", [True, False])
def test_partitions_are_never_removed(keyed: bool) -> None:
    required = topic(partitions=1, keyed=keyed)
    (change,) = plan([required], {required.name: existing(required, partitions=3)})
    assert change.kind == "refuse"
    assert "remove partitions" in change.text


def test_fewer_replicas_than_required_are_refused() -> None:
    required = topic(replicas=3)
    (change,) = plan([required], {required.name: existing(required, replicas=1)})
    assert change.kind == "refuse"
    assert "1 replicas, expected 3" in change.text


def test_more_replicas_than_required_are_fine() -> None:
    required = topic(replicas=1)
    assert plan([required], {required.name: existing(required, replicas=3)}) == []


def test_a_setting_the_broker_does_not_know_is_reported_as_ignored() -> None:
    required = topic(flush_messages="1")
    current = ExistingTopic(name=required.name, partitions=4, replicas=1, settings={}, own={})
    (change,) = plan([required], {required.name: current})
    assert change.kind == "ignored"
    assert "flush.messages=1" in change.text
    assert not change.changes_something


def named(topics: list[Topic]) -> dict[str, Topic]:
    return {topic.name: topic for topic in topics}


def test_the_log_is_kept_for_ever_and_never_compacted_in_both_profiles() -> None:
    for profile in ("local", "cluster"):
        events = named(load_topics(profile))["loom.run.events"]
        assert events.settings["retention.ms"] == "-1"
        assert events.settings["retention.bytes"] == "-1"
        assert events.settings["cleanup.policy"] == "delete"


def test_commands_and_events_have_the_same_partitions_in_both_profiles() -> None:
    for topics in (named(load_topics("local")), named(load_topics("cluster"))):
        counts = {topics[f"loom.run.{part}"].partitions for part in ("commands", "events", "deltas", "snapshots")}
        assert len(counts) == 1


def test_durable_means_fsync_on_one_broker_and_a_quorum_on_three() -> None:
    local, cluster = named(load_topics("local")), named(load_topics("cluster"))
    for name in ("loom.run.commands", "loom.run.events", "loom.dead-letter"):
        assert local[name].settings["flush.messages"] == "1"
        assert local[name].replicas == 1
        assert "flush.messages" not in cluster[name].settings
        assert cluster[name].settings["min.insync.replicas"] == "2"
        assert cluster[name].replicas == 3
    assert "flush.messages" not in local["loom.run.deltas"].settings


def test_snapshots_are_compacted() -> None:
    settings = named(load_topics())["loom.run.snapshots"].settings
    assert settings["cleanup.policy"] == "compact"
    assert int(settings["segment.bytes"]) <= 64 * 1024**2
    assert int(settings["segment.ms"]) <= 3_600_000


def test_segments_of_previews_are_shorter_than_their_retention() -> None:
    settings = named(load_topics())["loom.run.deltas"].settings
    assert int(settings["segment.ms"]) < int(settings["retention.ms"]) <= 3_600_000


def test_commands_are_kept_at_least_a_week() -> None:
    assert int(named(load_topics())["loom.run.commands"].settings["retention.ms"]) >= 7 * 24 * 3_600_000


def test_every_topic_takes_a_batch_of_one_mebibyte() -> None:
    assert all(int(topic.settings["max.message.bytes"]) > 1024**2 for topic in load_topics())


def test_two_replicas_wait_for_no_more_than_two() -> None:
    events = named(load_topics("cluster", replicas=1))["loom.run.events"]
    assert (events.replicas, events.settings["min.insync.replicas"]) == (1, "1")


def test_a_prefix_replaces_the_leading_part_of_every_name() -> None:
    assert {topic.name.split(".")[0] for topic in load_topics(prefix="other")} == {"other"}


def test_the_families_share_their_number_of_partitions_and_the_others_keep_theirs() -> None:
    topics = named(load_topics(partitions=24))
    assert {name for name, topic in topics.items() if topic.partitions == 24} == {
        "loom.audit.checkpoints",
        "loom.ingress",
        *(f"loom.run.{part}" for part in ("commands", "events", "deltas", "snapshots")),
        *(f"loom.{name}.{part}" for name in ("entity", "channel") for part in ("commands", "events", "checkpoints")),
    }
    assert topics["loom.insights.runs"].partitions == 4


def test_a_number_of_partitions_may_differ_by_profile_and_a_larger_one_is_kept() -> None:
    local, cluster = (named(load_topics(profile))["loom.tool.requests"] for profile in ("local", "cluster"))
    assert (local.partitions, cluster.partitions) == (4, 8)
    assert plan([local], {local.name: existing(local, partitions=8)}) == []
    (change,) = plan([cluster], {cluster.name: existing(cluster, partitions=4)})
    assert change.kind == "refuse"


def test_no_replicas_and_no_partitions_are_refused() -> None:
    with pytest.raises(TopicProblem, match="replicas must be 1 or more, not 0"):
        load_topics(replicas=0)
    with pytest.raises(TopicProblem, match="partitions must be 1 or more, not 0"):
        load_topics(partitions=0)


def test_a_misspelt_key_in_the_file_names_its_topic(tmp_path: Path) -> None:
    path = tmp_path / "topics.yaml"
    path.write_text(
        "profiles: {local: {replicas: 1, durable: {}}}\nevery: {}\n"
        "topics: {loom.x: {about: a, durable: no, keyd: yes, partitions: 1, settings: {}}}\n"
    )
    with pytest.raises(TopicProblem, match=r"loom\.x must have exactly .*keyed.* it has .*keyd"):
        load_topics(path=path)


def test_an_unknown_profile_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "topics.yaml"
    path.write_text("profiles: {local: {replicas: 1, durable: {}}}\nevery: {}\ntopics: {}\n")
    with pytest.raises(TopicProblem, match="no profile 'cluster'; it has local"):
        load_topics("cluster", path=path)


def test_only_the_clock_has_the_times_of_the_broker() -> None:
    topics = load_topics("cluster")
    stamped = [one for one in topics if "message.timestamp.type" in one.settings]
    assert [(one.name, one.partitions, one.settings["message.timestamp.type"]) for one in stamped] == [
        ("loom.clock", 1, "LogAppendTime")
    ]
