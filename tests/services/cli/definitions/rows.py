"""Rows of the API of definitions, and an API that holds some of them."""

import json
from typing import Any

import httpx
import pytest

from loomlog.services.core.definitions import def_id
from tests.services.cli.fake_api import FakeApi, Scripted, invoke, let_commands_use

PATH = "/v1/_definitions"
AT = {"X-Loomlog-Position": "loom.entity.events/1:7"}
MADE = "2026-11-25T14:12:12.120000000Z"


def version(number: int = 1, **changes: Any) -> dict[str, Any]:
    """Version of the agent researcher, or of another line."""
    name, kind, tenant = (changes.get(key, text) for key, text in NAMED.items())
    return {
        "def_id": def_id(tenant, kind, name, number),
        "name": name,
        "kind": kind,
        "tenant_id": tenant,
        "version": number,
        "parent_def_id": def_id(tenant, kind, name, number - 1) if number > 1 else "",
        "description": f"reason {number}",
        "created_at": MADE,
        "created_by": "ada",
        "created_by_agent_id": "a_http-ada",
        "created_by_run_id": "",
        "retired": False,
        "bootstrapped_from_static": False,
        "content_sha256": f"sha256:{number:064x}",
        "definition": {"provider": "mock", "model": f"mock-{number}"},
        "promoted": False,
        "judgements": {"count": 0, "mean": None},
    } | changes


NAMED = {"name": "researcher", "kind": "agent", "tenant_id": "acme"}


def line(active: int = 0, count: int = 1, **changes: Any) -> dict[str, Any]:
    """Row of the line researcher, or of another one."""
    name, kind, tenant = (changes.get(key, text) for key, text in NAMED.items())
    return {
        "kind": kind,
        "name": name,
        "tenant_id": tenant,
        "source": "tenant",
        "description": None,
        "active_def_id": def_id(tenant, kind, name, active) if active else None,
        "active_version": active,
        "version_count": count,
        "live_version_count": count,
        "latest_version": count,
        "last_updated": MADE,
        "made_by_agent": None,
        "static_def_id": None,
        "static_differs": False,
        "judgements": {"count": 0, "mean": None},
    } | changes


class Definitions(FakeApi):
    """`lines` in the order of the reads, the last one for all that follow; an exception breaks the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[list[dict[str, Any]] | Exception] = [[]]
        self.pages[PATH] = self._list
        self.pages["/v1/_me"] = lambda _: {"tenant_id": "acme"}

    def has(self, *versions: dict[str, Any]) -> None:
        for row in versions:
            self.answers["GET", f"{PATH}/{row['def_id']}"] = Scripted(body=row)

    def answers_with(self, path: str, body: dict[str, Any]) -> None:
        self.answers["POST", path] = Scripted(body=body, headers=AT)

    def sent(self) -> list[Any]:
        """Bodies of all writes."""
        return [json.loads(request.content) for request in self.asked if request.method == "POST"]

    def _list(self, request: httpx.Request) -> dict[str, Any]:
        rows = self.lines.pop(0) if len(self.lines) > 1 else self.lines[0]
        if isinstance(rows, Exception):
            raise rows
        kind, name = (request.url.params.get(key) for key in ("kind", "name"))
        chosen = [row for row in rows if kind in (None, row["kind"]) and name in (None, row["name"])]
        return {"definitions": chosen, "next": None}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Definitions:
    fake = Definitions()
    let_commands_use(monkeypatch, fake.client)
    monkeypatch.setenv("COLUMNS", "200")
    return fake


def defs(*arguments: str) -> Any:
    return invoke("defs", *arguments)


def ok(result: Any) -> list[str]:
    """Lines of a command that succeeded, without spaces at their ends and doubled ones."""
    assert result.exit_code == 0, result.output
    return [" ".join(text.split()) for text in result.stdout.splitlines()]
