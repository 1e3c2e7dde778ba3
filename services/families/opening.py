"""What a family gets to open its services in a process, and what it gives: the same for api and runtime.

A family's folder with operations has a module `services` with

    def open_family(context: FamilyContext) -> FamilyServices
    def read_options(loaded: ProcessConfiguration) -> Any            if the configuration says something of it
    async def connect(postgres, secret: SecretKey | None) -> Any     if it has a store of its own
    def check_replicas(replicas: Replicas, now_ms: int) -> Check     if it can tell that something is wrong

Families are opened one after the other; what one provides, such as the table of definitions, those that need it take
from the context by its type. NEEDS of the module names the families that are opened before. What a family does in a
process by itself are its tasks, which the process runs until it ends: over what RunningProcess says of it, and in a
runtime over OwnedPartitions. Where neither is provided, there are none.

Before: services/application/bootstrap.py, services/runtime/process.py. After: services.py of each family.
"""

import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, TypeVar

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.kafka.options import KafkaOptions
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.storage.postgres import PostgresOptions, PostgresReader
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.run_events import InterruptionClosed, InterruptionOpened
from loomlog.schemas.ids import fresh_token
from loomlog.services.core.access.decide import Caller, RunIdentity
from loomlog.services.core.check import Check
from loomlog.services.core.endpoints import Endpoint
from loomlog.services.core.families import Family
from loomlog.services.core.operations import Handlers
from loomlog.services.core.run.interrupts.approvals import AskedApproval
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.families.entity_handlers import EntityHandlers
from loomlog.services.families.operation import Decrypt
from loomlog.services.families.ports.content_erasure import ContentEraser
from loomlog.services.families.ports.requests import EndpointHandler
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.cold import ColdRows
from loomlog.services.stream.entities.hosting import EntityParts, PutCredentials
from loomlog.services.stream.entities.reads import EntityReads
from loomlog.services.stream.entities.replicas import Replicas

ServiceT = TypeVar("ServiceT")
Work = Callable[[], Coroutine[Any, Any, None]]
Families = Sequence[Family[Any, Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyContext:
    """What is open in a process. `parts` and `reads` are of the families of every topic set."""

    parts: EntityParts
    commands: EntityCommands
    reads: EntityReads
    codec: Codec
    blobs: Blobs
    decrypt: Decrypt
    clock_ms: Callable[[], int]
    keys: SubjectKeys | None = None
    """None: content is not encrypted."""
    provided: MutableMapping[type, Any] = field(default_factory=dict)
    """Options of families and services of families opened before, by type."""

    def new_token(self) -> str:
        """Return a new token, for ids of commands."""
        return fresh_token(self.clock_ms())

    def provide(self, *services: Any) -> None:
        """Add services that other families take."""
        self.provided.update({type(service): service for service in services})

    def provide_as(self, port: type[ServiceT], service: ServiceT) -> None:
        """Add the service that others take by the type of what they need; ports has those types."""
        self.provided[port] = service

    def get(self, kind: type[ServiceT]) -> ServiceT:
        """Return the service, or the options, of a type. Raises LookupError when no family provides it."""
        if kind not in self.provided:
            raise LookupError(f"nothing provides {kind.__name__}: name its family in NEEDS")
        service: ServiceT = self.provided[kind]
        return service

    def find(self, kind: type[ServiceT]) -> ServiceT | None:
        """Return the service of a type; None when the process has none."""
        return self.provided.get(kind)

    def options(self, kind: type[ServiceT]) -> ServiceT:
        """Return the options of a family; those by default when the process says nothing."""
        options: ServiceT = self.provided.get(kind) or kind()
        return options

    async def encrypt(self, text: str, tenant: str, subject: str, *, untrusted: bool = False) -> str:
        """Return a text as it is stored for a subject; `untrusted`: no run trusts it. Raises ConnectorError."""
        if self.keys is None:
            return text
        cipher = await self.keys.cipher_for(tenant, subject)
        return cipher.untrusted_text(text) if untrusted else cipher.text(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProcess:
    """The process in which families are open."""

    name: str
    """The same after a restart."""

    @classmethod
    def of(cls, service: str, replica_id: str) -> "RunningProcess":
        """Return the process of a service; without an id it has the name of its host."""
        return cls(name=replica_id or f"{service}@{socket.gethostname()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPartitions:
    """The partitions of entities that a runtime owns, and the rows of the entities in them."""

    terms: Callable[[], Mapping[int, int]]
    """Returns the partitions, and the term in each."""
    is_first: Callable[[], bool]
    """Whether this is the one runtime that does what is done once: it owns the first partition of runs."""
    rows: ColdRows
    run_rows: PostgresReader
    """Reads the read models of runs."""


class UntrustedCipher(Protocol):
    """Encrypts text that no run trusts."""

    def untrusted_text(self, text: str) -> str: ...


class RunEncryption(Protocol):
    """Protocol of loomlog.services.runtime.content.encryption.ContentEncryption. Raises ConnectorError."""

    async def decrypt_text(self, text: str, tenant: str) -> str: ...
    async def cipher(self, tenant: str, subject: str) -> UntrustedCipher: ...


class CredentialWriter(Protocol):
    """Protocol of loomlog.connectors.storage.run_credentials.RunCredentials. Raises ConnectorError."""

    async def put(self, tenant: str, run_id: str, credentials: Mapping[str, str]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRuns:
    """What a runtime has for families that start runs of what they read."""

    kafka: KafkaOptions
    ingress_topic: str
    """What comes from outside is read from it, by the members of `ingress_group`."""
    ingress_group: str
    session_timeout_ms: int
    dead_letters: DeadLetters
    encryption: RunEncryption
    credentials: CredentialWriter | None
    """None, as `secret`: there is no key to keep credentials of runs with."""
    secret: SecretKey | None


def _ignore_question(
    tenant: str, facts: RunFacts, event: InterruptionOpened | InterruptionClosed, is_repeated: bool
) -> None:
    """Do nothing about a question."""


def _ignore_approval(tenant: str, facts: RunFacts, asked: AskedApproval, is_repeated: bool) -> None:
    """Do nothing about a call that waits for people."""


async def _close_nothing() -> None:
    """Close what has nothing open."""


async def _admit(caller: Caller, identity: RunIdentity, agent: str) -> None:
    """Admit every run."""


def _read_nothing(tenant: str, agent: str, user_id: str) -> Sequence[str]:
    """Return no position: what the family has written is not needed by a run."""
    return ()


def ignore_end(tenant: str, facts: RunFacts) -> None:
    """Do nothing at the end of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCounts:
    """A metric of a family: how often something has ended in which way."""

    name: str
    summary: str
    outcomes: Sequence[str]
    counts: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyServices:
    """What a family has opened. What others take is provided to the context."""

    handlers: Handlers = field(default_factory=dict)
    endpoints: Mapping[Endpoint, EndpointHandler] = field(default_factory=dict)
    tasks: Mapping[str, Work] = field(default_factory=dict)
    """What it does in this process until that ends, by names that people see."""
    receivers: Mapping[str, Callable[[Any, str], None]] = field(default_factory=dict)
    """Takes what its events send to something of the process that is no aggregate, and the tenant, by its name."""
    put_credentials: PutCredentials | None = None
    """Stores the credentials of runs that its aggregates start."""
    outcomes: Sequence[OutcomeCounts] = ()
    lags: Mapping[str, Callable[[], int]] = field(default_factory=dict)
    """How many records of a topic wait for this process, by the topic's name."""
    erasers: Sequence[ContentEraser] = ()
    """Find and remove what it holds of a subject that is erased."""
    on_question: Callable[[str, RunFacts, InterruptionOpened | InterruptionClosed, bool], None] = _ignore_question
    """Called with the tenant and the facts of a run, and its question that was opened or closed and is in the log;
    true: again, after a takeover.
    """
    on_approval: Callable[[str, RunFacts, AskedApproval, bool], None] = _ignore_approval
    """The same, with a call about which a group of people is asked."""
    admit_run: Callable[[Caller, RunIdentity, str], Awaitable[None]] = _admit
    """Raises Refused where a caller may not start a run of an agent now."""
    start_positions: Callable[[str, str, str], Sequence[str]] = _read_nothing
    """Returns, for a tenant, an agent and a user, what the owner of a run must have read because this process has."""
    on_run_ended: Callable[[str, RunFacts], None] = ignore_end
    """Called with the tenant and the facts of a run that has ended, in the process that owns it."""
    close: Callable[[], Awaitable[None]] = _close_nothing


def open_families(context: FamilyContext, families: Families) -> tuple[Handlers, list[FamilyServices]]:
    """Open families. Return the handlers of all their operations, and what is to be closed, in the order of opening."""
    loaded = _service_modules(families)
    needs = {name: getattr(module, "NEEDS", ()) for name, module in loaded.items()}
    of_entities = EntityHandlers(context.commands, context.reads, decrypt=context.decrypt)
    handlers = dict(of_entities.by_operation(families))
    opened: list[FamilyServices] = []
    for name in TopologicalSorter(needs).static_order():
        if name in loaded:
            services: FamilyServices = loaded[name].open_family(context)
            handlers.update(services.handlers)
            opened.append(services)
    return handlers, opened


def read_family_options(loaded: ProcessConfiguration, families: Families) -> Iterator[Any]:
    """Yield what the configuration says of families, each of a type of its own. Raises as their read_options do."""
    for module in _service_modules(families).values():
        if hasattr(module, "read_options"):
            yield module.read_options(loaded)


def check_families(replicas: Replicas, families: Families, *, now_ms: int) -> list[Check]:
    """Return what families find wrong in what a process has read, or that all is well. Opens nothing."""
    modules = _service_modules(families).values()
    return [module.check_replicas(replicas, now_ms) for module in modules if hasattr(module, "check_replicas")]


async def connect_families(postgres: PostgresOptions, secret: SecretKey | None, families: Families) -> list[Any]:
    """Return the stores of families, each of a type of its own. Postgres may be away, and come back."""
    modules = _service_modules(families).values()
    return [await module.connect(postgres, secret) for module in modules if hasattr(module, "connect")]


def _service_modules(families: Families) -> Mapping[str, ModuleType]:
    return {family.name: import_module(family.services) for family in families if family.services}
