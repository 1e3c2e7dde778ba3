"""Client code for producing commands to the log: a StartRun as a record to produce.

A producer must get the key right. A run's id is `r_<key>`, with an optional `-<suffix>`; the record's key is that key,
and its partition is murmur2 of it, as in Kafka's own producers. Then the commands of a run are in the partition whose
owner decides them. `start_run_record` chooses all that, and the sender knows the run id before anything is sent, so
sending the same record twice starts one run.

Before: your program. After: any Kafka producer. Needs fastavro and msgspec, as all of this package.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from loomlog.schemas.codec import Codec, local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import CommandEnvelope, RunOptions, Segment
from loomlog.schemas.ids import ID_PATTERN, fresh_token, hashed_token, partition_key
from loomlog.schemas.sticky_partitioner import StickyPartitioner

COMMANDS_TOPIC = "loom.run.commands"
EVENTS_TOPIC = "loom.run.events"


class CommandRecord(NamedTuple):
    """A record to produce to COMMANDS_TOPIC, and the id of its run."""

    key: bytes
    value: bytes
    run_id: str
    headers: list[tuple[str, bytes]]


def start_run_record(
    *,
    agent: str,
    prompt: str = "",
    segments: tuple[Segment, ...] = (),
    tenant: str = "default",
    subject: str = "",
    user_id: str = "",
    session_id: str = "",
    run_id: str = "",
    idempotency_key: str = "",
    metadata: Mapping[str, str] | None = None,
    traceparent: str = "",
    codec: Codec | None = None,
    partitioner: StickyPartitioner | None = None,
) -> CommandRecord:
    """Return the record that starts a run of `agent` with a prompt or, for more than one text, with segments.

    - subject: the requesting principal, for example the name of your service.
    - session_id: the session to continue; empty for a new one.
    - idempotency_key: the same key of the same tenant and subject always refers to the same run.
    - run_id: chosen by you instead; see schemas/ids.py for its format.
    - traceparent: your W3C trace context.
    - partitioner: for a program that starts many runs; one for all of them, created with the number of partitions of
      COMMANDS_TOPIC. Runs that begin together then share a partition, which costs the broker less
      (schemas/sticky_partitioner.py).

    Values of `metadata` are JSON texts. Raises ValueError.
    """
    if not agent or not (prompt or segments):
        raise ValueError("a run needs an agent and a prompt or segments")
    if run_id and (session_id or idempotency_key):
        raise ValueError("give a run_id, or a session_id or idempotency_key that it is derived from")
    at_ms = time.time_ns() // 1_000_000
    if not run_id:
        own = fresh_token(at_ms)
        if idempotency_key:
            # The same id as the API derives, so that a key refers to the same run on both paths.
            own = hashed_token("idempotency", tenant, subject, idempotency_key)
        elif partitioner is not None and not session_id:
            own = partitioner.assign_partition(own, at_ms)
        run_id = f"r_{partition_key(session_id)}-{own}" if session_id else f"r_{own}"
    if not ID_PATTERN.match(run_id):
        raise ValueError(f"run_id {run_id!r}: expected 1 to 128 of A-Z a-z 0-9 _ -")
    command = StartRun(
        envelope=CommandEnvelope(command_id=run_id, tenant=tenant, subject=subject, issued_at_ms=at_ms),
        agent=agent,
        prompt=prompt,
        segments=segments,
        run_id=run_id,
        session_id=session_id,
        user_id=user_id,
        idempotency_key=idempotency_key,
        options=RunOptions(metadata=dict(metadata or {})),
    )
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", run_id.encode()),
        ("ce_type", StartRun.SCHEMA.encode()),
        ("ce_source", f"/{subject or 'producer'}".encode()),
    ]
    if traceparent:
        headers.append(("traceparent", traceparent.encode()))
    return CommandRecord(partition_key(run_id).encode(), (codec or local_codec()).encode(command), run_id, headers)
