"""Who offers which tools, and to whom."""

import pytest

from loomlog.schemas.generated.stream_records import ClientHostAlive, ClientLeft, ClientRegistered, ClientTool
from loomlog.schemas.records import replace
from loomlog.services.core.clients import limits
from loomlog.services.core.clients.limits import LEASE_MS
from loomlog.services.core.clients.table import ClientTable

NOW = 1_700_000_000_000
OFFER = ClientRegistered(
    connection_id="h.1",
    host="h",
    tenant="acme",
    subject="ann",
    tools=(ClientTool(name="click", description="", input_schema="{}"),),
    registered_at_ms=NOW,
    at_ms=NOW,
)
LATER = replace(OFFER, connection_id="h.2", registered_at_ms=NOW + 1)


def table(*records: ClientRegistered | ClientLeft | ClientHostAlive, seen_ms: int = NOW) -> ClientTable:
    client_table = ClientTable()
    for record in records:
        client_table = client_table.apply(record, seen_ms)
    return client_table


def asked(found: ClientTable, tenant: str = "acme", subject: str = "ann", at_ms: int = NOW) -> list[tuple[str, str]]:
    return [(name, one.connection_id) for name, one in found.offered_tools(tenant, subject, at_ms).items()]


def test_a_run_is_offered_the_tools_of_its_own_principal_only() -> None:
    client_table = table(OFFER)
    assert asked(client_table) == [("client__click", "h.1")]
    assert asked(client_table, subject="bob") == []
    assert asked(client_table, tenant="other") == []
    assert client_table.is_connected("acme", "ann", "h.1", NOW)
    assert not client_table.is_connected("acme", "bob", "h.1", NOW)


def test_the_later_of_two_is_asked_and_the_other_when_it_leaves() -> None:
    both = table(LATER, OFFER)
    assert asked(both) == [("client__click", "h.2")]
    assert asked(both.apply(ClientLeft(connection_id="h.2", host="h", at_ms=NOW), NOW)) == [("client__click", "h.1")]


def test_another_hello_replaces_the_tools() -> None:
    other = replace(OFFER, tools=(ClientTool(name="read", description="", input_schema="{}"),))
    assert asked(table(OFFER, other)) == [("client__read", "h.1")]


def test_a_registration_counts_while_its_host_is_heard_of() -> None:
    client_table = table(OFFER)
    assert asked(client_table, at_ms=NOW + LEASE_MS)
    assert not asked(client_table, at_ms=NOW + LEASE_MS + 1)
    assert not client_table.is_connected("acme", "ann", "h.1", NOW + LEASE_MS + 1)
    alive = client_table.apply(ClientHostAlive(host="h", at_ms=NOW), NOW + LEASE_MS)
    assert asked(alive, at_ms=NOW + 2 * LEASE_MS)


def test_of_a_host_that_is_long_gone_nothing_is_kept() -> None:
    client_table = table(OFFER).apply(ClientHostAlive(host="other", at_ms=NOW), NOW + 3 * LEASE_MS)
    assert (dict(client_table.principals), list(client_table.hosts_seen_ms)) == ({}, ["other"])


def test_an_older_word_of_a_host_takes_nothing_back() -> None:
    client_table = table(OFFER, seen_ms=NOW + 1_000).apply(ClientHostAlive(host="h", at_ms=NOW), NOW)
    assert client_table.hosts_seen_ms == {"h": NOW + 1_000}


def test_the_end_of_an_unknown_connection_changes_nothing() -> None:
    client_table = table(OFFER)
    assert client_table.apply(ClientLeft(connection_id="x", host="h", at_ms=NOW), NOW) is client_table


def test_there_is_room_for_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REGISTRATIONS_MAX", 1)
    full = table(OFFER)
    with pytest.raises(ValueError, match=r"h\.2"):
        full.apply(LATER, NOW)
    assert asked(full.apply(replace(OFFER, registered_at_ms=NOW + 5), NOW)) == [("client__click", "h.1")]
