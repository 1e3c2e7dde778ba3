"""What a record costs: compiling its schema, checking an answer, and the turns and time of a run.

    python -m tests.benchmarks.typed [--runs 2000]        (`make bench-typed`)

Runs are driven in one process, by the calls of models and the core as an owner does it, without a broker. Printed: the
medians of a compilation and of a check, and a run with a record beside one without.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from loomlog.connectors.models.mock.model import MockModel, MockOptions
from loomlog.connectors.output_schema import check_answer, check_output_schema, schema_sha256, schema_text
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.schemas.records import replace
from loomlog.services.core.run.state import AwaitingModel, Ended
from loomlog.services.runtime.models.model_calls import RuntimeProvider
from tests.services.core.run.given import DEFINITION, begun
from tests.services.runtime.models.test_model_calls import Work, effect_of

REPETITIONS = 200
PLAIN = replace(DEFINITION, model="mock-generic", tools=())


def record_schema(members: int) -> dict[str, Any]:
    """A closed object with so many members of the usual kinds."""
    kinds: tuple[dict[str, Any], ...] = (
        {"type": "string", "maxLength": 200},
        {"type": "number", "minimum": 0},
        {"enum": ["low", "middle", "high"]},
        {"type": "array", "items": {"type": "integer"}, "minItems": 3},
    )
    names = [f"member_{number}" for number in range(members)]
    return {
        "type": "object",
        "properties": {name: kinds[number % len(kinds)] for number, name in enumerate(names)},
        "required": names,
        "additionalProperties": False,
    }


def record_of(members: int) -> str:
    """The answer that meets `record_schema(members)`."""
    values = ("text " * 8, 12.5, "high", [1, 2, 3])
    return orjson.dumps({f"member_{number}": values[number % len(values)] for number in range(members)}).decode()


def median_us(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def typed(members: int) -> AgentDefinition:
    schema = record_schema(members)
    return replace(PLAIN, output_schema=schema_text(schema), output_schema_sha256=schema_sha256(schema))


async def run_to_end(work: Work, definition: AgentDefinition) -> int:
    """Drive a run; returns its turns."""
    run = begun(definition)
    while isinstance(run.state, AwaitingModel):
        run.give(await work.calls.run(effect_of(run.state), run.state))
    assert isinstance(run.state, Ended)
    assert run.state.status == "completed", run.state.reason
    return run.state.facts.turns


async def measure_runs(definition: AgentDefinition, runs: int) -> tuple[float, float]:
    """Return the turns of a run and its microseconds."""
    work = Work()
    model = MockModel(options=MockOptions(latency_ms=0, latency_jitter_ms=0))
    work.calls._providers["acme"] = RuntimeProvider(model=model)
    began = time.perf_counter()
    turns = [await run_to_end(work, definition) for _ in range(runs)]
    return statistics.mean(turns), (time.perf_counter() - began) / runs * 1e6


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000)
    runs = parser.parse_args().runs
    print("members  schema bytes  record bytes  compile us  check us")
    for members in (4, 40, 400):
        schema, record = record_schema(members), record_of(members)
        compiled = check_output_schema(schema)
        assert check_answer(compiled, record).result
        compile_us = median_us(partial(check_output_schema, schema))
        check_us = median_us(partial(check_answer, compiled, record))
        print(f"{members:7} {len(schema_text(schema)):13} {len(record):13} {compile_us:11.0f} {check_us:9.1f}")
    print("run                    turns   us")
    for name, definition in (("without a schema", PLAIN), ("4 members", typed(4)), ("40 members", typed(40))):
        turns, spent_us = await measure_runs(definition, runs)
        print(f"{name:20} {turns:7.1f} {spent_us:4.0f}")


if __name__ == "__main__":
    asyncio.run(main())
