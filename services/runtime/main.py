"""runtime: owns partitions of runs, calls models and tools, appends.

    python -m services.runtime.main

Several may run; the group spreads the partitions. SIGTERM drains: calls under way get a bounded time to finish and to
be recorded, then the partitions are given up. Any unexpected exception ends the process with 1, so that its supervisor
starts it again (no silent death).

Before: the environment and the configuration files. After: services/stream/host.py.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import uvloop

from connectors import logs
from connectors.blobs import FileBlobs
from connectors.configuration import ConfigurationProblem, Loaded, load, prepare_volumes
from connectors.configuration import price_of as configured_price
from connectors.configuration.bounds import bounds_of
from connectors.errors import OutsideError, Transient
from connectors.garbage import collect_rarely
from connectors.kafka import KafkaAppender, KafkaGroup, KafkaOptions, KafkaRanges, KafkaTail, open_tail
from connectors.lifelines import ask_for, until_gone
from connectors.postgres import open_reader
from connectors.process_secrecy import hide_from_other_programs
from connectors.protocols import EffectClass, LogAppender, Tool, VolumeBinding
from connectors.schema_registry import codec_for
from connectors.tools.context import ServerInfo
from connectors.tools.registry import ToolOptions, build_tools
from connectors.tools.remote_calls import RESULTS_TOPIC
from projections.builds import PREFIX
from schemas.codec import Codec
from services.core.admission import Bounds
from services.core.run.orders import EffectResult
from services.core.run.react import CallModel, CallTool, Effect, ReconcileTool, Summarise
from services.core.run.state import AwaitingModel, AwaitingTools, Compacting, State
from services.runtime.admission import Door
from services.runtime.budgets import HostedBudgets, hosted_budgets
from services.runtime.context_plugins import ContextPlugins, Redact, secrets_of
from services.runtime.credentials import Credentials
from services.runtime.definitions import stored_scripts
from services.runtime.deltas import Previews
from services.runtime.desk import RunDesk, RunIndex
from services.runtime.exposition import exposition
from services.runtime.hand_over import HandOver
from services.runtime.hooks import Hooks
from services.runtime.index import ProjectedIndex
from services.runtime.metrics import RunMetrics
from services.runtime.model_calls import ModelCalls, Provider
from services.runtime.provider_queues import Waiting
from services.runtime.redaction import Redaction
from services.runtime.registered_hooks import RegisteredHooks, opened_credentials
from services.runtime.remote_tools import Remote, open_remote
from services.runtime.responses import Responses
from services.runtime.routing import Routing, checked_tiers
from services.runtime.run_family import RunFamily
from services.runtime.secrecy import Secrecy
from services.runtime.settings import GROUP, MissingSetting, RuntimeSettings, runtime_settings
from services.runtime.shelf import Shelf
from services.runtime.spending import Budgets
from services.runtime.standing_by import StandingBy, standing_by
from services.runtime.start_paused import pause_once
from services.runtime.summary_calls import SummaryCalls
from services.runtime.tally import Tallies
from services.runtime.tool_calls import ToolCalls
from services.runtime.tracing import Tracing, open_tracing
from services.runtime.web import ADDRESS, bound_socket, serve
from services.stream.budget_family import topics_of
from services.stream.calls import Calls
from services.stream.dead_letters import DeadLetters
from services.stream.family import Topics
from services.stream.host import Host
from services.stream.owner import Workplace
from services.stream.past import Past
from services.stream.pauses import PARTITION, PauseBoard
from services.stream.sealed_content import letters_value
from services.stream.snapshot import Snapshots
from services.stream.standby import Standby
from services.stream.subject_keys import SubjectKeys, WrongKey, opened_keys

log = logging.getLogger("loomlog.runtime")

TOPICS = Topics.of("run")
DELTAS_TOPIC = "loom.run.deltas"
CONTROL_TOPIC = "loom.control.events"
SUBJECTS_TOPIC = "loom.subject.keys"
BUDGET_TOPICS = topics_of()
HOOKS_TOPIC = "loom.hook.events"
PROVIDERS_TOPIC = "loom.provider.events"
TALLY_TOPIC = "loom.insights.runs"
BROKER_WAIT_S = 1.0
"""Pause between tries to reach the broker at the start; starting Python anew for each try would take longer."""
NO_TOOLS: Mapping[str, Tool] = {}
INSIDE = frozenset({"code-js"})
"""Drivers that send nothing to anybody, so context plugins do not apply (runtime parity 5.9)."""
WITHOUT_RATE_LIMIT_WAITS = frozenset({"mock"})
"""Drivers whose 429s are not waited for (runtime parity 2.9)."""


def clock_ms() -> int:
    """UTC milliseconds."""
    return time.time_ns() // 1_000_000


class Work:
    """Everything the effects of this process need: models, tools, blobs."""

    def __init__(
        self, models: ModelCalls, tools: ToolCalls, summaries: SummaryCalls, mask: Callable[[str], str] = str
    ) -> None:
        self.so_far = models.so_far
        self.queues = models.queues
        self.mask = mask
        self._models = models
        self._tools = tools
        self._summaries = summaries

    async def close(self) -> None:
        """Closes what the calls kept open."""
        await self._models.close()

    async def run(self, effect: Effect, state: State, tenant: str) -> EffectResult:
        """Carries one effect out."""
        match effect:
            case CallModel():
                assert isinstance(state, AwaitingModel)
                return await self._models.run(effect, state, tenant)
            case CallTool():
                assert isinstance(state, AwaitingTools)
                return await self._tools.run(effect, state, tenant)
            case ReconcileTool():
                assert isinstance(state, AwaitingTools)
                return await self._tools.reconcile(effect, state, tenant)
            case Summarise():
                assert isinstance(state, Compacting)
                return await self._summaries.run(effect, state, tenant)
            case _:
                raise AssertionError(f"{type(effect).__name__} is not a call")


def volumes_of(loaded: Loaded) -> dict[str, VolumeBinding]:
    """The folders of this process by volume name."""
    return {
        name: VolumeBinding(name=name, path=str(volume.path), mode=volume.mode, is_default=volume.default)
        for name, volume in loaded.configuration.volumes.items()
    }


def tools_of(loaded: Loaded) -> dict[str, Tool]:
    """The tools the operator allows."""
    settings = loaded.settings
    return build_tools(
        ToolOptions(
            bash_enabled=settings.bash_enabled,
            bash_env_names=settings.bash_allowed_env,
            environment=dict(os.environ),
            private_hosts=settings.http_private_host_allowlist,
            bench_enabled=settings.bench_enabled,
            residents_max=settings.max_interactive_children,
            resident_idle_ttl_s=settings.interactive_child_idle_ttl_ms // 1000,
            ledger_path=str(settings.ledger_path or ""),
            ledger_effect=EffectClass(settings.ledger_effect),
            ledger_reconciles=settings.ledger_reconciles,
            server=ServerInfo(),
        )
    )


def calls_of(
    loaded: Loaded,
    settings: RuntimeSettings,
    *,
    codec: Codec,
    appender: LogAppender,
    tracing: Tracing,
    previews: Previews,
    secrecy: Secrecy,
    budgets: Budgets | None = None,
    routing: Routing,
    hooks: Hooks,
    credentials: Credentials,
    more_tools: Mapping[str, Tool] = NO_TOOLS,
) -> Work:
    """The effects of this process."""
    configuration = loaded.configuration
    tools = tools_of(loaded)
    tools.update(more_tools)  # into the dict that Context holds
    shelf = Shelf(tools)
    blobs = FileBlobs(loaded.settings.blobs)
    redaction = Redaction(loaded.secrets if loaded.settings.redact_secrets else {})
    priced = {tuple(name.split("/", 1)) for name in configuration.pricing.models}
    prices = {
        (provider, model): price
        for provider, model in priced
        if (price := configured_price(configuration, provider, model)) is not None
    }
    model_calls = ModelCalls(
        {
            name: Provider(
                model=model,
                max_concurrent=routing.providers[name].max_concurrent,
                retries_rate_limits=routing.providers[name].driver not in WITHOUT_RATE_LIMIT_WAITS,
                is_outside=routing.providers[name].driver not in INSIDE,
            )
            for name, model in routing.models.items()
        },
        prices=prices,
        currency=configuration.pricing.currency,
        tools=shelf,
        blobs=blobs,
        previews=previews,
        tracing=tracing,
        clock_ms=clock_ms,
        mask=redaction.text,
        secrecy=secrecy,
        budgets=budgets,
        availability=routing.availability,
        plugins=plugins_of(loaded, credentials),
        waiting=waiting_of(loaded),
    )
    return Work(
        model_calls,
        ToolCalls(
            shelf,
            volumes=volumes_of(loaded),
            operator_hosts=settings.http_hosts,
            parallelism=settings.tool_parallelism,
            blobs=blobs,
            tracing=tracing,
            clock_ms=clock_ms,
            mask=redaction.text,
            secrecy=secrecy,
            hooks=hooks,
            credentials=credentials,
            callers_choose_hosts=settings.callers_choose_hosts,
            mask_results=redaction.result if loaded.settings.redact_secrets else None,
        ),
        SummaryCalls(model_calls, blobs=blobs, clock_ms=clock_ms, mask=redaction.text, secrecy=secrecy),
        redaction.text,
    )


def waiting_of(loaded: Loaded) -> Waiting:
    """How long, and how many, model calls wait for a place of their provider."""
    found = bounds_of(loaded.configuration, loaded.settings)
    return Waiting(depth=found.provider_queue_depth, wait_s=found.provider_queue_timeout_ms / 1000)


def door_of(loaded: Loaded) -> Door:
    """How many runs are at work in this process."""
    found = bounds_of(loaded.configuration, loaded.settings)
    providers = loaded.configuration.providers
    return Door(
        Bounds(
            runs=found.max_concurrent_runs,
            queue=found.max_queue_depth,
            per_user=found.max_concurrent_runs_per_user,
            providers={name: said.max_concurrent for name, said in providers.items() if said.max_concurrent},
            provider_queue=found.provider_queue_depth,
        ),
        wait_s=found.queue_timeout_ms / 1000,
        provider_wait_s=found.provider_queue_timeout_ms / 1000,
    )


def plugins_of(loaded: Loaded, credentials: Credentials) -> ContextPlugins | None:
    """What changes the conversation on its way to a provider; None when nothing does."""
    secrets = secrets_of(os.environ, loaded.secrets)
    plugins = tuple(
        Redact(secrets, credentials=credentials, redact_tool_input=block.redact_tool_input)
        for block in loaded.configuration.context_plugins
        if block.enabled
    )
    return ContextPlugins(plugins) if plugins else None


async def connected(kafka: KafkaOptions) -> KafkaAppender:
    """An appender over a broker that answers; waits for one as long as it takes."""
    while True:
        appender = KafkaAppender(kafka)
        try:
            await appender.start()
        except Transient as error:
            log.warning("waiting for the broker: %s", error)
            await asyncio.sleep(BROKER_WAIT_S)
        else:
            return appender


async def run(loaded: Loaded) -> None:
    """Until SIGTERM or SIGINT, or until something fails."""
    settings = runtime_settings(loaded.settings)
    async with contextlib.AsyncExitStack() as stack:
        codec = await codec_for(loaded.settings)
        tracing = await stack.enter_async_context(open_tracing(settings.tracing, settings.name))
        appender = await connected(settings.kafka)
        stack.push_async_callback(appender.close)
        routing = Routing(
            loaded,
            os.environ,
            codec=codec,
            appender=appender,
            clock_ms=clock_ms,
            name=settings.name,
            topic=PROVIDERS_TOPIC,
        )
        ranges = KafkaRanges(settings.kafka)
        await ranges.start()
        stack.push_async_callback(ranges.close)
        partitions = await appender.partitions(TOPICS.commands)
        commands = await open_tail(settings.kafka, TOPICS.commands, dict.fromkeys(range(partitions), 0))
        stack.push_async_callback(commands.close)
        commands.pause(range(partitions))
        board = PauseBoard(codec, CONTROL_TOPIC)
        await board.catch_up(ranges)
        if settings.start_paused:
            switch = settings.start_paused
            await pause_once(board, appender, ranges, codec, switch=switch, by=settings.name, at_ms=clock_ms())
        control = await open_tail(settings.kafka, CONTROL_TOPIC, {PARTITION: board.next_offset})
        stack.push_async_callback(control.close)
        providers = await routing.open(stack, ranges, settings.kafka)
        hooks = RegisteredHooks(loaded, settings, codec=codec, clock_ms=clock_ms, topic=HOOKS_TOPIC)
        registrations = await hooks.open(stack, ranges, settings.kafka)
        credentials = opened_credentials(stack, settings)
        keys = await opened_keys(settings.wrapping, codec, appender, ranges, topic=SUBJECTS_TOPIC, clock_ms=clock_ms)
        erasures: KafkaTail | None = None
        if keys is not None:
            erasures = await open_tail(settings.kafka, SUBJECTS_TOPIC, {PARTITION: keys.next_offset})
            stack.push_async_callback(erasures.close)
        routing.definitions.scripts.update(await stored_scripts(loaded.configuration, FileBlobs(loaded.settings.blobs)))
        remote = await open_remote(
            stack,
            loaded.configuration,
            settings.kafka,
            codec,
            appender,
            clock_ms=clock_ms,
            name=settings.name,
        )
        life = token_hex(8)
        beside = await standing_by(stack, settings, TOPICS.events, partitions, life)
        group = KafkaGroup(
            settings.kafka,
            TOPICS.commands,
            GROUP,
            session_timeout_ms=settings.session_timeout_ms,
            life=life,
            stands_by=beside is not None,
        )
        await group.start()
        stack.push_async_callback(group.close)
        reader = await open_reader(settings.postgres, schema=PREFIX, max_connections=4)
        stack.push_async_callback(reader.close)
        index = ProjectedIndex(reader, TOPICS.events)
        budgets = await hosted_budgets(
            stack,
            settings,
            codec,
            appender,
            ranges,
            BUDGET_TOPICS,
            group_name=f"{GROUP}-budgets",
            life=life,
            clock_ms=clock_ms,
        )
        await _serve(
            loaded,
            settings,
            codec,
            tracing,
            appender,
            ranges,
            commands,
            control,
            board,
            group,
            index,
            partitions,
            keys,
            erasures,
            life,
            beside,
            budgets,
            routing,
            providers,
            hooks,
            registrations,
            credentials,
            remote,
        )


async def _serve(
    loaded: Loaded,
    settings: RuntimeSettings,
    codec: Codec,
    tracing: Tracing,
    appender: KafkaAppender,
    ranges: KafkaRanges,
    commands: KafkaTail,
    control: KafkaTail,
    board: PauseBoard,
    group: KafkaGroup,
    index: RunIndex,
    partitions: int,
    keys: SubjectKeys | None,
    erasures: KafkaTail | None,
    life: str,
    beside: StandingBy | None,
    budgets: HostedBudgets,
    routing: Routing,
    providers: KafkaTail,
    hooks: RegisteredHooks,
    registrations: KafkaTail,
    credentials: Credentials,
    remote: Remote | None,
) -> None:
    secrecy = Secrecy(keys)
    family = RunFamily()
    metrics = RunMetrics()
    watched = metrics.watching(tracing)
    tallies = Tallies(codec, appender, topic=TALLY_TOPIC, clock_ms=clock_ms)
    past = Past(family, codec, ranges, TOPICS.events)

    def term_of(partition: int) -> int:
        owner = host.owners.get(partition)
        return owner.partition.term if owner is not None and owner.partition is not None else -1

    previews = Previews(codec, appender, topic=DELTAS_TOPIC, partitions=partitions, term_of=term_of)
    work = calls_of(
        loaded,
        settings,
        codec=codec,
        appender=appender,
        tracing=watched,
        previews=previews,
        secrecy=secrecy,
        budgets=budgets.spending,
        routing=routing,
        hooks=hooks.hooks,
        credentials=credentials,
        more_tools=remote.tools if remote is not None else NO_TOOLS,
    )

    door = door_of(loaded)
    responses = Responses(secrecy, mask=work.mask)

    def desk(number: int, term: int, known_since_ms: int, forgotten_until: int) -> RunDesk:
        tallies.owns(number, term)
        return RunDesk(
            number=number,
            partitions=partitions,
            known_since_ms=known_since_ms,
            forgotten_until=forgotten_until,
            definitions=routing.definitions,
            index=index,
            past=past,
            tallies=tallies,
            clock_ms=clock_ms,
            absent=family.absent,
            tracing=watched,
            pauses=lambda: board.table,
            secrecy=secrecy,
            responses=responses,
            so_far=work.so_far.said,
            budgets=budgets.spending,
            door=door,
            credentials=credentials,
        )

    letters: dict[str, Any] = {}
    if keys is not None:
        letters = {"kept": letters_value(keys, codec, TOPICS.commands, never=RESULTS_TOPIC)}
    dead_letters = DeadLetters(
        codec, appender, topic=TOPICS.dead_letters, service="runtime", clock_ms=clock_ms, **letters
    )
    if remote is not None:
        remote.calls.unreadable = lambda record, error: dead_letters.park(record, kind="undecodable", error=error)
    hand_over = HandOver(
        codec, appender, topic=TOPICS.commands, partitions=partitions, clock_ms=clock_ms, name=settings.name
    )
    calls = Calls(
        family,
        run=work.run,
        done=lambda partition, aggregate, tenant, order: host.result(partition, aggregate, tenant, order),
        clock_ms=clock_ms,
        hand_over=hand_over.give,
        told=secrecy.crash,
    )
    workplace = Workplace(
        family=family,
        codec=codec,
        topics=TOPICS,
        appender=appender,
        ranges=ranges,
        snapshots=Snapshots(family, codec, appender=appender, ranges=ranges, topic=TOPICS.snapshots),
        past=past,
        dead_letters=dead_letters,
        calls=calls,
        desk=desk,
        clock_ms=clock_ms,
        name=settings.name,
        lifeline=beside.lifeline.name if beside is not None else "",
    )
    standby = None
    if beside is not None:
        standby = Standby(workplace, life=life, tail=beside.tail, ranges=beside.ranges, until_gone=until_gone)
    host = Host(
        workplace,
        membership=group,
        commands=commands,
        standby=standby,
        ask_for=ask_for if beside is not None else None,
        drain_s=settings.drain_timeout_s,
    )
    if beside is not None:
        beside.lifeline.asked = host.asked
    group.holds(lambda: host.owners)
    board.changed = host.obey
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(host.run(), name="host"),
            tasks.create_task(board.follow(control), name="pauses"),
            tasks.create_task(budgets.host.run(), name="owner of the books"),
            tasks.create_task(budgets.board.follow(budgets.tail), name="the books"),
            tasks.create_task(budgets.clerk.run(), name="commands for the books"),
            tasks.create_task(hooks.board.follow(registrations), name="hooks"),
            tasks.create_task(credentials.run(), name="credentials"),
            tasks.create_task(tallies.run(), name="tallies"),
            tasks.create_task(previews.run(), name="previews"),
            tasks.create_task(metrics.watch_loop(), name="event loop lag"),
            # Whoever owns the first partition probes, so somebody does as long as any runtime works.
            *routing.begin(tasks, providers, is_prober=lambda: term_of(0) >= 0),
        ]
        if remote is not None:
            running.append(tasks.create_task(remote.calls.follow(remote.results), name="results of remote tools"))
        if keys is not None and erasures is not None:
            running.append(tasks.create_task(keys.follow(erasures), name="subject keys"))
        where = "off"
        if settings.metrics_port is not None:
            listening = bound_socket(settings.metrics_port)
            where = f"http://{ADDRESS}:{listening.getsockname()[1]}/metrics"
            page = exposition(metrics, host, calls, dead_letters, queues=work.queues, door=door)
            running.append(tasks.create_task(serve(listening, page), name="metrics"))
        log.info("runtime %s is up, %d partitions in all, metrics %s", settings.name, partitions, where)
        await stop.wait()
        log.info("stopping: calls under way may finish for %.0f s", settings.drain_timeout_s)
        if not await host.drain(settings.drain_timeout_s):
            log.warning("not every call finished in time; the next owner takes them up")
        if beside is not None:
            beside.lifeline.release()
        for task in running:
            task.cancel()
    await work.close()


def main() -> int:
    """The process; the exit code."""
    try:
        loaded = load(os.environ, working_directory=Path.cwd())
        logs.begin(loaded.settings.log_level)
        if loaded.settings.bash_enabled:
            hide_from_other_programs()
        tiers = checked_tiers(loaded, os.environ)
        for warning in (*loaded.warnings, *prepare_volumes(loaded.configuration), *tiers):
            log.warning("%s", warning)
        collect_rarely()
        uvloop.run(run(loaded))
    except (ConfigurationProblem, MissingSetting, WrongKey) as error:
        print(f"runtime cannot start: {error}", file=sys.stderr)  # noqa: T201 - for the person who starts it
        return 2
    except Exception as error:
        for failure in error.exceptions if isinstance(error, ExceptionGroup) else (error,):
            # What is outside explains itself; where it was noticed helps nobody.
            trace = None if isinstance(failure, OutsideError) else failure
            log.error("runtime ends: %s: %s", type(failure).__name__, failure, exc_info=trace)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
