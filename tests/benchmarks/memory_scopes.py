"""Many keys in up to SCOPES scopes, made through the commands topic; one of EMBED_EVERY asks for a vector.

    memory      of the runtime (USS), before and after, and after a take-over
    list        a page of a scope over HTTP, one request at a time
    take-over   kill -9 without a standby or spare: from the Claim in the log to the first answer of its new owner
    rebuild     of the family's rows (`loomlog projections rebuild --family memory`), then of the search index: events a
                second, and how many texts the embedder was sent meanwhile

Goals at a million keys in 2,000 scopes: a list under 15 ms at p99; 400 MB; 1 s; 15,000 events/s, no text.

Before: memory.py. After: entities.py, definitions.py.
"""

import asyncio
import json
import random
import time
from collections import defaultdict
from typing import Any

import psutil
import psycopg
from psycopg import sql

from loomlog.connectors.kafka import MAX_BATCH_BYTES, KafkaAppender, KafkaRanges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.connectors.storage.postgres import PostgresOptions, connect
from loomlog.projections.memory_index.tables import empty_index, find_schemas, index_schema
from loomlog.schemas.codec import local_codec, peek
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.memory_commands import SetEntry
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.families.memory.author import USER, aggregate_name
from loomlog.services.families.registry import all_families
from loomlog.services.stream.entities.answers import Answer
from loomlog.services.stream.entities.checkpoints import EntityCheckpoints
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.hosting import EntityParts
from tests.benchmarks.closed_loop import percentile
from tests.benchmarks.counting_embedder import CountingEmbedder
from tests.benchmarks.definitions import following
from tests.benchmarks.entities import BATCH, MB, TENANT, TOPICS, WAIT_S, until_checkpointed, until_projected, uss
from tests.benchmarks.main import Stack, loomlog
from tests.benchmarks.memory_search import sentence
from tests.benchmarks.sse_client import Client

SCOPES, KEYS_OF_SCOPE_MIN = 2_000, 10
EMBED_EVERY = 100
LISTS, WARM_UP_LISTS = 500, 20
PAGE = 100
"""Entries of a list: what an agent gets."""
RECORD_BYTES = 1_000
"""More than a command has."""
POLL_S = 0.5


async def measure_scopes(
    stack: Stack, environment: dict[str, str], keys: int, embedder: CountingEmbedder
) -> dict[str, Any]:
    """So many keys; memory, lists, a kill -9, rebuilds."""
    scopes = max(1, min(SCOPES, keys // KEYS_OF_SCOPE_MIN))
    report: dict[str, Any] = {"keys": keys, "scopes": scopes, "runtime_before_mb": uss(stack.pids["runtime"]) / MB}
    async with following(stack.kafka) as (parts, appender, ranges), await open_database(stack) as database:
        partitions = parts.replicas.partitions
        began = time.monotonic()
        await fill(appender, ranges, partitions, keys, scopes)
        report["filled_s"] = time.monotonic() - began
        await until_projected(environment)
        await until_indexed(database, ranges, partitions)
        report["indexed_s"] = time.monotonic() - began
        checkpoints = EntityCheckpoints(
            FamilySet(all_families()),
            local_codec(),
            appender=appender,
            ranges=ranges,
            topic=TOPICS.snapshots,
            events_topic=TOPICS.events,
        )
        await until_checkpointed(checkpoints, ranges, partitions)
        report["runtime_mb"] = uss(stack.pids["runtime"]) / MB
        report |= await list_times(stack, scopes)
        print(f"  {report}", flush=True)
        report |= await take_over(stack, parts, ranges, scopes)
        pids = {child["name"]: child["pid"] for child in json.loads(loomlog("status --json", environment))["children"]}
        report["runtime_after_take_over_mb"] = uss(pids["runtime"]) / MB
        report |= await rebuild_all(environment, parts, database, ranges, embedder)
    print(f"  {report}", flush=True)
    return report


def scope_id(number: int) -> str:
    return f"person-{number}"


def set_entry(scope: int, key: int, command_id: str, source: random.Random) -> SetEntry:
    """The command that sets a key of a scope."""
    return SetEntry(
        envelope=CommandEnvelope(
            command_id=command_id, tenant=TENANT, subject="bench", issued_at_ms=time.time_ns() // 1_000_000
        ),
        scope=USER,
        scope_id=scope_id(scope),
        key=f"notes/{key}",
        value=json.dumps(sentence(source)),
        embed=key % EMBED_EVERY == 0,
    )


async def fill(appender: KafkaAppender, ranges: KafkaRanges, partitions: int, keys: int, scopes: int) -> None:
    """Set all keys through the commands topic, scope by scope; returns when all are decided."""
    codec, source, keys_of_scope = local_codec(), random.Random(5), -(-keys // scopes)
    ends = [await ranges.end_offset(TOPICS.events, partition) for partition in range(partitions)]
    goal = sum(ends) + keys
    waiting: dict[int, list[ProducerRecord]] = defaultdict(list)
    for number in range(keys):
        command = set_entry(*divmod(number, keys_of_scope), f"fill-{number}", source)
        name = aggregate_name(command.scope, command.scope_id)
        key = aggregate_key(aggregate_id("memory", TENANT, name))
        partition = partition_of(key, partitions)
        waiting[partition].append(ProducerRecord(key=key, value=codec.encode(command)))
        if len(waiting[partition]) >= min(BATCH, MAX_BATCH_BYTES // RECORD_BYTES):
            await appender.append(TOPICS.commands, partition, waiting.pop(partition))
        if number % 100_000 == 0 and number:
            print(f"  {number} keys sent", flush=True)
    for partition, records in waiting.items():
        await appender.append(TOPICS.commands, partition, records)
    async with asyncio.timeout(WAIT_S):
        while sum([await ranges.end_offset(TOPICS.events, partition) for partition in range(partitions)]) < goal:
            await asyncio.sleep(POLL_S)


async def until_indexed(connection: psycopg.AsyncConnection[Any], ranges: KafkaRanges, partitions: int) -> None:
    """Wait until the search index has everything, vectors included."""
    schema = index_schema()
    cursors = sql.SQL("SELECT partition, next_offset FROM {} WHERE topic = %s").format(
        sql.Identifier(schema, "cursors")
    )
    pending = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, "pending"))
    ends = {partition: await ranges.end_offset(TOPICS.events, partition) for partition in range(partitions)}
    async with asyncio.timeout(WAIT_S):
        while True:
            reached = dict(await (await connection.execute(cursors, (TOPICS.events,))).fetchall())
            if all(reached.get(partition, 0) >= end for partition, end in ends.items()) and (
                await (await connection.execute(pending)).fetchone() == (0,)
            ):
                return
            await asyncio.sleep(POLL_S)


async def open_database(stack: Stack) -> psycopg.AsyncConnection[Any]:
    return await connect(PostgresOptions(dsn=stack.postgres))


# --- lists -----------------------------------------------------------------------------------------------------------


async def list_times(stack: Stack, scopes: int) -> dict[str, float]:
    """Milliseconds of lists of scopes in no order."""
    client, source = Client(stack.api), random.Random(3)
    took: list[float] = []
    for number in range(WARM_UP_LISTS + LISTS):
        path = f"/v1/_memory/scopes/user/{scope_id(source.randrange(scopes))}/keys?limit={PAGE}"
        began = time.perf_counter()
        status, body = await client.send(client.message("GET", path))
        if number >= WARM_UP_LISTS:
            took.append((time.perf_counter() - began) * 1000)
        if status != 200 or not json.loads(body)["entries"]:
            raise SystemExit(f"GET {path}: {status} {body[:300]!r}")
    client.close()
    took.sort()
    return {"list_p50_ms": percentile(took, 0.5), "list_p99_ms": percentile(took, 0.99)}


# --- the take-over ---------------------------------------------------------------------------------------------------


async def take_over(stack: Stack, parts: EntityParts, ranges: KafkaRanges, scopes: int) -> dict[str, float]:
    """Kill the runtime; seconds until a scope at rest answers, since the kill and since the Claim of its partition."""
    command = set_entry(scopes // 2, 0, "after-the-kill", random.Random(1))
    killed = time.time()
    psutil.Process(stack.pids["runtime"]).kill()
    answer = await parts.client.ask(command, wait_s=60.0)
    answered = time.time()
    if isinstance(answer.events[-1], CommandRefused):
        raise SystemExit(f"the set after the take-over was refused: {answer.events[-1].message}")
    return {
        "first_answer_after_kill_s": answered - killed,
        "first_answer_after_claim_s": answered - await claimed_at(ranges, answer),
    }


async def claimed_at(ranges: KafkaRanges, answer: Answer) -> float:
    """When the last Claim before an answer was appended, seconds of the broker's clock, which is this machine's."""
    codec, claimed_s = local_codec(), 0.0
    claim = codec.schema_id_of(Claim.SCHEMA)
    async with await ranges.read(
        answer.topic, answer.partition, max(0, answer.offset - BATCH), answer.offset
    ) as chunks:
        async for chunk in chunks:
            for record in chunk:
                if peek(record.value or b"").schema_id == claim:
                    claimed_s = record.timestamp / 1000
    if not claimed_s:
        raise SystemExit(f"there is no Claim before {answer.position}: the killed runtime has answered")
    return claimed_s


# --- rebuilds --------------------------------------------------------------------------------------------------------


async def rebuild_all(
    environment: dict[str, str],
    parts: EntityParts,
    database: psycopg.AsyncConnection[Any],
    ranges: KafkaRanges,
    embedder: CountingEmbedder,
) -> dict[str, Any]:
    """Rebuild the rows, then the search index; events a second, and the texts of the embedder."""
    partitions = parts.replicas.partitions
    await until_projected(environment)
    await until_indexed(database, ranges, partitions)
    texts, indexed = embedder.texts, await count_indexed(database)
    command = "projections rebuild --family memory --json"
    rows = json.loads(await asyncio.to_thread(loomlog, command, environment, timeout_s=WAIT_S))
    events = sum([await ranges.end_offset(TOPICS.events, partition) for partition in range(partitions)])
    began = time.monotonic()
    await empty_index(database, await find_schemas(database))
    # An idle writer finds out with its next commit; this key asks for no vector.
    await parts.client.ask(set_entry(0, 1, "after-the-emptying", random.Random(2)), wait_s=60.0)
    await until_indexed(database, ranges, partitions)
    index_s = time.monotonic() - began
    return {
        "rebuilt_events": rows["events"],
        "rebuilt_s": rows["seconds"],
        "rebuilt_events_per_s": rows["events"] / rows["seconds"],
        "rebuilt_equal": rows["equal"],
        "index_events_per_s": events / index_s,
        "index_entries_and_vectors": indexed,
        "index_equal": await count_indexed(database) == indexed,
        "embedded_texts": texts,
        "embedded_texts_of_rebuilds": embedder.texts - texts,
    }


async def count_indexed(connection: psycopg.AsyncConnection[Any]) -> list[int]:
    """The numbers of entries and of vectors in the search index."""
    counts = []
    for table in ("entries", "vectors"):
        query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(index_schema(), table))
        counts += [row[0] for row in await (await connection.execute(query)).fetchall()]
    return counts


def print_scopes(scopes: dict[str, Any]) -> None:
    """The figures for people, with the goals."""
    print(
        f"  {scopes['keys']} keys in {scopes['scopes']} scopes, made in {scopes['filled_s']:.0f} s, found by search "
        f"after {scopes['indexed_s']:.0f} s: runtime {scopes['runtime_mb']:.0f} MB (before "
        f"{scopes['runtime_before_mb']:.0f}, after a take-over {scopes['runtime_after_take_over_mb']:.0f}; goal 400)"
    )
    print(
        f"  list of {PAGE} entries over HTTP: p50 {scopes['list_p50_ms']:.1f} ms, p99 {scopes['list_p99_ms']:.1f} ms "
        "(goal 15)"
    )
    print(
        f"  kill -9 without spare: first answer {scopes['first_answer_after_claim_s']:.2f} s after the claim (goal 1), "
        f"{scopes['first_answer_after_kill_s']:.1f} s after the kill, the start of a process included"
    )
    equal = "rows equal" if scopes["rebuilt_equal"] else "ROWS DIFFER"
    index_equal = "as many entries and vectors" if scopes["index_equal"] else "ENTRIES OR VECTORS ARE MISSING"
    print(
        f"  rebuild of the rows: {scopes['rebuilt_events']} events at {scopes['rebuilt_events_per_s']:.0f} events/s "
        f"(goal 15,000), {equal}; of the search index {scopes['index_events_per_s']:.0f} events/s, {index_equal}"
    )
    print(
        f"  texts that were embedded for both {scopes['embedded_texts_of_rebuilds']} (goal 0), before "
        f"{scopes['embedded_texts']}"
    )
