"""Required topics, and the plan that makes a cluster equal to them: pure, no network.

`load_topics` reads topics.yaml for one profile; `plan` compares it with the topics of a cluster. A plan has no harmful
step: partitions of a keyed topic are not added (every key would move to another partition and one run's history would
be in two), replicas are not changed (that moves data and is the task of the cluster's own tool). Such differences
become `refuse` changes with the sentence an operator needs, and apply.py then changes nothing at all.

Not chosen: deleting topics that the file does not name. A topic holds history; removing it is never a side effect.

Before: topics.yaml.  After: loomlog.redpanda.apply, which carries the plan out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

TOPICS_FILE = Path(__file__).parent / "topics.yaml"
PREFIX = "loom"
FAMILY = "family"
# Enough for one machine; choose the number for a cluster before its first records, see README.md.
FAMILY_PARTITIONS = 4

Profile = Literal["local", "cluster"]


class TopicProblem(Exception):
    """The topics cannot be made equal to topics.yaml; str() is a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as it is required."""

    name: str
    partitions: int
    replicas: int
    keyed: bool
    settings: Mapping[str, str]
    may_have_more: bool = False
    """Whether a topic with more partitions serves as well: its number differs by profile."""
    about: str = ""
    """What it holds, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingTopic:
    """A topic as a cluster has it: `settings` are all values in force, `own` those set on this topic itself."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]
    own: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """One step of a plan.

    create, grow (partitions) and alter (settings) change the cluster; refuse stops everything; ignored says that this
    broker does not know a setting (Redpanda accepts and drops some of Kafka's), so there is nothing to compare.
    """

    kind: Literal["create", "grow", "alter", "refuse", "ignored"]
    topic: str
    text: str
    partitions: int = 0
    replicas: int = 0
    settings: Mapping[str, str]

    @property
    def changes_something(self) -> bool:
        return self.kind in ("create", "grow", "alter")


def load_topics(
    profile: Profile = "local",
    *,
    partitions: int = FAMILY_PARTITIONS,
    replicas: int | None = None,
    prefix: str = PREFIX,
    path: Path = TOPICS_FILE,
) -> list[Topic]:
    """The topics of one profile. `partitions` is for topics of families, `replicas` overrides the profile's, `prefix`
    replaces the leading `loom`.

    Raises TopicProblem when the file does not have the expected shape, naming the entry.
    """
    document = _section(yaml.safe_load(path.read_text("utf-8")), str(path), {"profiles", "every", "topics"})
    profiles = document["profiles"]
    if profile not in profiles:
        raise TopicProblem(f"{path.name} has no profile {profile!r}; it has {', '.join(sorted(profiles))}")
    profile_section = _section(profiles[profile], f"profiles.{profile}", {"replicas", "durable"})
    copies = profile_section["replicas"] if replicas is None else replicas
    if copies < 1:
        raise TopicProblem(f"replicas must be 1 or more, not {copies}")
    if partitions < 1:
        raise TopicProblem(f"partitions must be 1 or more, not {partitions}")
    topics = []
    for name, entry in document["topics"].items():
        fields = _section(entry, name, {"about", "durable", "keyed", "partitions", "settings"})
        settings = {**document["every"], **fields["settings"]}
        if fields["durable"]:
            settings.update(profile_section["durable"])
            # A topic with two copies cannot wait for more than two, and one that waits for both stops with either.
            settings["min.insync.replicas"] = min(settings["min.insync.replicas"], copies)
        count = fields["partitions"]
        differs = isinstance(count, dict)
        if differs:
            count = _section(count, f"{name}.partitions", set(profiles))[profile]
        topics.append(
            Topic(
                name=_replace_prefix(name, prefix),
                partitions=partitions if count == FAMILY else count,
                may_have_more=differs,
                replicas=copies,
                keyed=fields["keyed"],
                about=fields["about"],
                settings={key: _text(value) for key, value in settings.items()},
            )
        )
    return topics


def plan(required: Sequence[Topic], existing: Mapping[str, ExistingTopic]) -> list[TopicChange]:
    """The steps that make `existing` equal to `required`, in the order of `required`; empty when nothing differs."""
    changes: list[TopicChange] = []
    for topic in required:
        current = existing.get(topic.name)
        if current is None:
            changes.append(_create(topic))
        else:
            changes += [
                *_compare_partitions(topic, current),
                *_compare_replicas(topic, current),
                *_compare_settings(topic, current),
            ]
    return changes


def _create(topic: Topic) -> TopicChange:
    return TopicChange(
        kind="create",
        topic=topic.name,
        text=f"create it with {topic.partitions} partitions, {topic.replicas} replicas, "
        f"{_format_settings(topic.settings)}",
        partitions=topic.partitions,
        replicas=topic.replicas,
        settings=topic.settings,
    )


def _compare_partitions(topic: Topic, current: ExistingTopic) -> list[TopicChange]:
    if current.partitions == topic.partitions or (topic.may_have_more and current.partitions > topic.partitions):
        return []
    if current.partitions > topic.partitions:
        reason = "no Kafka-compatible log can remove partitions"
    elif topic.keyed:
        reason = "its keys would move to other partitions and the history of one run would be in two of them"
    else:
        text = f"partitions {current.partitions} -> {topic.partitions}"
        return [TopicChange(kind="grow", topic=topic.name, text=text, partitions=topic.partitions, settings={})]
    text = (
        f"it has {current.partitions} partitions, expected {topic.partitions}: {reason}. Keep {current.partitions} "
        "(LOOMLOG_PARTITIONS for a family's topics, topics.yaml for others), or create a new cluster and copy the log"
    )
    return [TopicChange(kind="refuse", topic=topic.name, text=text, settings={})]


def _compare_replicas(topic: Topic, current: ExistingTopic) -> list[TopicChange]:
    # More replicas than required are an operator's choice and do no harm.
    if current.replicas >= topic.replicas:
        return []
    text = (
        f"it has {current.replicas} replicas, expected {topic.replicas}: it would be less durable than required. "
        "Add replicas with the cluster's own tool (kafka-reassign-partitions, rpk topic alter-config), then run "
        "this again"
    )
    return [TopicChange(kind="refuse", topic=topic.name, text=text, settings={})]


def _compare_settings(topic: Topic, current: ExistingTopic) -> list[TopicChange]:
    unknown = {key: value for key, value in topic.settings.items() if key not in current.settings}
    differing = {
        key: value
        for key, value in topic.settings.items()
        if key not in unknown and not _is_equal(value, current.settings[key])
    }
    changes = []
    if differing:
        # The request replaces all of a topic's own settings, so those an operator added are sent along unchanged.
        full = {**current.own, **topic.settings}
        text = ", ".join(f"{key} {current.settings[key]} -> {value}" for key, value in differing.items())
        changes.append(TopicChange(kind="alter", topic=topic.name, text=text, settings=full))
    if unknown:
        text = f"this broker does not report {_format_settings(unknown)}, so they cannot be compared"
        changes.append(TopicChange(kind="ignored", topic=topic.name, text=text, settings=unknown))
    return changes


def _is_equal(required: str, current: str) -> bool:
    if required == current:
        return True
    try:
        return float(required) == float(current)  # 0.1 and 0.10 are the same setting
    except ValueError:
        return False


def _replace_prefix(name: str, prefix: str) -> str:
    if not name.startswith(f"{PREFIX}."):
        raise TopicProblem(f"topic {name!r} in topics.yaml must begin with {PREFIX!r} and a dot")
    return prefix + name.removeprefix(PREFIX)


def _section(value: Any, location: str, keys: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != keys:
        actual = ", ".join(sorted(value)) if isinstance(value, dict) else repr(value)
        raise TopicProblem(f"{location} must have exactly {', '.join(sorted(keys))}; it has {actual}")
    return value


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _format_settings(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())
