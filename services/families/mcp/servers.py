"""MCP servers as they resolve for a tenant, their tools, and sessions with them.

A server is a definition of the kind mcpserver or a block of a file. Its tools are those of the newest event about that
version of it, or else those that its definition was made with. Asking a server for its tools ends in an event, so every
process has the same list and the log knows what runs were shown.

Before: handlers.py, tools.py. After: connectors/mcp.
"""

import hashlib
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import cast
from urllib.parse import urlsplit

import orjson

from loomlog.connectors.configuration.mcp_block import STDIO, McpServerBlock
from loomlog.connectors.definitions import KINDS
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.mcp.calls_in_flight import HeldCalls
from loomlog.connectors.mcp.http_transport import HttpConnection, HttpNetwork
from loomlog.connectors.mcp.oauth import Challenge
from loomlog.connectors.mcp.oauth_client import OAuthRequests
from loomlog.connectors.mcp.peer import AuthorizationNeeded, Connection, IncomingMessages, TokenSource
from loomlog.connectors.mcp.session import Session
from loomlog.connectors.mcp.session_pool import SessionKey, SessionPool
from loomlog.connectors.mcp.stdio_transport import StdioConnection, server_environment
from loomlog.connectors.mcp.tool_list import ToolList, read_tool_list
from loomlog.connectors.single_flight import SingleFlight
from loomlog.connectors.tools.hosts import canonical_host, is_host_allowed
from loomlog.connectors.tools.references import (
    REFERENCE,
    RunValues,
    mask_credentials,
    masked_errors,
    stored_references,
    substitute_references,
)
from loomlog.schemas.generated.mcp_commands import RecordListingFailure, RecordTools
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import fresh_token
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition.operations import ask_owner
from loomlog.services.families.definition.table import FILE, SHARED, DefinitionTable, Resolved
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.mcp.grants import McpGrants, remedy_of
from loomlog.services.families.mcp.server import Server
from loomlog.services.families.mcp.state import FILES_TENANT, NAME, NEEDS_AUTHORIZATION, ServerTools
from loomlog.services.families.ports.credentials import CredentialUser
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.replicas import Replicas

log = logging.getLogger(__name__)

KIND = "mcpserver"
CONCURRENT_CALLS = 64
"""Requests at a time over one session of an address."""
WAIT_S = 10.0
"""Wait for the owner of a list; enough for another process to take over its partition."""
LISTS_KEPT = 2_000
"""Parsed lists that are kept."""
ERROR_CHARACTERS_MAX = 500
NO_RUN = RunValues(root_run_id="", tenant="", credentials={})
_UNRESOLVED = re.compile(r"\$\{|\$cred:|\$ghapp:")
"""What is left of references that are none: variables in definitions of tenants, names with other characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions:
    """What the configuration says of MCP servers."""

    blocks: Mapping[str, McpServerBlock] = field(default_factory=dict)
    """Servers of the files."""
    hosts: Collection[str] | None = None
    """Hosts that definitions may name; None: any."""
    private_hosts: Collection[str] = ()
    """Hosts of definitions that may have private addresses."""
    origin: str = "http://127.0.0.1:8787"
    """Address of the API as browsers see it."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)


class McpServers:
    """The servers of a process. Nothing is opened before it is used."""

    def __init__(
        self,
        table: DefinitionTable,
        replicas: Replicas,
        commands: EntityCommands,
        options: McpOptions,
        *,
        clock_ms: Callable[[], int],
        now_s: Callable[[], float],
        credentials: CredentialReader | None = None,
    ) -> None:
        self.revision = 0
        """Raised whenever a server or a list of tools may have changed."""
        self.pool = SessionPool(now_s=now_s)
        self.held = HeldCalls()
        """Calls whose servers wait for the answer of a person."""
        self.grants: McpGrants | None = None
        """Grants of access; None: this process has none, and servers that ask for tokens refuse it."""
        self._table = table
        self._replicas = replicas
        self._commands = commands
        self._options = options
        self._credentials = credentials
        self._clock_ms = clock_ms
        self._network: HttpNetwork | None = None
        self._asking: SingleFlight[str, ToolList] = SingleFlight()
        self._asking_again: SingleFlight[str, None] = SingleFlight()
        self._parse = lru_cache(maxsize=LISTS_KEPT)(_parse_tools)
        self._blocks: OrderedDict[str, McpServerBlock] = OrderedDict()
        replicas.on_fold(NAME, self._changed)
        replicas.on_fold("definition", self._changed)

    def _changed(self, aggregate: str) -> None:
        self.revision += 1

    # --- what there is -----------------------------------------------------------------------------------------------

    def names(self, tenant: str) -> list[str]:
        """Return the names of the servers that a tenant may use, sorted."""
        lines = (line.name for owner in dict.fromkeys((tenant, SHARED)) for line in self._table.lines(KIND, owner))
        return sorted({*self._options.blocks, *lines})

    def find(self, tenant: str, name: str) -> Server | None:
        """Return a server; None when the tenant has none of that name, or its content must be loaded first."""
        resolved = self._table.resolve(KIND, tenant, name)
        if resolved is None:
            return None
        block = self._options.blocks.get(name) if resolved.source == FILE else self._block_of(resolved)
        if block is None:
            return None
        owner = FILES_TENANT if resolved.line is None else resolved.line.tenant
        return Server(
            name=name, tenant=tenant, owner=owner, source=resolved.source, def_id=resolved.def_id, block=block
        )

    def servers(self, tenant: str) -> Iterator[Server]:
        """Yield the servers that a tenant may use, by name."""
        for name in self.names(tenant):
            server = self.find(tenant, name)
            if server is not None:
                yield server

    def listed(self, server: Server) -> ServerTools:
        """Return what is known of the server's tools."""
        state: ServerTools = self._replicas.state(server.aggregate)
        return state

    def tools(self, server: Server) -> ToolList:
        """Return the server's tools, as listed last for this version of it."""
        state = self.listed(server)
        if state.digest and state.def_id == server.def_id:
            return self._parse(server.name, state.tools)
        discovered = list(server.block.discovered_tools)
        return self._parse(server.name, orjson.dumps(discovered).decode()) if discovered else ToolList()

    def _block_of(self, resolved: Resolved) -> McpServerBlock | None:
        known = self._blocks.get(resolved.def_id)
        if known is None and resolved.content is not None:
            known = cast(McpServerBlock, KINDS[KIND].block_of(resolved.content))
            self._blocks[resolved.def_id] = known
            if len(self._blocks) > LISTS_KEPT:
                self._blocks.popitem(last=False)
        return known

    # --- asking ------------------------------------------------------------------------------------------------------

    async def discover(self, server: Server, source: str, values: RunValues = NO_RUN) -> ToolList:
        """Ask a server for its tools and record the answer; of several callers at once, one asks. `values`: of the run
        or the user for which it is asked.

        Raises Transient and Permanent, also for an answer that cannot be recorded.
        """
        return await self._asking.do(server.aggregate, lambda: self._discover(server, source, values))

    async def ask_for_tools(self, server: Server, values: RunValues = NO_RUN) -> tuple[ToolList, str]:
        """Return a server's tools and the revision it speaks, and record nothing. Raises Transient and Permanent."""
        user = CredentialUser(tenant=server.tenant, user=values.user, purpose=f"list of {server.name}")
        stored = await self.stored_values(server, user)
        values = replace(values, credentials={**values.credentials, **stored.credentials})
        with masked_errors(values.credentials):
            session = await self.session(server, values)
            listed = await session.list_tools(server.block.tools)
        return _mask_tools(server, listed, values.credentials), session.revision

    async def find_challenge(self, server: Server) -> Challenge:
        """Return how a server asks for a token; empty when it does not ask at once. Raises Transient and Permanent."""
        try:
            await (await self._open(server, {}, None)).close()
        except AuthorizationNeeded as needed:
            return needed.challenge
        return Challenge()

    def oauth_requests(self, server: Server) -> OAuthRequests:
        """Return what asks the authorization servers of a server: with its network, and the hosts that it may name."""

        def check_host(host: str) -> None:
            if server.source != FILE:
                self._require_host(server, canonical_host(host))

        return OAuthRequests(self._network_of(server), check_host)

    async def _discover(self, server: Server, source: str, values: RunValues) -> ToolList:
        try:
            listed, revision = await self.ask_for_tools(server, values)
        except ConnectorError as error:
            await self._record(
                RecordListingFailure(
                    envelope=self._envelope(server),
                    server=server.name,
                    def_id=server.def_id,
                    error=str(error)[:ERROR_CHARACTERS_MAX],
                    reason=NEEDS_AUTHORIZATION if isinstance(error, AuthorizationNeeded) else "",
                    source=source,
                )
            )
            raise
        await self._record(
            RecordTools(
                envelope=self._envelope(server),
                server=server.name,
                def_id=server.def_id,
                revision=revision,
                digest=listed.digest,
                tools=orjson.dumps(listed.to_json()).decode(),
                problems=listed.problems,
                source=source,
            )
        )
        return listed

    async def _record(self, command: RecordTools | RecordListingFailure) -> None:
        try:
            answer = await ask_owner(self._commands, command, wait_s=WAIT_S)
        except (Refused, Unavailable) as error:
            log.warning("the tools of %s are not recorded: %s", command.server, error)
            return
        await self._replicas.wait(answer.partition, answer.offset, timeout_s=WAIT_S)

    def _envelope(self, server: Server) -> CommandEnvelope:
        now_ms = self._clock_ms()
        command_id = f"mcp.{fresh_token(now_ms)}"
        return CommandEnvelope(command_id=command_id, tenant=server.owner, subject="mcp", issued_at_ms=now_ms)

    async def stored_values(self, server: Server, user: CredentialUser, *, root_run_id: str = "") -> RunValues:
        """Return the stored credentials of a request that no run makes. Raises Transient and Permanent."""
        references = stored_references(server.block.headers)
        known = {} if self._credentials is None else await self._credentials.resolve_known(references, user)
        values = {reference: one.value for reference, one in known.items()}
        return RunValues(root_run_id=root_run_id, tenant=server.tenant, credentials=values)

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def session(self, server: Server, values: RunValues) -> Session:
        """Return an open session for a run. Raises Transient and Permanent."""
        key, headers, tokens = self._session_of(server, values)
        if server.block.transport == STDIO:
            key = self.pool.choose(key, server.block.pool_size)
        return await self.pool.get(key, lambda: self._open(server, headers, tokens))

    def forget(self, server: Server, values: RunValues) -> None:
        """Close the session of a run: the server has lost it."""
        self.pool.discard(self._session_of(server, values)[0])

    async def close(self) -> None:
        """Close all sessions."""
        self._asking.cancel()
        self._asking_again.cancel()
        await self.held.close()
        await self.pool.close()

    def _session_of(self, server: Server, values: RunValues) -> tuple[SessionKey, dict[str, str], TokenSource | None]:
        """Return the key of a run's session, its headers, and where its tokens come from."""
        headers = self._headers(server, values)
        is_address = server.block.transport != STDIO
        tokens = self.grants.source(server, values) if is_address and self.grants is not None else None
        owned = headers if tokens is None else {**headers, "": tokens.owner}
        key = SessionKey(
            tenant=server.tenant, server=server.name, version=_digest(server.block), headers=_digest_of(owned)
        )
        return key, headers, tokens

    def _headers(self, server: Server, values: RunValues) -> dict[str, str]:
        unresolved = [
            name for name, text in server.block.headers.items() if _UNRESOLVED.search(REFERENCE.sub("", text))
        ]
        resolvable = {name: text for name, text in server.block.headers.items() if name not in unresolved}
        sent, left_out = substitute_references(resolvable, values)
        sent = {name: value for name, value in sent.items() if value}
        for name in (*unresolved, *left_out):
            if values.root_run_id:
                log.warning(
                    "%s: the header %s has a reference that this run does not have; left out", server.name, name
                )
        return sent

    async def _open(self, server: Server, headers: Mapping[str, str], tokens: TokenSource | None) -> Session:
        incoming = IncomingMessages(lambda: self._on_list_changed(server))
        connection = await self._connect(server, headers, tokens, incoming)
        session = Session(server.name, connection, incoming, self.held)
        try:
            await session.open()
        except BaseException:
            await session.close()
            raise
        return session

    async def _connect(
        self, server: Server, headers: Mapping[str, str], tokens: TokenSource | None, incoming: IncomingMessages
    ) -> Connection:
        block = server.block
        if block.transport == STDIO:
            environment = server_environment(self._options.environment, block.env)
            return await StdioConnection.open(block.command, block.args, environment, incoming)
        if server.source != FILE:
            self._require_host(server, canonical_host(urlsplit(block.url).hostname or ""))
        return HttpConnection(
            self._network_of(server),
            block.url,
            headers,
            incoming,
            concurrency=CONCURRENT_CALLS,
            tokens=tokens,
            remedy=remedy_of(server),
        )

    def _require_host(self, server: Server, host: str) -> None:
        """Raise Permanent(forbidden) for a host that definitions may not name."""
        if self._options.hosts is not None and not is_host_allowed(host, self._options.hosts):
            raise Permanent(f"the host {host[:120]} of {server.name} is not among those allowed", kind="forbidden")

    def _network_of(self, server: Server) -> HttpNetwork:
        """Return the network of a server: the host of one that the operator's file names may have a private address."""
        if self._network is None:
            self._network = HttpNetwork(private_hosts=frozenset(self._options.private_hosts))
        own_host = canonical_host(urlsplit(server.block.url).hostname or "") if server.source == FILE else ""
        return self._network.with_private_host(own_host) if own_host else self._network

    def _on_list_changed(self, server: Server) -> None:
        self._asking_again.start(server.aggregate, lambda: self._discover_again(server))

    async def _discover_again(self, server: Server) -> None:
        try:
            await self.discover(server, "list_changed")
        except ConnectorError as error:
            log.warning("%s has other tools now, and does not list them: %s", server.name, error)


def _mask_tools(server: Server, listed: ToolList, credentials: Mapping[str, str]) -> ToolList:
    """Return a list without the credentials that a server repeats in it."""
    text = orjson.dumps(listed.to_json()).decode()
    masked = mask_credentials(credentials.values(), text) if credentials else text
    return listed if masked == text else _parse_tools(server.name, masked)


def _parse_tools(server: str, tools: str) -> ToolList:
    return read_tool_list(server, orjson.loads(tools))


@lru_cache(maxsize=LISTS_KEPT)
def _digest_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _digest(block: McpServerBlock) -> str:
    """Return a hash of what decides how a server is reached."""
    names = [entry.name for entry in fields(block) if entry.name != "discovered_tools"]
    return _digest_of_text(repr([(name, getattr(block, name)) for name in names]))


def _digest_of(headers: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(headers.items())).encode()).hexdigest()[:32] if headers else ""
