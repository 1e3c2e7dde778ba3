"""Make a cluster's topics equal to topics.yaml and report the changes.

`python -m loomlog.redpanda.apply --bootstrap HOST:PORT` may be repeated: the second run finds nothing to do. A
difference that cannot be repaired safely (see topics.py) stops everything before the first change. `--check` changes
nothing and exits with 1 when something would change.

Not chosen: creating topics from the services as they start. Several would race, and a service should not hold the right
to change the log's settings.

Before: topics.yaml, `loomlog up`, a deployment's first step.  After: the services, which expect their topics to exist.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from loomlog.connectors.configuration.environment import read_settings
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.kafka import KafkaOptions
from loomlog.redpanda.cluster import ClusterProblem, connect
from loomlog.redpanda.topics import (
    FAMILY_PARTITIONS,
    PREFIX,
    Profile,
    Topic,
    TopicChange,
    TopicProblem,
    load_topics,
    plan,
)

# Each request; making all topics takes well under a second on one broker, a few on a busy cluster.
REQUEST_TIMEOUT_S = 30.0


async def apply(
    broker: str | KafkaOptions,
    *,
    profile: Profile = "local",
    partitions: int = FAMILY_PARTITIONS,
    replicas: int | None = None,
    prefix: str = PREFIX,
    topics: Sequence[Topic] | None = None,
    check: bool = False,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> list[TopicChange]:
    """Make a cluster's topics equal to topics.yaml (or `topics`); with `check` only plan it. Returns the plan.

    Raises TopicProblem naming every difference that must not be repaired here, and ClusterProblem when the cluster
    does not answer or refuses.
    """
    if topics is None:
        topics = load_topics(profile, partitions=partitions, replicas=replicas, prefix=prefix)
    async with connect(broker, timeout_s=timeout_s) as cluster:
        changes = plan(topics, await cluster.existing([topic.name for topic in topics]))
        refused = [change for change in changes if change.kind == "refuse"]
        if refused:
            sentences = "; ".join(f"{change.topic}: {change.text}" for change in refused)
            raise TopicProblem(f"Nothing was changed. {sentences}.")
        if not check:
            await cluster.create([change for change in changes if change.kind == "create"])
            for change in changes:
                if change.kind == "grow":
                    await cluster.grow(change.topic, change.partitions)
                elif change.kind == "alter":
                    await cluster.alter(change.topic, change.settings)
    return changes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit code 0: equal now; 1: `--check` found differences, or they were refused; 2: no answer."""
    options = _parser().parse_args(arguments)
    try:
        settings, _ = read_settings(os.environ, working_directory=Path.cwd())
    except ConfigurationError as problem:
        print(problem, file=sys.stderr)
        return 2
    kafka = KafkaOptions(
        bootstrap=options.bootstrap or settings.kafka,
        client_id="loomlog-admin",
        security_protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism or "PLAIN",
        sasl_username=settings.kafka_username,
        sasl_password=settings.kafka_password,
        ca_file=str(settings.kafka_ca_file or ""),
        cert_file=str(settings.kafka_cert_file or ""),
        key_file=str(settings.kafka_key_file or ""),
    )
    replicas = settings.replication_factor if options.replicas is None else options.replicas
    partitions = settings.partitions if options.partitions is None else options.partitions
    profile: Profile = options.profile or ("local" if replicas == 1 else "cluster")
    try:
        changes = asyncio.run(
            apply(
                kafka,
                profile=profile,
                partitions=partitions,
                replicas=replicas,
                prefix=options.prefix,
                check=options.check,
                timeout_s=options.timeout_s,
            )
        )
    except TopicProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    except ClusterProblem as problem:
        print(f"{problem}. Is the broker up, and is the address (--bootstrap or LOOMLOG_KAFKA) right?", file=sys.stderr)
        return 2
    _print_changes(
        changes, as_json=options.json, summary=f"Topics at {kafka.bootstrap} are as they should be ({profile})."
    )
    return 1 if options.check and any(change.changes_something for change in changes) else 0


def _print_changes(changes: Sequence[TopicChange], *, as_json: bool, summary: str) -> None:
    if as_json:
        print(json.dumps([asdict(change) for change in changes], indent=2))
        return
    for change in changes:
        print(f"{change.kind:8} {change.topic}: {change.text}")
    if not any(change.changes_something for change in changes):
        print(summary)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loomlog.redpanda.apply",
        description="Make the topics equal to topics.yaml. How to authenticate comes from LOOMLOG_KAFKA_*.",
    )
    parser.add_argument("--bootstrap", default="", metavar="HOST:PORT", help="brokers (default: LOOMLOG_KAFKA)")
    parser.add_argument("--profile", choices=get_args(Profile), help="default: local for one replica, cluster for more")
    parser.add_argument(
        "--replicas", type=int, metavar="N", help="copies of a partition (default: LOOMLOG_REPLICATION_FACTOR)"
    )
    parser.add_argument(
        "--partitions", type=int, metavar="N", help="partitions of a family's topics (default: LOOMLOG_PARTITIONS)"
    )
    parser.add_argument("--prefix", default=PREFIX, help="leading part of the topic names (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when something would change")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")
    parser.add_argument("--timeout-s", type=float, default=REQUEST_TIMEOUT_S, help="per request (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
