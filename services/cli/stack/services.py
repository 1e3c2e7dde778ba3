"""The services as children of one supervisor: their order, environment and readiness.

    broker and Postgres     stack/local.py
    topics                  created or checked, here
    needed for a run        runtime, projector, api and grpc at once: imports take most of the time, on few cores
    secondary               spare runtimes, insights, and the auditor if there is a key: after the rest; nothing waits
                            for them

A service is `python -P -m services.<name>.main`; -P and PYTHONPATH make it the same code as this command line, whatever
the working directory contains.

Before: up.py, services/cli/runs/review.py. After: readiness.py, stack/supervisor.py.
"""

import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

import loomlog
from loomlog.connectors.client.http import PLAIN_HTTP
from loomlog.connectors.configuration.driver_options import kafka_options, postgres_options
from loomlog.connectors.errors import ConnectorError
from loomlog.redpanda.apply import apply
from loomlog.redpanda.cluster import ClusterProblem
from loomlog.redpanda.topics import Topic, TopicChange, TopicProblem, load_topics
from loomlog.services.cli.errors import CliError, Unreachable
from loomlog.services.cli.stack.child import ChildSpec, Requirement
from loomlog.services.cli.stack.plan import StackPlan
from loomlog.services.cli.stack.readiness import (
    EVENTS_TOPIC,
    ClaimProbe,
    ProjectionProbe,
    ReadinessProbe,
    grpc_probe,
    http_probe,
    role_probe,
)

PROGRAM_ROOT = Path(loomlog.__file__).parent.parent
READY_TIMEOUT_S = 60.0
"""Time for a service to become ready: 2 s normally; many times that during a first start on a busy machine."""
STOP_TIMEOUT_S = 5.0
"""The drain (plan.LOCAL_DRAIN_MS) and the shutdown after it."""
SIGNING_KEYS = ("LOOMLOG_AUDIT_KEY", "LOOMLOG_AUDIT_KEY_FILE")
"""Passed to the auditor alone: runtimes execute commands that models write."""
PEPPERS = ("LOOMLOG_OPERATOR_TOKEN_PEPPER", "LOOMCYCLE_OPERATOR_TOKEN_PEPPER")
"""Passed to the API alone, which finds tokens by their texts."""
PUBLIC_SUFFIX = ".pub"
"""End of the name of the file with the public half of a key, as `loomlog audit keygen` writes it."""
CONTENT_KEYS = (
    "LOOMLOG_ENCRYPTION_KEY",
    "LOOMLOG_ENCRYPTION_KEY_FILE",
    "LOOMLOG_ENCRYPTION_KEY_PREVIOUS",
    "LOOMLOG_SECRET_KEY",
    "LOOMLOG_SECRET_KEY_PREVIOUS",
    "LOOMCYCLE_SECRET_KEY",
    "LOOMCYCLE_SECRET_KEY_PREVIOUS",
)
"""Passed to services that see user content and the secrets of runs in plaintext: the API, the runtimes, and the
projector, which makes the search index of memory and seals the rows of entities.
"""
RUN_TOPICS = (
    "loom.run.commands",
    "loom.run.events",
    "loom.run.deltas",
    "loom.run.snapshots",
    "loom.audit.checkpoints",
    "loom.entity.commands",
    "loom.entity.events",
    "loom.entity.checkpoints",
    "loom.channel.commands",
    "loom.channel.events",
    "loom.channel.checkpoints",
    "loom.ingress",
)
"""Topics of runs, entities and channels, of their signatures, and of what comes from outside: the same number of
partitions, LOOMLOG_PARTITIONS of them, because partition n of each has one owner.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpecs:
    """Children ready to be started: first `needed`, all together, then `secondary`."""

    required: tuple[ChildSpec, ...]
    secondary: tuple[ChildSpec, ...]


def python_path(environ: Mapping[str, str]) -> str:
    """Return PYTHONPATH for another process of ours: it runs the same code as this one."""
    text = environ.get("PYTHONPATH", "")
    return f"{PROGRAM_ROOT}:{text}" if text else str(PROGRAM_ROOT)


async def apply_topics(
    bootstrap: str, *, replicas: int, environ: Mapping[str, str], check: bool = False
) -> list[TopicChange]:
    """Create or check the topics of topics.yaml and the settings. Raises CliError or Unreachable."""
    try:
        return await apply(bootstrap, topics=expected_topics(replicas, environ), check=check)
    except TopicProblem as problem:
        raise CliError(str(problem)) from problem
    except ClusterProblem as problem:
        raise Unreachable(f"{problem}. Is the broker up, and is the address right?") from problem


def expected_topics(replicas: int, environ: Mapping[str, str]) -> list[Topic]:
    """Return topics.yaml for that many replicas; LOOMLOG_PARTITIONS counts only when set, else the
    file's numbers do.
    """
    topics = load_topics("local" if replicas == 1 else "cluster", replicas=replicas)
    named = environ.get("LOOMLOG_PARTITIONS", "").strip()
    if not named:
        return topics
    return [replace(topic, partitions=int(named)) if topic.name in RUN_TOPICS else topic for topic in topics]


async def build_services(plan: StackPlan, *, kafka: str, postgres: str, exit_stack: AsyncExitStack) -> ServiceSpecs:
    """Return the services of a plan. Raises Unreachable.

    Their readiness probes are closed with `exit_stack`, which has to outlive the supervisor.
    """
    environ = {
        **{name: value for name, value in plan.environ.items() if name not in SIGNING_KEYS + CONTENT_KEYS + PEPPERS},
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_POSTGRES": postgres,
        "PYTHONPATH": python_path(plan.environ),
    }
    http = await exit_stack.enter_async_context(httpx.AsyncClient(trust_env=False, verify=PLAIN_HTTP))
    projecting = ProjectionProbe(
        postgres_options(plan.settings, "loomlog-up", dsn=postgres), same_clock=not plan.settings.postgres
    )
    exit_stack.push_async_callback(projecting.close)
    claimed = None
    try:
        await projecting.start()
        if not plan.settings.kafka:
            claimed = await _open_claim_probe(plan, kafka, exit_stack)
    except ConnectorError as error:
        raise Unreachable(f"{error}.") from error
    make = _ServiceFactory(environ)
    reading = _ServiceFactory(
        {**environ, **{name: plan.environ[name] for name in CONTENT_KEYS if name in plan.environ}}
    )
    needed = (
        *_runtime_specs(reading, plan, claimed.check if claimed is not None else None),
        reading.create("projector", ready=projecting.check),
        reading.create(
            "api",
            url=plan.api_url,
            ready=http_probe(http, f"{plan.api_url}/readyz"),
            extra_environ=_of_api(plan),
        ),
    )
    if plan.grpc_addr:
        ready = grpc_probe(plan.grpc_addr, has_tls=plan.settings.grpc_tls_cert is not None)
        needed += (reading.create("grpc", url=f"grpc://{plan.grpc_addr}", ready=ready),)
    beside = _spare_specs(reading, plan)
    if plan.insights_url:
        url = plan.insights_url
        ready = http_probe(http, f"{url}/healthz")
        beside += (make.create("insights", required="never", url=url, ready=ready),)
    if plan.settings.audit_key or plan.settings.audit_key_file:
        keys = {name: plan.environ[name] for name in SIGNING_KEYS if name in plan.environ}
        beside += (make.create("auditor", required="to begin", extra_environ=keys),)
    return ServiceSpecs(required=needed, secondary=beside)


@dataclass(frozen=True, slots=True)
class _ServiceFactory:
    """Settings that all services share."""

    environ: Mapping[str, str] = field(repr=False)

    def create(
        self,
        module: str,
        *,
        name: str = "",
        required: Requirement = "always",
        url: str = "",
        ready: ReadinessProbe | None = None,
        extra_environ: Mapping[str, str] | None = None,
    ) -> ChildSpec:
        return ChildSpec(
            name=name or module,
            required=required,
            argv=(sys.executable, "-P", "-m", f"loomlog.services.{module}.main"),
            environment={**self.environ, **(extra_environ or {})},
            url=url,
            ready=ready,
            ready_timeout_s=READY_TIMEOUT_S,
            stop_timeout_s=STOP_TIMEOUT_S,
        )


def _of_api(plan: StackPlan) -> Mapping[str, str]:
    """Return what the API has and no other service."""
    return {**_public_audit_keys(plan), **{name: plan.environ[name] for name in PEPPERS if name in plan.environ}}


def _public_audit_keys(plan: StackPlan) -> Mapping[str, str]:
    """Return the setting by which the API finds the public half of the auditor's key, unless it names others."""
    if plan.settings.audit_public_keys is not None or plan.settings.audit_key_file is None:
        return {}
    key_file = plan.settings.audit_key_file
    public_file = key_file.with_name(f"{key_file.name}{PUBLIC_SUFFIX}").absolute()
    return {"LOOMLOG_AUDIT_PUBLIC_KEYS": str(public_file)} if public_file.is_file() else {}


def _runtime_specs(factory: _ServiceFactory, plan: StackPlan, ready: ReadinessProbe | None) -> tuple[ChildSpec, ...]:
    if plan.runtimes == 1:
        return (factory.create("runtime", ready=ready),)
    return tuple(_numbered_runtime(factory, plan, number, ready=ready) for number in range(1, plan.runtimes + 1))


def _spare_specs(factory: _ServiceFactory, plan: StackPlan) -> tuple[ChildSpec, ...]:
    """Return the runtimes that are started in addition. Their names do not say so: the roles change at each death."""
    numbers = range(plan.runtimes + 1, plan.runtimes + plan.spares + 1)
    return tuple(
        # The stack goes on without it, as it did before it was there.
        _numbered_runtime(factory, plan, number, required="never", ready=_spare_probe(plan, number))
        for number in numbers
    )


def _spare_probe(plan: StackPlan, number: int) -> ReadinessProbe | None:
    """Return a probe of the role; None where no role is to be seen, or where runtimes elsewhere may have it."""
    settings = plan.settings
    if settings.kafka or not settings.standby_addr or not settings.metrics_enabled:
        return None
    return role_probe(plan.record, f"runtime-{number}")


def _numbered_runtime(
    factory: _ServiceFactory,
    plan: StackPlan,
    number: int,
    *,
    ready: ReadinessProbe | None,
    required: Requirement = "always",
) -> ChildSpec:
    replica = plan.environ.get("LOOMLOG_REPLICA_ID", "").strip()
    return factory.create(
        "runtime",
        name=f"runtime-{number}",
        required=required,
        ready=ready,
        # Two processes of one name would look like one in claims and metrics.
        extra_environ={"LOOMLOG_REPLICA_ID": f"{replica}-{number}"} if replica else None,
    )


async def _open_claim_probe(plan: StackPlan, kafka: str, exit_stack: AsyncExitStack) -> ClaimProbe:
    topics = expected_topics(plan.settings.replication_factor, plan.environ)
    partitions = next(topic.partitions for topic in topics if topic.name == EVENTS_TOPIC)
    claimed = ClaimProbe(kafka_options(plan.settings, "loomlog-up", bootstrap=kafka), partitions)
    exit_stack.push_async_callback(claimed.close)
    await claimed.start()
    return claimed
