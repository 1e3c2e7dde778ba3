"""What the stack of `make bench-web` runs: a long run, a model that types, runs that come and go, a list that is full.

    bench     A3x2, without a model that waits: runs that come and go
    author    the agent of the scripted model (tests/browser/scripted_model.py): the long run, and typing

Before: web.py. After: the parts (web_paint.py, web_run.py, web_list.py, web_token.py, web_tabs.py).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg

from tests.benchmarks.main import Stack
from tests.benchmarks.topic_client import open_client
from tests.benchmarks.workload import CONFIGURATION
from tests.browser.scripted_model import Gate, ScriptedModel, Step
from tests.browser.site import Caller

AUTHOR = "author"
KEY_ENV = "LOOMLOG_BENCH_WEB_KEY"
TURNS_MAX = 1_000
AGENT_TEXT = f"""\
  {AUTHOR}:
    provider: author
    model: author-1
    tools: [Bench]
    max_iterations: {TURNS_MAX}
    disable_context: true
    system_prompt: "You are measured."
"""
CALLS_A_TURN = 8
EVENTS_A_TURN = 2 + 2 * CALLS_A_TURN
"""A model call and its reply, and a request and a result for every call of a tool."""
LONG_PROMPT, TYPED_PROMPT = "Look through everything", "Write as people read, number"
TOKEN_EVERY_S = 0.03
"""Between two tokens: a fast model of today."""
PROJECTED_WITHIN_S = 60.0
POLL_S = 0.05
FIRST_ROW_S = 0.02
"""Between the starts of the filled rows; less than a second, so that most of them are of this day."""


def configuration(model_port: int) -> str:
    """The file of the stack."""
    provider = f'  author: {{ driver: openai, base_url: "http://127.0.0.1:{model_port}/v1", api_key_env: {KEY_ENV} }}\n'
    return (
        "concurrency: { max_concurrent_runs: 20000 }\n"
        + CONFIGURATION.replace("agents:\n", provider + "agents:\n")
        + AGENT_TEXT
    )


def long_script(events: int) -> Sequence[Step]:
    """Steps of a run that has at least so many events."""
    turns = -(-events // EVENTS_A_TURN)
    calls: Sequence[tuple[str, Mapping[str, Any]]] = [("Bench", {})] * CALLS_A_TURN
    said = "Round **{}** of the files:\n\n1. what was found\n2. what `comes` next"
    return [*(Step(say=said.format(turn), calls=calls) for turn in range(1, turns + 1)), Step(say="That was all.")]


def long_run(caller: Caller, model: ScriptedModel, events: int) -> tuple[str, int]:
    """A run with at least so many events, ended and projected; its id, and how many it has."""
    run_id = caller.finish(model.play(LONG_PROMPT, long_script(events)), agent=AUTHOR)
    records = 0

    def is_whole() -> bool:
        nonlocal records
        run = caller.ask("GET", f"/v1/runs/{run_id}")
        records = int(caller.ask("GET", f"/v1/runs/{run_id}/state")["last_seq"]) if run["status"] == "completed" else 0
        return records >= events

    until(is_whole)
    return run_id, records


class Beat(Gate):
    """The pause between two tokens; `at_s` is time.time() when it was over."""

    def __init__(self, pause_s: float = TOKEN_EVERY_S) -> None:
        super().__init__()
        self.at_s = 0.0
        self._pause_s = pause_s

    def wait(self, timeout: float | None = None) -> bool:
        super().wait(self._pause_s)
        self.at_s = time.time()
        return True


def token_text(number: int) -> str:
    """Token of that number. `number_of_last` finds it again."""
    return f"w{number:05d} "


def typed_script(beats: Sequence[Beat]) -> Sequence[Step]:
    """One answer: a token after every beat."""
    return [Step(say=[piece for number, beat in enumerate(beats, 1) for piece in (beat, token_text(number))])]


def fill_rows(stack: Stack, rows: int) -> None:
    """So many rows of ended runs in the read models, copied from one that is there: only their lists are looked at."""
    with psycopg.connect(stack.postgres, autocommit=True) as connection:
        columns = [row[0] for row in connection.execute(COLUMNS).fetchall()]
        changed = {
            "run_id": "'r_' || lpad(number::text, 26, '0')",
            "agent_id": "'a_' || lpad(number::text, 26, '0')",
            "user_id": "'user-' || number %% 97",
            "started_at_ms": f"started_at_ms - (number * {FIRST_ROW_S * 1000})::bigint",
            "completed_at_ms": f"completed_at_ms - (number * {FIRST_ROW_S * 1000})::bigint",
            "root_run_id": "'r_' || lpad(number::text, 26, '0')",
        }
        listed = ", ".join(f'"{name}"' for name in columns)
        chosen = ", ".join(changed.get(name, f'"{name}"') for name in columns)
        connection.execute(
            f"INSERT INTO loom.runs ({listed}) SELECT {chosen} FROM "  # names of its own columns
            "(SELECT * FROM loom.runs WHERE status = 'completed' ORDER BY started_at_ms LIMIT 1) AS one, "
            "generate_series(1, %s) AS number".encode(),
            [rows],
        )
        connection.execute("ANALYZE")


COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = 'loom' AND table_name = 'runs' ORDER BY ordinal_position
"""


def until(is_so: Callable[[], bool], within_s: float = PROJECTED_WITHIN_S) -> None:
    """Wait for a condition. Raises TimeoutError."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {within_s} s")
        time.sleep(POLL_S)


@contextmanager
def runs_beside(stack: Stack, per_s: float) -> Iterator[None]:
    """Runs of A3x2 at a steady rate, started through the log, so that they cost the api only what it reads."""
    over = threading.Event()

    async def start() -> None:
        async with open_client(stack.kafka) as client:
            running = set[asyncio.Task[None]]()
            loop = asyncio.get_running_loop()
            next_s = loop.time()
            while not over.is_set():
                task = asyncio.create_task(client.run_once())
                running.add(task)
                task.add_done_callback(running.discard)
                next_s += 1 / per_s
                await asyncio.sleep(max(0.0, next_s - loop.time()))
            await asyncio.gather(*running, return_exceptions=True)

    with ThreadPoolExecutor(1) as threads:
        work = threads.submit(asyncio.run, start())
        try:
            yield
        finally:
            over.set()
        work.result(PROJECTED_WITHIN_S)


def api_client(stack: Stack) -> Caller:
    return Caller(f"http://{stack.api}", "")


def answer_times_ms(client: httpx.Client, path: str, seconds: float, every_s: float) -> list[float]:
    """Milliseconds of each answer, asked one after the other."""
    took, until_s = [], time.monotonic() + seconds
    while time.monotonic() < until_s:
        began = time.perf_counter()
        client.get(path).raise_for_status()
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(every_s)
    return took
