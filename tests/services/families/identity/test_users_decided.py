"""Users, quotas and credentials: what is decided of them, and what becomes of the tokens of a user."""

from typing import Any

import pytest

from loomlog.schemas.generated.identity_commands import ChangeUser, NoteCredential, RemoveUser, SetQuota
from loomlog.schemas.generated.values import TenantQuota
from loomlog.services.core.access.scopes import RUNS_CREATE, USER
from loomlog.services.families.identity import limits
from loomlog.services.families.identity.state import Credential
from tests.services.families.identity.given import NOW_MS, Given, envelope, mint, register


def change(**fields: Any) -> ChangeUser:
    return ChangeUser(envelope=envelope(), subject="ada", **fields)


def note(version: int, **fields: Any) -> NoteCredential:
    values = {"scope": "tenant", "name": "github", **fields}
    return NoteCredential(envelope=envelope(), version=version, **values)


def quota(scope: str = "tenant", scope_id: str = "", **bounds: int) -> SetQuota:
    return SetQuota(envelope=envelope(), scope=scope, scope_id=scope_id, quota=TenantQuota(**bounds))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"subject": ""}, "missing_subject"),
        ({"subject": "a/b"}, "missing_subject"),
        ({"access_mode": "admin"}, "invalid_access_mode"),
        ({"status": "gone"}, "invalid_status"),
        ({"display_name": "x" * (limits.DISPLAY_NAME_BYTES_MAX + 1)}, "bad_request"),
    ],
)
def test_what_is_no_user_is_refused_with_a_code_of_its_own(fields: dict[str, str], code: str) -> None:
    assert Given().when(register(**fields)).refusal[0] == code


def test_a_user_is_registered_once() -> None:
    given = Given(register(display_name="Ada"))
    assert given.when(register()).refusal[0] == "user_exists"
    user = given.state.users["ada"]
    assert (user.display_name, user.created_at_ms, user.created_by) == ("Ada", NOW_MS, "op")


def test_a_change_keeps_what_it_does_not_name() -> None:
    given = Given(register(display_name="Ada")).when(change(access_mode="isolated"), at_ms=NOW_MS + 9)
    user = given.state.users["ada"]
    assert (user.display_name, user.access_mode, user.status, user.created_at_ms) == (
        "Ada",
        "isolated",
        "active",
        NOW_MS,
    )
    assert given.when(change(access_mode="isolated")).events == []


def test_the_access_mode_reaches_the_tokens_that_there_are() -> None:
    given = Given(register(), mint("ada-1", user="ada"))
    assert RUNS_CREATE in given.token().scopes
    assert given.when(change(access_mode="isolated")).token().scopes == (USER,)


def test_who_is_disabled_or_removed_has_no_tokens_any_more() -> None:
    tokens = [register(), mint("ada-1", 1, user="ada"), mint("ada-2", 2, user="ada"), register("bob")]
    others = mint("bob-1", 3, user="bob")
    assert Given(*tokens, others).when(change(status="disabled")).in_force() == ["tok_3"]
    given = Given(*tokens, others).when(RemoveUser(envelope=envelope(), subject="ada"))
    assert given.in_force() == ["tok_3"]
    assert list(given.state.users) == ["bob"]


def test_who_is_active_again_gets_no_old_token_back() -> None:
    given = Given(register(), mint("ada-1", user="ada"), change(status="disabled"))
    assert given.when(change(status="active"), at_ms=NOW_MS + 1).in_force(NOW_MS + 2) == []


@pytest.mark.parametrize("command", [change(status="disabled"), RemoveUser(envelope=envelope(), subject="ada")])
def test_a_user_that_nobody_knows_is_not_found(command: Any) -> None:
    assert Given().when(command).refusal[0] == "user_not_found"


def test_quotas_are_set_once_and_removed_by_setting_no_bound() -> None:
    given = Given(quota(users=3), quota("user", "ada", runs_at_once=1))
    assert given.when(quota(users=3)).events == []
    assert len(given.when(quota()).state.quotas) == 1


@pytest.mark.parametrize(
    "command",
    [
        quota("planet"),
        quota("user"),
        quota("tenant", "ada"),
        quota(users=-2),
        quota(tokens=2**60),
        note(1, scope="global"),
        note(1, name="a b"),
        note(-1),
        note(1, reference="x" * 2_000),
    ],
)
def test_what_is_no_quota_or_credential_is_refused(command: Any) -> None:
    assert Given().when(command).refusal[0] == "bad_request"


def test_a_credential_has_versions_and_ends() -> None:
    given = Given(note(1)).when(note(2, reference="env:GITHUB"), at_ms=NOW_MS + 5)
    (credential,) = given.state.credentials.values()
    expected = Credential(
        scope="tenant", name="github", version=2, reference="env:GITHUB", created_at_ms=NOW_MS, updated_at_ms=NOW_MS + 5
    )
    assert credential == expected
    assert given.when(note(2)).refusal[0] == "revision_conflict"
    assert not given.when(note(0)).state.credentials
    assert given.when(note(0)).events == []
