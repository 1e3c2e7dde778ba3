"""A stack to be hit, in a folder of its own, on free ports: brokers, Postgres, two runtimes, projector, api.

One broker as `loomlog up` has it, or a cluster of three with every partition on each. Two runtimes, so that a take-over
by the other process is exercised as well as a restart of the same. Beside it the outside world, which is never struck.

Agents make the load mixed: `sprinter` is over in a tenth of a second, `worker` and `rememberer` take one to two,
`caller` five to fifteen, because its model and the server it calls are slow.

Before: campaign.  After: rig.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx

from loomlog.redpanda.apply import apply
from loomlog.redpanda.topics import Profile
from loomlog.services.cli.stack.broker import NAME as BROKER
from loomlog.services.cli.stack.broker import Broker
from loomlog.services.cli.stack.child import ChildSpec
from loomlog.services.cli.stack.home import Home, open_home
from loomlog.services.cli.stack.ports import LOOPBACK, pick_port
from loomlog.services.cli.stack.postgres import Postgres
from tests.chaos.cluster import Cluster, broker_name
from tests.chaos.payment_blocks import AGENTS as PAYMENT_AGENTS
from tests.chaos.payment_blocks import servers_of
from tests.chaos.rig import Rig
from tests.chaos.trigger_blocks import AGENTS, TOKEN, TOKEN_ENV
from tests.chaos.trigger_blocks import CONFIGURATION as TRIGGERS
from tests.conftest import CACHE

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
RUNTIMES = ("runtime-1", "runtime-2")
WORKER, SPRINTER, CALLER, REMEMBERER = "worker", "sprinter", "caller", "rememberer"
KNOBS = {"LOOMLOG_MOCK_LATENCY_MS": "150", "LOOMLOG_MOCK_LATENCY_JITTER_MS": "150"}
"""Four turns of 150 to 300 ms and three rounds of calls of 150 ms: a worker takes one to two seconds."""
CONFIGURATION = """\
providers:
  mock: {{ driver: mock, options: {{ enabled: true }} }}
  quick: {{ driver: mock, options: {{ enabled: true, latency_ms: 10, latency_jitter_ms: 20 }} }}
  outside: {{ driver: openai, base_url: "{outside}/v1" }}
agents:
  worker:
    provider: mock
    model: mock-ledger
    tools: [Ledger]
    disable_context: true
    system_prompt: "You are struck."
  sprinter:
    provider: quick
    model: mock-a3x2
    tools: [Bench]
    disable_context: true
    system_prompt: "You are fast."
  caller:
    provider: outside
    model: outside
    tools: [HTTP]
    disable_context: true
    system_prompt: "You are slow."
  rememberer:
    provider: mock
    model: mock-memory
    tools: [Memory]
    memory_scopes: [user]
    disable_context: true
    system_prompt: "You remember."
"""


@asynccontextmanager
async def open_rig(
    folder: Path, *, brokers: int, effect: str, session_s: float, standby: bool, say: Callable[[str], None]
) -> AsyncIterator[Rig]:
    """Everything up and ready; all of it stopped afterwards.

    `brokers` is 1 or 3. `effect` is what may be done about a lost call of the ledger: unsafe (nothing) or idempotent
    (again, same key). `session_s` is how long the group waits for an owner that says nothing. `standby`: the runtimes
    stand by for one another.
    """
    rig = Rig(folder, effect=effect, session_s=session_s, say=say)
    home = open_home(folder / "home", cache=CACHE)
    database = Postgres(home=home, port=pick_port(), environ=os.environ, report=say)
    api_port = pick_port()
    rig.postgres, rig.api = database.dsn, f"http://{LOOPBACK}:{api_port}"
    outside = f"http://{LOOPBACK}:{pick_port()}"
    await asyncio.to_thread(
        (folder / "loomlog.yaml").write_text,
        CONFIGURATION.format(outside=outside) + AGENTS + PAYMENT_AGENTS + TRIGGERS + servers_of(str(rig.notes)),
    )
    rig.notes.touch()
    async with rig.supervisor as supervisor, httpx.AsyncClient(trust_env=False) as client:
        log = await _brokers(rig, home, brokers, say)
        environment = environment_of(rig, api_port)
        world = _outside(rig, outside, environment)
        await supervisor.start(
            *map(rig.kept, log),
            rig.kept(await database.child()),
            replace(world, ready=partial(_answers, client, f"{outside}/ready")),
        )
        await apply(rig.kafka, partitions=PARTITIONS, profile=profile_of(rig))
        services = [
            rig.service("projector", "projector", environment),
            replace(rig.service("api", "api", environment), ready=partial(_answers, client, f"{rig.api}/readyz")),
        ]
        for name in RUNTIMES:
            port = pick_port()
            values = environment | {"LOOMLOG_RUNTIME_METRICS_PORT": str(port)}
            if not standby:
                values["LOOMLOG_STANDBY_ADDR"] = "off"
            page = f"http://{LOOPBACK}:{port}/metrics"
            services.append(replace(rig.service(name, "runtime", values), ready=partial(_answers, client, page)))
        await supervisor.start(*map(rig.kept, services))
        yield rig


def profile_of(rig: Rig) -> Profile:
    """The profile of topics.yaml that fits the brokers."""
    return "local" if rig.cluster is None else "cluster"


async def _brokers(rig: Rig, home: Home, count: int, say: Callable[[str], None]) -> Sequence[ChildSpec]:
    assert count in (1, 3), f"{count} brokers: expected 1 or 3"
    if count == 1:
        broker = Broker(home=home, port=pick_port(), controller_port=pick_port(), environ=os.environ, report=say)
        rig.kafka, rig.brokers = broker.bootstrap, (BROKER,)
        return (broker.child(),)
    cluster = Cluster(rig.folder / "cluster", cache=home.cache, say=say)
    await cluster.prepare()
    rig.kafka, rig.cluster = cluster.bootstrap, cluster
    rig.brokers = tuple(broker_name(node.number) for node in cluster.nodes)
    return cluster.children()


def _outside(rig: Rig, url: str, environment: Mapping[str, str]) -> ChildSpec:
    port = url.rpartition(":")[2]
    argv = (sys.executable, "-P", "-m", "tests.chaos.outside", port, str(rig.ledger))
    return ChildSpec(name="outside", argv=argv, environment=environment, cwd=rig.folder)


def environment_of(rig: Rig, api_port: int) -> dict[str, str]:
    """What every service is told; nothing of this machine's own settings reaches it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LOOMLOG_", "LOOMCYCLE_"))}
    return inherited | KNOBS | {
        "PYTHONPATH": str(ROOT),
        "LOOMLOG_HOME": str(rig.folder / "home"),
        "LOOMLOG_CONFIG_FILES": str(rig.folder / "loomlog.yaml"),
        "LOOMLOG_KAFKA": rig.kafka,
        "LOOMLOG_POSTGRES": rig.postgres,
        "LOOMLOG_LISTEN_ADDR": f"{LOOPBACK}:{api_port}",
        "LOOMLOG_OPEN_MODE": "1",
        TOKEN_ENV: TOKEN,
        "LOOMLOG_MOCK_ENABLED": "1",
        "LOOMLOG_BENCH_ENABLED": "1",
        "LOOMLOG_CODE_AGENTS_ENABLED": "1",
        "LOOMLOG_LEDGER_PATH": str(rig.ledger),
        "LOOMLOG_LEDGER_EFFECT": rig.effect,
        "LOOMLOG_HTTP_HOST_ALLOWLIST": LOOPBACK,
        "LOOMLOG_HTTP_PRIVATE_HOST_ALLOWLIST": LOOPBACK,
        "LOOMLOG_SESSION_TIMEOUT_MS": str(round(rig.session_s * 1000)),
    }  # fmt: skip


async def _answers(client: httpx.AsyncClient, url: str) -> str | None:
    try:
        answer = await client.get(url)
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    return None if answer.status_code == 200 else f"{answer.status_code}: {answer.text[:200]}"
