"""The checks of `loomlog doctor`: prerequisites, and the health of what runs. None changes anything.

Where the stack itself would report a problem at the start, the same function is called and its message is shown.

Before: doctor.py. After: stack/, services/cli/stack/plan.py, status.py.
"""

import asyncio
import os
import platform
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loomlog.connectors.configuration.driver_options import kafka_options
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import ProcessConfiguration, load
from loomlog.connectors.configuration.principals import is_loopback_listen_addr
from loomlog.connectors.configuration.providers import build_providers, run_key_provider_ids, usable_provider_ids
from loomlog.connectors.configuration.resolve import UnresolvedAgent, resolve_agent
from loomlog.connectors.configuration.volumes import check_volumes
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, count_partitions, open_ranges
from loomlog.connectors.kafka.schema_registry import load_codec
from loomlog.services.application.health.components import (
    DEAD_LETTERS,
    READ_MODELS,
    dead_letters_check,
    insights_check,
    read_models_check,
    replica_checks,
    topics_check,
    unreadable_check,
    unsigned_check,
    unsigned_log_check,
)
from loomlog.services.cli.doctor.entity_checks import check_entities, check_recovery
from loomlog.services.cli.doctor.status import collect_status
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.log.audit import oldest_unsigned_age_s, verify_newest
from loomlog.services.cli.log.dead_letters import count_open_letters
from loomlog.services.cli.settings import CLIENT_ID, CliSettings
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.java import INSTALL_MAVEN_HINT, find_java
from loomlog.services.cli.stack.liveness import is_suspended
from loomlog.services.cli.stack.ports import KAFKA_PORT, POSTGRES_PORT, describe_port_holder, is_port_free, load_ports
from loomlog.services.cli.stack.postgres import PostgresError, find_programs, needed_connections, read_max_connections
from loomlog.services.cli.stack.services import apply_topics
from loomlog.services.cli.terminal.formatting import pluralize, size
from loomlog.services.core.check import FAIL, OK, WARN, Check
from loomlog.services.families.process_start import CHECKS_OF_CONTENT, apply_checks
from loomlog.services.families.registry import all_families, family_tools
from loomlog.services.stream.entities.hosting import build_entity_parts
from loomlog.services.stream.entities.replicas import Replicas
from loomlog.services.stream.family import Topics

MINIMUM_PYTHON = (3, 11)
REVIEWER = "reviewer"
STALL_REMEDIES = {
    "silent": "A silent one does not answer: after `kill -9` of its process it is restarted; its log has the reason",
    "suspended": "A suspended one was stopped (SIGSTOP): `kill -CONT` of its process continues it",
}
VERIFIED_CHECKPOINTS = 10
"""Newest checkpoints of each partition whose records are verified."""
VERIFY_TIMEOUT_S = 10.0
"""Time limit of that, in seconds."""


async def run_checks(cli: CliSettings, working_directory: Path) -> list[Check]:
    """Run all checks, in the order in which a start needs their subjects."""
    checks = [_check_python(), _check_disk(cli), *_check_configuration(cli, working_directory)]
    if not cli.settings.kafka:
        checks += [await _check_java(cli), _check_jars(cli)]
    if not cli.settings.postgres:
        checks.append(_check_postgres_programs())
    if cli.stack.is_supervised:
        checks += await _check_running_stack(cli)
    else:
        checks += [*_check_ports(cli), _check_leftovers(cli)]
    return checks


# --- to start with ----------------------------------------------------------------------------------------------------


def _check_python() -> Check:
    version = platform.python_version()
    if sys.version_info < MINIMUM_PYTHON:
        remedy = "loomlog uses asyncio.timeout and TaskGroup. Get one with apt-get, pyenv or uv, then `make run`."
        return Check(name="python", state=FAIL, text=f"{version}, needed is 3.11 or later", remedy=remedy)
    if not is_optimised_python(sys.base_prefix, sysconfig.get_config_var("CONFIG_ARGS") or ""):
        remedy = "One with it takes 15 to 20 % less CPU: `make clean`, then `make PYTHON=/usr/bin/python3 run`."
        text = f"{version} at {sys.executable}, built without profile-guided optimisation"
        return Check(name="python", state=WARN, text=text, remedy=remedy)
    return Check(name="python", state=OK, text=f"{version} at {sys.executable}")


def is_optimised_python(base_prefix: str, configure_arguments: str) -> bool:
    """Return whether an interpreter was built with profile-guided optimisation, as those of distributions are."""
    return base_prefix == "/usr" or "--enable-optimizations" in configure_arguments


def _check_disk(cli: CliSettings) -> Check:
    root = cli.home.root
    existing = next(folder for folder in (root, *root.parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if not os.access(existing, os.W_OK):
        remedy = "The log, the database and reports are kept there. Repair its rights, or set LOOMLOG_HOME."
        return Check(name="state folder", state=FAIL, text=f"{existing} cannot be written", remedy=remedy)
    needed = cli.home.needed_bytes
    if free < needed:
        remedy = f"A start needs {size(needed)}. Free some space, or set LOOMLOG_HOME to another disk."
        if cli.stack.is_supervised:
            remedy = f"What dies of it waits until {size(needed)} are free and then goes on by itself. Free some space."
        return Check(name="state folder", state=FAIL, text=f"{root}, {size(free)} free", remedy=remedy)
    return Check(name="state folder", state=OK, text=f"{root}, {size(free)} free")


def _check_configuration(cli: CliSettings, working_directory: Path) -> list[Check]:
    try:
        loaded = load(cli.environ, working_directory=working_directory, family_tools=family_tools())
    except ConfigurationError as problem:
        return [
            Check(
                name="configuration",
                state=FAIL,
                text=f"{pluralize(len(problem.findings), 'mistake')}; no service would start",
                remedy=str(problem),
            )
        ]
    files = ", ".join(str(file) for file in loaded.files) or "no file"
    agents = pluralize(len(loaded.configuration.agents), "agent")
    warnings = "\n".join(str(warning) for warning in loaded.warnings)
    return [
        Check(name="configuration", state=WARN if warnings else OK, text=f"{files}: {agents}", remedy=warnings),
        *_check_start(cli, loaded),
        _check_volumes(loaded),
        _check_models(cli, loaded),
        *_check_provider_keys(cli, loaded),
        _check_access(cli, loaded),
    ]


def _check_start(cli: CliSettings, loaded: ProcessConfiguration) -> list[Check]:
    """Return a line for what would end the start of a runtime although the files are well-formed; none if nothing."""
    try:
        apply_checks(CHECKS_OF_CONTENT, loaded, cli.environ)
    except ConfigurationError as problem:
        text = f"{pluralize(len(problem.findings), 'mistake')}; no runtime would start"
        return [Check(name="start", state=FAIL, text=text, remedy=str(problem))]
    return []


def _check_volumes(loaded: ProcessConfiguration) -> Check:
    volumes = loaded.configuration.volumes
    try:
        missing = "\n".join(str(warning) for warning in check_volumes(loaded.configuration))
    except ConfigurationError as problem:
        text = f"{pluralize(len(problem.findings), 'folder')} cannot be made; no runtime would start"
        return Check(name="volumes", state=FAIL, text=text, remedy=str(problem))
    return Check(name="volumes", state=WARN if missing else OK, text=pluralize(len(volumes), "volume"), remedy=missing)


def _check_models(cli: CliSettings, loaded: ProcessConfiguration) -> Check:
    providers = build_providers(loaded.configuration, loaded.settings, cli.environ)
    usable = usable_provider_ids(providers.values())
    if REVIEWER not in loaded.configuration.agents:
        remedy = "`loomlog review` needs it. loomlog.yaml of the repository has one; LOOMLOG_CONFIG_FILES names files."
        return Check(name="models", state=WARN, text=f"there is no agent {REVIEWER}", remedy=remedy)
    agent = resolve_agent(loaded.configuration, REVIEWER, usable=usable)
    if isinstance(agent, UnresolvedAgent):
        why = "; ".join(f"{one.id}: {one.unusable_reason}" for one in providers.values() if not one.is_usable)
        return Check(name="models", state=FAIL, text=agent.message, remedy=f"Not usable: {why}")
    text = f"{REVIEWER} runs on {agent.provider}/{agent.model}"
    if providers[agent.provider].driver == "mock":
        remedy = (
            "That is a script, not a model. Set ANTHROPIC_API_KEY or OPENAI_API_KEY and start again for a real one."
        )
        return Check(name="models", state=WARN, text=text, remedy=remedy)
    return Check(name="models", state=OK, text=text)


def _check_provider_keys(cli: CliSettings, loaded: ProcessConfiguration) -> list[Check]:
    """Return a line for the providers that only runs with a key of their own can use; none if there are no such
    providers.
    """
    providers = build_providers(loaded.configuration, loaded.settings, cli.environ)
    of_runs = run_key_provider_ids(providers.values(), loaded.settings)
    if not of_runs:
        return []
    named = ", ".join(f"{one.id} ({one.api_key_env})" for one in providers.values() if one.id in of_runs)
    return [Check(name="provider keys", state=OK, text=f"only for runs that bring the key as a credential: {named}")]


def _check_access(cli: CliSettings, loaded: ProcessConfiguration) -> Check:
    settings = loaded.settings
    if settings.auth_token or loaded.configuration.principals or loaded.configuration.issuers:
        if not cli.token:
            remedy = "The command line shows no token: set LOOMLOG_TOKEN to one of those."
            return Check(name="access", state=WARN, text="by token", remedy=remedy)
        return Check(name="access", state=OK, text="by token")
    if all(map(is_loopback_listen_addr, settings.listen_addrs)):
        remedy = "Every user of this machine has access. LOOMLOG_AUTH_TOKEN requires a token."
        return Check(name="access", state=WARN, text=f"open, on {settings.listen_addr} only", remedy=remedy)
    remedy = "It would be open to the network, so nothing starts. Set LOOMLOG_AUTH_TOKEN, or listen on 127.0.0.1."
    return Check(
        name="access", state=FAIL, text=f"no token, but the API is to listen on {settings.listen_addr}", remedy=remedy
    )


async def _check_java(cli: CliSettings) -> Check:
    try:
        java = await find_java(cli.environ)
    except StackError as problem:
        return Check(name="java", state=FAIL, text="none that will do", remedy=str(problem))
    return Check(name="java", state=OK, text=f"Java {java.major} at {java.program}")


def _check_jars(cli: CliSettings) -> Check:
    if any(cli.home.cache.glob("jars-*/*.jar")):
        return Check(name="broker's jars", state=OK, text=f"in {cli.home.cache}")
    maven = shutil.which("mvn", path=cli.environ.get("PATH"))
    if maven is None:
        problem = "not there, and no Maven on the PATH to get them"
        return Check(name="broker's jars", state=FAIL, text=problem, remedy=INSTALL_MAVEN_HINT)
    return Check(name="broker's jars", state=OK, text=f"not there yet; the first start gets them with {maven} (43 MB)")


def _check_postgres_programs() -> Check:
    try:
        return Check(name="postgres", state=OK, text=f"programs in {find_programs()}")
    except StackError as problem:
        return Check(name="postgres", state=FAIL, text="its programs are not installed", remedy=str(problem))


def _check_ports(cli: CliSettings) -> list[Check]:
    settings = cli.settings
    known = load_ports(cli.home.ports)
    configured = {"LOOMLOG_LISTEN_ADDR": int(settings.listen_addr.rpartition(":")[2])}
    if settings.grpc_addr:
        configured["LOOMLOG_GRPC_ADDR"] = int(settings.grpc_addr.rpartition(":")[2])
    if settings.insights_enabled:
        configured["LOOMLOG_INSIGHTS_PORT"] = settings.insights_port
    if not settings.kafka:
        configured["LOOMLOG_KAFKA_PORT"] = settings.kafka_port or known.get("kafka", KAFKA_PORT)
    if not settings.postgres:
        configured["LOOMLOG_POSTGRES_PORT"] = settings.postgres_port or known.get("postgres", POSTGRES_PORT)
    taken = {name: port for name, port in configured.items() if port and not is_port_free(port)}
    if not taken:
        listed = ", ".join(str(port) for port in configured.values() if port)
        return [Check(name="ports", state=OK, text=f"{listed} are free")]
    return [
        Check(
            name="ports",
            state=FAIL,
            text=f"{port} is in use: {describe_port_holder(port)}",
            remedy=f"Nothing would start. Stop that, or choose another port with {name}.",
        )
        for name, port in taken.items()
    ]


def _check_leftovers(cli: CliSettings) -> Check:
    if cli.stack.has_orphans:
        names = ", ".join(child.name for child in cli.stack.running_children)
        remedy = "`loomlog down` stops it; `loomlog up` would stop it first and then start everything."
        return Check(
            name="earlier stack", state=WARN, text=f"{names} still running without a supervisor", remedy=remedy
        )
    return Check(name="earlier stack", state=OK, text="nothing left over")


# --- what runs --------------------------------------------------------------------------------------------------------


async def _check_running_stack(cli: CliSettings) -> list[Check]:
    status = await collect_status(cli)
    return [
        _check_children(status),
        *await _check_connections(cli, status),
        *_check_spares(status),
        *_check_clocks(status),
        await _check_topics(cli),
        *await _check_replicas(cli),
        await _check_audit(cli, status),
        await _check_dead_letters(cli),
        _check_component("api", status["api"], lambda part: f"{part['url']} is ready"),
        _check_read_models(status["projection"] or {"error": "Postgres is unreachable"}),
        *await check_entities(cli),
        *await check_recovery(status["children"]),
        _check_insights(status["insights"]),
    ]


async def _check_connections(cli: CliSettings, status: dict[str, Any]) -> list[Check]:
    """Compare the pools of the processes with what Postgres allows; a Postgres that is away is told elsewhere."""
    try:
        allowed = await read_max_connections(cli.postgres())
    except (CliError, PostgresError):
        return []
    names = [child["name"] for child in status["children"]]
    needed = needed_connections(
        runtimes=sum(name.startswith("runtime") for name in names),
        api_pool=cli.settings.postgres_max_connections,
        apis=max(1, names.count("api")),
    )
    text = f"{allowed} are allowed, and the processes open at most {needed}"
    remedy = "Raise max_connections of Postgres, lower LOOMLOG_POSTGRES_MAX_CONNECTIONS, or start fewer runtimes."
    if needed > allowed:
        return [Check(name="connections", state=WARN, text=text, remedy=remedy)]
    return [Check(name="connections", state=OK, text=text)]


def _check_children(status: dict[str, Any]) -> Check:
    children = status["children"]
    supervisor = status.get("supervisor_pid")
    if supervisor is not None and is_suspended(supervisor):
        remedy = f"Nothing that dies is started again. {STALL_REMEDIES['suspended']}."
        return Check(
            name="processes", state=FAIL, text=f"the supervisor is suspended (process {supervisor})", remedy=remedy
        )
    standing = [child for child in children if child["state"] in STALL_REMEDIES]
    if standing:
        listed = ", ".join(f"{child['name']} is {child['state']} (process {child['pid']})" for child in standing)
        remedy = f"{'. '.join(STALL_REMEDIES[state] for state in sorted({child['state'] for child in standing}))}."
        return Check(name="processes", state=FAIL, text=listed, remedy=f"{remedy} Nothing that was accepted is lost.")
    unwell = [f"{child['name']} is {child['state']}" for child in children if child["state"] != "ready"]
    restarted = [f"{child['name']} {child['restarts']} times" for child in children if child["restarts"]]
    if unwell:
        remedy = f"The logs in {status['logs']} say why; a child that keeps dying ends the stack."
        return Check(name="processes", state=FAIL, text=", ".join(unwell), remedy=remedy)
    if restarted:
        remedy = f"They died and were started again. The logs in {status['logs']} say why."
        return Check(name="processes", state=WARN, text=f"started again: {', '.join(restarted)}", remedy=remedy)
    return Check(name="processes", state=OK, text=f"{len(children)} run, none was started again")


def _check_spares(status: dict[str, Any]) -> list[Check]:
    """Check whether the spares wait; no line in a stack without spares, or whose runtimes tell no role."""
    expected = status["spares"]
    roles = [child["role"] for child in status["children"] if child["name"].startswith("runtime")]
    if not expected or not any(roles):
        return []
    waiting = roles.count("spare")
    text = f"{pluralize(waiting, 'runtime')} of {expected} ready to take over"
    if waiting >= expected:
        return [Check(name="spares", state=OK, text=text)]
    remedy = (
        "Until it waits, runs stand still for some seconds when their runtime dies. A runtime that was just started "
        f"needs some seconds; otherwise its log in {status['logs']} says why."
    )
    return [Check(name="spares", state=WARN, text=text, remedy=remedy)]


def _check_clocks(status: dict[str, Any]) -> list[Check]:
    """Check whether the runtimes believe their clocks; no line when none tells its role."""
    runtimes = [child for child in status["children"] if child["role"]]
    if not runtimes:
        return []
    wrong = [f"{child['name']}: {child['problem']}" for child in runtimes if child["problem"]]
    if not wrong:
        return [Check(name="clocks", state=OK, text="they agree with the broker's within a minute")]
    remedy = (
        "Set the clock of this machine, or of the broker's, with NTP; the runtime continues by itself within seconds."
    )
    return [Check(name="clocks", state=FAIL, text="; ".join(wrong), remedy=remedy)]


async def _check_audit(cli: CliSettings, status: dict[str, Any]) -> Check:
    """Check whether the auditor, which has no port, signs new records."""
    if not any(child["name"] == "auditor" for child in status["children"]):
        return unsigned_log_check()
    try:
        waits_s = await oldest_unsigned_age_s(cli)
    except (CliError, ConnectorError) as error:
        return Check(name="audit", state=FAIL, text="the signatures cannot be read", remedy=str(error))
    late = unsigned_check(waits_s, cli.settings.audit_every_ms / 1000, str(cli.home.logs))
    if late is not None:
        return late
    return await _verify_newest_records(cli)


async def _check_dead_letters(cli: CliSettings) -> Check:
    try:
        return dead_letters_check(await count_open_letters(cli))
    except (CliError, ConnectorError) as error:
        return Check(name=DEAD_LETTERS, state=FAIL, text="they cannot be read", remedy=str(error))


async def _verify_newest_records(cli: CliSettings) -> Check:
    """Check whether the newest signed records are what was signed."""
    try:
        async with asyncio.timeout(VERIFY_TIMEOUT_S):
            reports = await verify_newest(cli, VERIFIED_CHECKPOINTS)
    except TimeoutError:
        remedy = "`loomlog audit verify --since 10m` takes the time it needs."
        text = f"signed, but the newest records were not verified within {VERIFY_TIMEOUT_S:g} s"
        return Check(name="audit", state=WARN, text=text, remedy=remedy)
    except (CliError, ConnectorError) as error:
        return Check(name="audit", state=FAIL, text="the newest records cannot be verified", remedy=str(error))
    changed = [f"{report.topic}/{report.partition}" for report in reports if not report.is_clean]
    if changed:
        text = f"{', '.join(changed)}: the newest records are not what was signed"
        return Check(name="audit", state=FAIL, text=text, remedy="`loomlog audit verify` lists what was changed.")
    return Check(
        name="audit",
        state=OK,
        text="everything is signed, and the newest records are what was signed; `loomlog audit verify` reads all",
    )


async def _check_replicas(cli: CliSettings) -> list[Check]:
    """Check whether the replicated families can be read, and whether all processes have the same files."""
    try:
        replicas = await read_replicas(kafka_options(cli.settings, CLIENT_ID, bootstrap=cli.kafka()), cli)
    except ConnectorError as error:
        return [Check(name="replicas", state=FAIL, text="cannot be read now", remedy=str(error))]
    return replica_checks(replicas, now_ms=time.time_ns() // 1_000_000)


async def read_replicas(options: KafkaOptions, cli: CliSettings) -> Replicas:
    """Read the replicated families to the end of the log. Raises Transient and Permanent."""
    topics = Topics.of("entity")
    async with open_ranges(options) as ranges:
        parts = build_entity_parts(
            all_families(),
            await load_codec(cli.settings),
            appender=KafkaAppender(options),  # reading does not need it
            ranges=ranges,
            partitions=await count_partitions(options, topics.events),
            topics=topics,
            rows=None,
        )
        await parts.replicas.open()
    return parts.replicas


async def _check_topics(cli: CliSettings) -> Check:
    try:
        changes = await apply_topics(
            cli.kafka(), replicas=cli.settings.replication_factor, environ=cli.environ, check=True
        )
    except CliError as failure:
        return Check(name="topics", state=FAIL, text="not as they should be", remedy=str(failure))
    return topics_check(changes, cli.kafka())


def _check_read_models(projection: Mapping[str, Any]) -> Check:
    error = projection.get("error")
    return unreadable_check(READ_MODELS, str(error)) if error else read_models_check(projection)


def _check_insights(insights: Mapping[str, Any] | None) -> Check:
    if insights is None:
        return insights_check("")
    if insights.get("error"):
        return insights_check("", error=str(insights["error"]))
    return insights_check(insights["url"], lag_records=insights["lag_records"])


def _check_component(name: str, component: dict[str, Any], describe: Callable[[dict[str, Any]], str]) -> Check:
    if component.get("error"):
        return Check(
            name=name,
            state=FAIL,
            text=str(component["error"]),
            remedy="Runs can be neither started nor read over HTTP.",
        )
    return Check(name=name, state=OK, text=describe(component))
