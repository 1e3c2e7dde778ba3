"""A stack to be hit: broker, Postgres, two runtimes, projector and api, each a process that can be struck by its name.

One supervisor (the product's own) starts everything and starts again whatever ends, at once and as often as it takes:
a campaign kills the same process many times, which would make a patient supervisor give up. What ends by itself is
started again too, and counted.

Two runtimes, so that a take-over by the other process is exercised as well as a restart of the same.

Before: campaign.  After: services.cli.stack.
"""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx

from redpanda.apply import apply
from services.cli.stack.broker import Broker
from services.cli.stack.child import Child, Exit
from services.cli.stack.children import Supervisor
from services.cli.stack.home import open_home
from services.cli.stack.logfile import tail
from services.cli.stack.ports import pick_port
from services.cli.stack.postgres import Postgres
from services.cli.stack.record import ChildRecord
from tests.conftest import CACHE

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
SESSION_TIMEOUT_MS = 1_000
"""Take-overs within a second or two; in production it is three times that."""
RUNTIMES = ("runtime-1", "runtime-2")
RESTART_PAUSE_S = 0.2
"""Before what ended by itself is started again, so that a lost broker is not met by a storm of starts."""
READY_TIMEOUT_S = 60.0
ENDING = frozenset({signal.SIGKILL, signal.SIGTERM})
"""Signals after which a process is gone."""
NEVER_GIVES_UP = 1_000_000
AGENT = "worker"
CONFIGURATION = f"""\
providers:
  mock: {{ driver: mock, options: {{ enabled: true }} }}
agents:
  {AGENT}:
    provider: mock
    model: mock-ledger
    tools: [Ledger]
    disable_context: true
    system_prompt: "You are struck."
"""
KNOBS = {"LOOMLOG_MOCK_LATENCY_MS": "150", "LOOMLOG_MOCK_LATENCY_JITTER_MS": "150"}
"""Four turns of 150 to 300 ms and three rounds of calls of 150 ms: a run takes one to two seconds."""


class Rig:
    """The running stack. Names of processes: kafka, postgres, runtime-1, runtime-2, projector, api."""

    def __init__(self, folder: Path, *, effect: str, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.effect = effect
        self.ledger = folder / "ledger"
        self.kafka = ""
        self.postgres = ""
        self.api = ""
        self.own_ends: Counter[str] = Counter()
        """Processes that ended without being struck, by name and exit code."""
        self._say = say
        self._struck: dict[str, int] = {}
        self._been_up: set[str] = set()
        self._lives: Counter[str] = Counter()
        self._changed = asyncio.Condition()
        self.supervisor = Supervisor(
            logs=folder / "home" / "logs",
            record=self._recorded,
            say=self._quietly,
            first_pause_s=RESTART_PAUSE_S,
            max_restarts=NEVER_GIVES_UP,
        )

    async def strike(self, name: str, number: signal.Signals = signal.SIGKILL) -> tuple[int, float]:
        """Signal a process as soon as it is up; its pid and the moment. Raises TimeoutError when it never is."""
        pid = await self.up(name)
        if number in ENDING:
            self._struck[name] = pid
        os.kill(pid, number)
        return pid, time.monotonic()

    async def up(self, name: str, *, other_than: int = 0) -> int:
        """The pid of a process once it is ready. Raises TimeoutError."""
        async with asyncio.timeout(READY_TIMEOUT_S), self._changed:
            while (pid := self._pid(name)) is None or pid == other_than:
                await self._changed.wait()
            return pid

    def log(self, name: str) -> Path:
        return self.folder / "home" / "logs" / f"{name}.log"

    def kept(self, child: Child) -> Child:
        """The child, started again at once whenever it ends, and counted when nobody struck it."""

        async def after_exit(exit_: Exit) -> bool:
            again = child.after_exit is not None and await child.after_exit(exit_)
            if exit_.asked:
                return again
            if exit_.was_ready:
                self._been_up.add(child.name)
            if self._struck.pop(child.name, None) is not None:
                return True
            end = f"{child.name}, exit code {exit_.code}"
            self.own_ends[end] += 1
            if self.own_ends[end] == 1:
                self._say(f"{end}, although nobody struck it; its log ends with:\n{tail(self.log(child.name))}")
            if child.name not in self._been_up:
                return again  # a first start that fails is a message, not a loop
            await asyncio.sleep(RESTART_PAUSE_S)
            return True

        return replace(child, after_exit=after_exit)

    def service(self, name: str, module: str, environment: Mapping[str, str]) -> Child:
        """A service that calls itself by another name in each of its lives, so that claims tell which one made them."""

        async def before_start() -> tuple[str, ...]:
            self._lives[name] += 1
            told = f"LOOMLOG_REPLICA_ID={self.life(name)}"
            return ("env", told, sys.executable, "-P", "-m", f"services.{module}.main")

        return Child(name=name, environment=environment, cwd=self.folder, before_start=before_start)

    def life(self, name: str) -> str:
        """What the process of that name calls itself now."""
        return f"{name}.{self._lives[name]}"

    def is_up(self, name: str) -> bool:
        return self._pid(name) is not None

    def _pid(self, name: str) -> int | None:
        """Of the process when it is ready and not struck; None otherwise."""
        found = next((child for child in self.supervisor.children() if child.name == name), None)
        if found is None or found.state != "ready" or found.pid == self._struck.get(name):
            return None
        return found.pid

    async def _recorded(self, children: Sequence[ChildRecord]) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _quietly(self, line: str) -> None:
        if "starting it again" not in line:
            self._say(line)


@asynccontextmanager
async def open_rig(folder: Path, *, effect: str, say: Callable[[str], None]) -> AsyncIterator[Rig]:
    """Everything up and ready, in a folder of its own, on free ports; all of it stopped afterwards.

    `effect` is what may be done about a lost call of the ledger: unsafe (nothing) or idempotent (again, same key).
    """
    rig = Rig(folder, effect=effect, say=say)
    home = open_home(folder / "home", cache=CACHE)
    ports = [pick_port() for _ in range(4)]
    broker = Broker(home=home, port=ports[0], controller_port=ports[1], environ=os.environ, say=say)
    database = Postgres(home=home, port=ports[2], environ=os.environ, say=say)
    rig.kafka, rig.postgres, rig.api = broker.bootstrap, database.dsn, f"http://127.0.0.1:{ports[3]}"
    await asyncio.to_thread((folder / "loomlog.yaml").write_text, CONFIGURATION)
    async with rig.supervisor as supervisor, httpx.AsyncClient(trust_env=False) as client:
        await supervisor.start(rig.kept(broker.child()), rig.kept(await database.child()))
        await apply(rig.kafka, partitions=PARTITIONS)
        environment = environment_of(rig, ports[3])
        services = [
            rig.service("projector", "projector", environment),
            replace(rig.service("api", "api", environment), ready=partial(_answers, client, f"{rig.api}/readyz")),
        ]
        for name in RUNTIMES:
            port = pick_port()
            told = environment | {"LOOMLOG_RUNTIME_METRICS_PORT": str(port)}
            page = f"http://127.0.0.1:{port}/metrics"
            services.append(replace(rig.service(name, "runtime", told), ready=partial(_answers, client, page)))
        await supervisor.start(*map(rig.kept, services))
        yield rig


def environment_of(rig: Rig, api_port: int) -> dict[str, str]:
    """What every service is told; nothing of this machine's own settings reaches it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LOOMLOG_", "LOOMCYCLE_"))}
    return inherited | KNOBS | {
        "PYTHONPATH": str(ROOT),
        "LOOMLOG_HOME": str(rig.folder / "home"),
        "LOOMLOG_CONFIG_FILES": str(rig.folder / "loomlog.yaml"),
        "LOOMLOG_KAFKA": rig.kafka,
        "LOOMLOG_POSTGRES": rig.postgres,
        "LOOMLOG_LISTEN_ADDR": f"127.0.0.1:{api_port}",
        "LOOMLOG_OPEN_MODE": "1",
        "LOOMLOG_MOCK_ENABLED": "1",
        "LOOMLOG_LEDGER_PATH": str(rig.ledger),
        "LOOMLOG_LEDGER_EFFECT": rig.effect,
        "LOOMLOG_SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
    }  # fmt: skip


async def _answers(client: httpx.AsyncClient, url: str) -> str | None:
    try:
        answer = await client.get(url)
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    return None if answer.status_code == 200 else f"{answer.status_code}: {answer.text[:200]}"
