"""Limits on spending in state files: they go along with what was spent, and win over nothing that is said here."""

import gzip
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.storage.state_files import StateFiles
from loomlog.schemas.generated.budget_commands import SettleBudget
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.application.transfer.restore import RestoreResult
from loomlog.services.application.transfer.state_files import StateFileRequest
from loomlog.services.families.budget.state import AccountUsage, account_key
from loomlog.services.families.budget.state_files import export_limits, to_command
from loomlog.services.families.ports.spending_limits import LimitRequest
from loomlog.services.stream.archive.state_file import (
    BrokenStateFile,
    StatedLimit,
    StateHeader,
    StateWriter,
    sections_of,
)
from loomlog.services.stream.archive.state_validation import validate_state
from tests.services.application.world import ADMIN_CALLER, World, world

MONTH_MS = 32 * 86_400_000


@asynccontextmanager
async def installation(folder: Path) -> AsyncIterator[World]:
    folder.mkdir()
    async with world(state_files=StateFiles(folder)) as made:
        yield made


async def limited(made: World, tenant: str, **amounts: Any) -> None:
    expected = LimitRequest(scope="tenant", tenant=tenant, **amounts)
    await made.layer.limits.set(ADMIN_CALLER, expected)


async def spent(made: World, tenant: str, tokens: int) -> None:
    command = SettleBudget(
        envelope=made.layer.limits._accounts.envelope(),
        tenant=tenant,
        id=f"r:{tenant}",
        user_id="",
        tokens=tokens,
        micros=0,
        reserved=False,
    )
    await made.layer.limits._accounts.request(command, wait_s=30)


async def file_of(made: World, **wanted: Any) -> bytes:
    manifest = await made.layer.backups.create(ADMIN_CALLER, StateFileRequest(**wanted))
    _, file = await made.layer.backups.open(manifest["id"])
    with closing(file):
        return file.read()


async def restored(made: World, data: bytes, *, dry_run: bool = False) -> RestoreResult:
    return await made.layer.state_restore.restore(ADMIN_CALLER, io.BytesIO(data), dry_run=dry_run)


def accounts(made: World) -> dict[str, tuple[int | None, int]]:
    """Each limit's hard_tokens and what is used of them."""
    books = made.layer.limits._accounts.state
    return {
        limit.scope_id: (limit.hard_tokens, books.accounts.get(key, AccountUsage()).used_tokens)
        for key, limit in books.limits.items()
    }


async def test_limits_come_with_what_was_spent_and_stay_where_there_is_one(tmp_path: Path) -> None:
    async with installation(tmp_path / "a") as there:
        await limited(there, "acme", hard_tokens=100)
        await limited(there, "globex", hard_tokens=200)
        await spent(there, "acme", 70)
        await spent(there, "globex", 30)
        data, of_acme = await file_of(there), await file_of(there, tenant="acme")
    async with installation(tmp_path / "b") as here:
        await limited(here, "globex", hard_tokens=5)
        assert (await restored(here, data, dry_run=True)).limits == 1
        assert accounts(here) == {"globex": (5, 0)}
        first, again = await restored(here, data), await restored(here, data)
        assert (first.limits, again.limits) == (1, 0)
        assert [position.rpartition(":")[0] for position in first.positions.values()] == ["loom.entity.events/3"]
        assert accounts(here) == {"acme": (100, 70), "globex": (5, 0)}
    async with installation(tmp_path / "c") as alone:
        await restored(alone, of_acme)
        assert accounts(alone) == {"acme": (100, 70)}


async def test_a_file_of_before_limits_were_in_them_is_restored(tmp_path: Path) -> None:
    async with installation(tmp_path / "a") as there:
        document = json.loads(gzip.decompress(await file_of(there)))
        document["sections"] = {name: document["sections"][name] for name in sections_of(1)}
        document["schema_version"] = 1
        plain = gzip.decompress(b"".join(StateWriter().rewrite(document)))
        # The hash of the lines as they are now, as whoever wrote version 1 would have made it.
        lines = plain.splitlines(keepends=True)
        with pytest.raises(BrokenStateFile) as altered:
            validate_state(io.BytesIO(plain))
        right = str(altered.value).split("hash to ")[1].split(",")[0]
        lines[-1] = lines[-1].replace(document["sha256"].encode(), right.encode())
        assert (await restored(there, b"".join(lines))).limits == 0


def limit(**more: Any) -> StatedLimit:
    inputs: dict[str, Any] = dict.fromkeys(("soft_tokens", "hard_tokens", "soft_micros", "hard_micros"))
    inputs |= {"scope": "tenant", "tenant": "acme", "scope_id": "acme", "hard_tokens": 9, "strict": True}
    return StatedLimit(**{**inputs, "currency": "", "month": "2026-01", "used_tokens": 4, "used_micros": 0, **more})


@pytest.mark.parametrize(
    ("wrong", "tenant", "says"),
    [
        ({"scope_id": "globex"}, "", "scope_id of the scope tenant"),
        ({"tenant": "globex", "scope_id": "globex"}, "acme", "beyond the tenant of the file"),
        ({"hard_tokens": True}, "", "bool.*hard_tokens"),
        ({"used_tokens": "7"}, "", "str.*used_tokens"),
    ],
)
def test_a_limit_that_makes_no_sense_breaks_the_file(wrong: dict[str, Any], tenant: str, says: str) -> None:
    writer = StateWriter()
    header = StateHeader(
        created_at="", label="", tenant=tenant, topic="t", reducer_version=1, include_history=True, positions={}
    )
    data = writer.begin(header) + writer.limit(limit(**wrong)) + writer.end()
    with pytest.raises(BrokenStateFile, match=says):
        validate_state(io.BytesIO(data))


async def test_what_was_spent_in_another_month_counts_for_nothing_and_what_is_set_aside_counts_as_spent() -> None:
    async with world() as made:
        await limited(made, "acme", hard_tokens=100)
        books = made.layer.limits._accounts.state
        key = account_key("tenant", "acme", "acme")
        books = type(books)(
            month=books.month, limits=books.limits, accounts={key: AccountUsage(used_tokens=5, reserved_tokens=8)}
        )
        now = made.layer.limits._clock_ms()
        [stated] = export_limits(books, now)
    envelope = CommandEnvelope(command_id="c", tenant="acme", subject="root", issued_at_ms=now)
    assert stated.used_tokens == 13
    assert to_command(stated, envelope, now).used_tokens == 13
    assert to_command(stated, envelope, now + MONTH_MS).used_tokens == 0
