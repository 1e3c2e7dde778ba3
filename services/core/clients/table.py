"""The table of client tools: the fold of loom.client.events, as far as a process has read.

A registration counts while its host (the process that holds the connection) sends heartbeats. The table only decides
which tools a model is shown and which connection receives a call; the result of a call is reported by the host that had
it.
"""

from collections.abc import Mapping

from msgspec import field

from loomlog.schemas.client_names import TOOL_NAME_PREFIX
from loomlog.schemas.generated.stream_records import ClientHostAlive, ClientLeft, ClientRegistered, ClientTool
from loomlog.schemas.records import Value
from loomlog.services.core.clients import limits

ClientRecord = ClientRegistered | ClientLeft | ClientHostAlive
Principal = tuple[str, str]
"""Tenant and subject."""


class OfferedTool(Value, frozen=True, kw_only=True):
    """A tool and the connection that executes it."""

    tool: ClientTool
    connection_id: str


class ClientTable(Value, frozen=True, kw_only=True):
    """Registrations by principal and connection, and the time of each host's last heartbeat (UTC milliseconds)."""

    principals: Mapping[Principal, Mapping[str, ClientRegistered]] = field(default_factory=dict)
    hosts_seen_ms: Mapping[str, int] = field(default_factory=dict)

    def apply(self, record: ClientRecord, seen_ms: int) -> "ClientTable":
        """Return the table after one more record, read at `seen_ms`; the same object when nothing changes.

        Raises ValueError.
        """
        match record:
            case ClientRegistered():
                hosts = _with_host_seen(self.hosts_seen_ms, record.host, seen_ms)
                return ClientTable(principals=self._with_registration(record), hosts_seen_ms=hosts)
            case ClientLeft():
                return self._without_connection(record.connection_id)
            case ClientHostAlive():
                return self._without_expired_hosts(seen_ms, _with_host_seen(self.hosts_seen_ms, record.host, seen_ms))

    def offered_tools(self, tenant: str, subject: str, now_ms: int) -> dict[str, OfferedTool]:
        """Return the tools that a principal's runs may use now, by the names agents see; the later
        registration wins.
        """
        connections = self.principals.get((tenant, subject))
        if not connections:
            return {}
        tools: dict[str, OfferedTool] = {}
        for entry in sorted(connections.values(), key=lambda entry: entry.registered_at_ms):
            if self._is_alive(entry.host, now_ms):
                for tool in entry.tools:
                    tools[TOOL_NAME_PREFIX + tool.name] = OfferedTool(tool=tool, connection_id=entry.connection_id)
        return {name: tools[name] for name in sorted(tools)}

    def is_connected(self, tenant: str, subject: str, connection_id: str, now_ms: int) -> bool:
        """Whether that connection can still answer."""
        entry = self.principals.get((tenant, subject), {}).get(connection_id)
        return entry is not None and self._is_alive(entry.host, now_ms)

    def _is_alive(self, host: str, now_ms: int) -> bool:
        return now_ms - self.hosts_seen_ms.get(host, 0) <= limits.LEASE_MS

    def _with_registration(self, record: ClientRegistered) -> Mapping[Principal, Mapping[str, ClientRegistered]]:
        key = (record.tenant, record.subject)
        connections = self.principals.get(key, {})
        is_new = record.connection_id not in connections
        if is_new and sum(map(len, self.principals.values())) >= limits.REGISTRATIONS_MAX:
            raise ValueError(
                f"{limits.REGISTRATIONS_MAX} connections are known already; {record.connection_id} is one more"
            )
        return {**self.principals, key: {**connections, record.connection_id: record}}

    def _without_connection(self, connection_id: str) -> "ClientTable":
        for key, connections in self.principals.items():
            if connection_id in connections:
                left = {name: entry for name, entry in connections.items() if name != connection_id}
                others = {name: entries for name, entries in self.principals.items() if name != key}
                return ClientTable(
                    principals={**others, key: left} if left else others, hosts_seen_ms=self.hosts_seen_ms
                )
        return self

    def _without_expired_hosts(self, now_ms: int, hosts: Mapping[str, int]) -> "ClientTable":
        """Return the table without expired hosts and their registrations."""
        gone = {host for host, seen_ms in hosts.items() if now_ms - seen_ms > 2 * limits.LEASE_MS}
        if not gone:
            return ClientTable(principals=self.principals, hosts_seen_ms=hosts)
        kept = {
            key: {name: entry for name, entry in entries.items() if entry.host not in gone}
            for key, entries in self.principals.items()
        }
        return ClientTable(
            principals={key: entries for key, entries in kept.items() if entries},
            hosts_seen_ms={host: seen_ms for host, seen_ms in hosts.items() if host not in gone},
        )


def _with_host_seen(hosts: Mapping[str, int], host: str, seen_ms: int) -> Mapping[str, int]:
    return {**hosts, host: max(seen_ms, hosts.get(host, 0))}
