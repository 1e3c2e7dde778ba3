"""What figures depend on besides loomlog, for every command that prints some."""

import os
import platform
import time
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.closed_loop import percentile

SYNCS = 200
STEPS = 1_000_000


def machine(folder: Path | None = None) -> dict[str, Any]:
    """Cores, memory, versions; with a folder also what its disk takes to make something durable right now."""
    facts: dict[str, Any] = {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "load": round(os.getloadavg()[0], 1),
        "python_ms": python_ms(),
    }
    return facts if folder is None else {"fdatasync_ms": sync_ms(folder), **facts}


def python_ms() -> float:
    """What a million steps of a loop cost now, the best of three: a shared machine may be half as fast in an hour."""
    took = []
    for _ in range(3):
        began = time.process_time()
        for _ in range(STEPS):
            pass
        took.append((time.process_time() - began) * 1000)
    return round(min(took), 1)


def sync_ms(folder: Path) -> dict[str, float]:
    """What making 4 KB durable costs on this disk right now: every flush of every partition pays it."""
    path = folder / "sync"
    took = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    path.unlink()
    took.sort()
    return {"p50": round(percentile(took, 0.5), 3), "p99": round(percentile(took, 0.99), 3)}
