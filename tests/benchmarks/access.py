"""What access costs: `make bench-access`.

    python -m tests.benchmarks.access [--tokens 100000] [--json FILE]

    open      seconds of CPU and memory (USS) that a process takes to fold so many tokens of 100 tenants
    identify  a caller of a minted token, in that process

Goals: 2 s and 120 MB; 5 us at p50, 50 us at p99. What a running installation takes is in access_stack.py.
"""

import argparse
import asyncio
import gc
import hashlib
import json
import pickle
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from loomlog.connectors.configuration.principals import TokenTable
from loomlog.connectors.crypto.operator_tokens import Peppers, new_text
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.identity_events import TokenMinted
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import AccessToken, Envelope
from loomlog.services.application.authentication import Authenticator
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.families.identity.directory import Directory
from loomlog.services.families.identity.state import NAME, shard_of
from tests.services.application.entity_owner import entity_parts
from tests.services.stream.entities.world import TOPICS

TENANTS, PARTITIONS = 100, 4
PEPPERS = Peppers(keys=(b"a pepper of the benchmark",))
AT_MS = 1_800_000_000_000
CALLS = 50_000
GOALS = {"open_s": 2.0, "open_mb": 120.0, "identify_p50_us": 5.0, "identify_p99_us": 50.0}
Records = list[tuple[int, bytes, bytes]]


def made_records(tokens: int) -> tuple[Records, list[str]]:
    """Return partition, key and value of the records that make so many tokens, and the texts of some."""
    codec, texts, last = local_codec(), [], dict[str, tuple[int, bytes]]()
    records: Records = []
    for partition in range(PARTITIONS):
        envelope = Envelope(term=-1, seq=0, aggregate="", tenant="", at_ms=AT_MS, prev=bytes(16))
        records.append((partition, b"", codec.encode_event(envelope, Claim(owner="bench"))))
    for number in range(tokens):
        text, tenant, name = new_text(), f"tenant-{number % TENANTS}", f"token-{number}"
        if number % 100 == 0:
            texts.append(text)
        aggregate = aggregate_id(NAME, tenant, shard_of("token", name))
        seq, prev = last.get(aggregate, (0, bytes(16)))
        token = AccessToken(
            def_id=f"tok_{number:026d}",
            name=name,
            tenant=tenant,
            subject=f"user-{number}",
            scopes=("runs:create", "runs:read"),
            hashed=PEPPERS.hashed(text),
            suffix=text[4:10],
        )
        envelope = Envelope(term=0, seq=seq + 1, aggregate=aggregate, tenant=tenant, at_ms=AT_MS, prev=prev)
        key = aggregate_key(aggregate)
        value = codec.encode_event(envelope, TokenMinted(token=token, by="bench"))
        last[aggregate] = seq + 1, hashlib.sha256(value).digest()[:16]
        records.append((partition_of(key, PARTITIONS), key, value))
    return records, texts


async def measure(records: Records, texts: list[str]) -> dict[str, float]:
    """Return the figures of a process that opens with these records."""
    log = MemoryLog({})
    parts = entity_parts(log, PARTITIONS)
    for partition, key, value in records:
        await log.append(TOPICS.events, partition, [ProducerRecord(key=key, value=value)])
    records.clear()
    gc.collect()
    gc.freeze()  # what the log holds is not of the process that is measured
    before, began = psutil.Process().memory_full_info().uss, time.process_time()
    directory = Directory(parts.replicas, PEPPERS, clock_ms=lambda: time.time_ns() // 1_000_000)
    await parts.replicas.open()
    opened_s = time.process_time() - began
    gc.collect()
    opened_mb = (psutil.Process().memory_full_info().uss - before) / 1e6
    authenticator = Authenticator(TokenTable(rows=()), has_minted=True)
    authenticator.directory = directory
    times = []
    for _ in range(CALLS):
        header = f"Bearer {random.choice(texts)}"
        began_ns = time.perf_counter_ns()
        authenticator.identify(header)
        times.append(time.perf_counter_ns() - began_ns)
    times.sort()
    return {
        "tokens": len(directory),
        "open_s": round(opened_s, 2),
        "open_mb": round(opened_mb, 1),
        "identify_p50_us": round(times[CALLS // 2] / 1000, 2),
        "identify_p99_us": round(times[CALLS * 99 // 100] / 1000, 2),
    }


def main() -> int:
    """Measure in a process of its own; return 1 when a goal is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=Path)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(asyncio.run(measure(*pickle.loads(options.child.read_bytes())))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records"
        file.write_bytes(pickle.dumps(made_records(options.tokens)))
        child = [sys.executable, "-m", "tests.benchmarks.access", "--child", str(file)]
        figures: dict[str, Any] = json.loads(
            subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout
        )
    missed = [name for name, goal in GOALS.items() if figures.get(name, 0) > goal]
    for name, value in figures.items():
        goal = f"  (goal {GOALS[name]:g}{', missed' if name in missed else ''})" if name in GOALS else ""
        print(f"{name:20} {value}{goal}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
