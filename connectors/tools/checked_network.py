"""Opens connections for web tools, only to addresses that were checked.

httpcore asks its network backend for a connection to a host name; this backend resolves the name, drops every address
that hosts.address_is_allowed refuses, and connects to the rest by address. No second lookup happens between check and
connection, so DNS rebinding has no effect. httpcore starts TLS afterwards with the host name, so server name and
certificate checks stay right.

Not chosen: rewriting the URL to the address, which breaks both; checking the peer after connecting, which has already
sent a packet into the private network.

The reasons given to the model never contain a resolved address: it would map the internal network.

Before: web_client.py. After: httpcore's own backend.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

import httpcore

from loomlog.connectors.tools.hosts import canonical_host, is_address_allowed
from loomlog.connectors.tools.results import ToolCallRefused

CONNECT_TIMEOUT_S = 10.0
"""Time limit for one address; the whole exchange has its own."""
MAX_ADDRESSES = 8
"""Maximum addresses of a name to try; more would only delay the error."""

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves the addresses of a host. Raises OSError when there are none."""
SocketOptions = Iterable[tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]] | None


class RequestNotSent(ToolCallRefused):
    """The request did not leave this machine, so it certainly had no effect."""


async def resolve_with_system(host: str, port: int) -> Sequence[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Network backend with address checks. `private_hosts` may resolve to private addresses; names that cannot be
    names of hosts are left out of them.
    """

    def __init__(
        self,
        *,
        private_hosts: Iterable[str],
        resolve: Resolver = resolve_with_system,
        network: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._private_hosts = frozenset(filter(None, map(canonical_host, private_hosts)))
        self._resolve = resolve
        self._network = network or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first reachable allowed address. Raises RequestNotSent when there is none."""
        addresses = await self._resolve_allowed(host, port)
        for address in addresses:
            try:
                return await self._network.connect_tcp(
                    address, port, timeout=CONNECT_TIMEOUT_S, local_address=local_address, socket_options=socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        raise RequestNotSent(f'Could not connect to "{host}" port {port}: it refused or did not answer.')

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: SocketOptions = None
    ) -> httpcore.AsyncNetworkStream:
        raise RequestNotSent("Local sockets cannot be reached.")

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)

    async def _resolve_allowed(self, host: str, port: int) -> Sequence[str]:
        private = canonical_host(host) in self._private_hosts
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise RequestNotSent(f'The host "{host}" could not be resolved. Check its spelling.') from error
        allowed = [address for address in addresses if is_address_allowed(address, allow_private=private)]
        if not allowed:
            raise RequestNotSent(
                f'The host "{host}" has no public address. Private, loopback, link-local and other special addresses '
                "are closed unless the operator lists the host as private."
            )
        return allowed[:MAX_ADDRESSES]
