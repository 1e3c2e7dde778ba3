"""Tokens: which are made, replaced and ended, and which bounds hold."""

from typing import Any

import pytest

from loomlog.schemas.records import replace
from loomlog.services.core.access.scopes import ADMIN, RUNS_CREATE, RUNS_READ, TENANT, USER
from loomlog.services.families.identity import FAMILY, limits
from tests.services.families.identity.given import NOW_MS, Given, hashed, mint, register, retire, rotate

ADMINISTRATOR = {"scopes": (ADMIN,)}


def admin(name: str, number: int, **fields: Any) -> Any:
    return mint(name, number, **ADMINISTRATOR, **fields)


def end_admin(name: str, number: int) -> Any:
    return retire(name, number, tenant="")


def test_a_token_is_made_with_who_and_when() -> None:
    token = Given(mint(suffix="abcdef")).token()
    assert (token.created_at_ms, token.created_by, token.suffix, token.is_in_force(NOW_MS)) == (
        NOW_MS,
        "op",
        "abcdef",
        True,
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"scopes": ()}, "scopes: expected 1 to 64"),
        ({"scopes": ("runs:everything",)}, "'runs:everything' is none of"),
        ({"scopes": (RUNS_READ,) * 65}, "scopes: expected 1 to 64"),
        ({"name": "a b"}, "name: expected 1 to 64 letters"),
        ({"name": "a" * 65}, "name: expected 1 to 64 letters"),
        ({"subject": ""}, "subject: expected 1 to 64 letters"),
        ({"user": "ada", "subject": "bob"}, "subject: the token of a user"),
        ({"hashed": "short"}, "hashed: expected 64"),
        ({"expires_at_ms": NOW_MS}, "expires_at: expected a time in the future"),
        ({"supersede_shared": True}, "only a token with substrate:admin"),
    ],
)
def test_what_is_no_token_is_refused_by_its_field(fields: dict[str, Any], text: str) -> None:
    fields = dict(fields)
    code, message = Given().when(mint(fields.pop("name", "ci"), **fields)).refusal
    assert code == "bad_request"
    assert text in message


def test_no_scope_is_added_to_those_that_are_asked_for() -> None:
    assert Given(mint(scopes=(RUNS_CREATE, TENANT))).token().scopes == (RUNS_CREATE, TENANT)


def test_a_token_of_another_tenant_is_refused() -> None:
    other = mint()
    wrong = replace(other, token=replace(other.token, tenant="globex"))
    assert Given().when(wrong).refusal == ("bad_request", "tenant_id is globex: expected acme")


def test_administrators_are_decided_in_one_place() -> None:
    assert FAMILY.commands[0].aggregate(admin("root", 1)) == "installation"
    elsewhere = replace(admin("root", 1), envelope=mint().envelope)
    assert Given().when(elsewhere).refusal[0] == "bad_request"
    assert Given(tenant="").when(replace(mint(), envelope=admin("root", 1).envelope)).refusal[0] == "bad_request"


def test_a_name_in_force_is_taken_and_free_again_afterwards() -> None:
    given = Given(mint())
    assert given.when(mint(number=2)).refusal[0] == "name_taken"
    assert given.when(retire()).in_force() == []
    assert given.when(mint(number=2)).in_force() == ["tok_2"]


def test_an_expired_name_is_free_again() -> None:
    given = Given(mint(expires_at_ms=NOW_MS + 5))
    assert not given.when(mint(number=2), at_ms=NOW_MS + 5).is_refused


def test_one_text_is_one_token() -> None:
    given = Given(mint("a", 1))
    assert "that of another token" in given.when(mint("b", 2, hashed=hashed(1))).refusal[1]


def test_rotation_keeps_everything_but_the_text_and_the_old_one_for_a_while() -> None:
    given = Given(mint(scopes=(RUNS_CREATE,), subject="robot")).when(rotate(grace_ms=1_000))
    new = given.token(2)
    assert (new.name, new.subject, new.scopes, new.rotated_from) == ("ci", "robot", (RUNS_CREATE,), "tok_1")
    assert given.in_force(NOW_MS + 999) == ["tok_1", "tok_2"]
    assert given.in_force(NOW_MS + 1_000) == ["tok_2"]


def test_rotation_without_grace_ends_the_old_text_at_once() -> None:
    assert Given(mint()).when(rotate()).in_force() == ["tok_2"]


def test_grace_does_not_outlive_the_expiry() -> None:
    given = Given(mint(expires_at_ms=NOW_MS + 10)).when(rotate(grace_ms=1_000))
    assert given.token().retired_at_ms == NOW_MS + 10


def test_what_is_replaced_or_ended_is_not_replaced_again() -> None:
    given = Given(mint(), rotate(grace_ms=1_000))
    assert given.when(rotate(new=3)).refusal[0] == "retired"
    assert Given(mint(), retire()).when(rotate()).refusal[0] == "retired"
    assert Given().when(rotate()).refusal[0] == "token_not_found"


@pytest.mark.parametrize("grace_ms", [-1, limits.GRACE_MS_MAX + 1])
def test_grace_has_bounds(grace_ms: int) -> None:
    assert Given(mint()).when(rotate(grace_ms=grace_ms)).refusal[0] == "bad_request"
    assert not Given(mint()).when(rotate(grace_ms=limits.GRACE_MS_MAX)).is_refused


def test_retiring_twice_changes_nothing() -> None:
    given = Given(mint(), retire())
    assert given.when(retire()).events == []
    assert given.when(retire("ci", 7)).refusal[0] == "token_not_found"


def test_retiring_ends_the_grace() -> None:
    given = Given(mint(), rotate(grace_ms=1_000)).when(retire())
    assert given.in_force() == ["tok_2"]


def test_the_last_administrator_is_not_ended() -> None:
    given = Given(admin("root", 1), tenant="")
    assert given.when(end_admin("root", 1)).refusal[0] == "last_administrator"
    given.when(admin("second", 2))
    assert given.when(end_admin("root", 1)).in_force() == ["tok_2"]


def test_a_token_that_ends_by_its_grace_is_no_further_administrator() -> None:
    given = Given(admin("root", 1), rotate("root", 1, 2, tenant="", grace_ms=60_000), tenant="")
    assert given.when(end_admin("root", 2)).refusal[0] == "last_administrator"


def test_the_shared_token_ends_only_on_request() -> None:
    assert not Given(admin("root", 1), tenant="").state.is_shared_superseded
    assert Given(admin("root", 1, supersede_shared=True), tenant="").state.is_shared_superseded


def test_the_number_of_administrators_has_a_bound() -> None:
    given = Given(*(admin(f"a{n}", n) for n in range(limits.ADMINISTRATORS_MAX)), tenant="")
    assert given.when(admin("more", 9_999)).refusal[0] == "too_many"


def test_a_user_has_a_bounded_number_of_tokens() -> None:
    mints = [mint(f"ada-{n}", n, user="ada") for n in range(limits.TOKENS_PER_USER_MAX)]
    given = Given(register(), *mints)
    assert given.when(mint("ada-more", 99, user="ada")).refusal[0] == "too_many"
    given.when(retire("ada-0", 0, user="ada"))
    assert not given.when(mint("ada-more", 99, user="ada")).is_refused


def test_the_tokens_of_a_user_have_the_scopes_of_the_access_mode() -> None:
    given = Given(register(access_mode="isolated"), mint("ada-1", user="ada", scopes=(TENANT,)))
    assert given.token().scopes == (USER,)


def test_only_active_users_get_tokens() -> None:
    assert Given().when(mint("ada-1", user="ada")).refusal[0] == "user_not_found"
    assert Given(register(status="disabled")).when(mint("ada-1", user="ada")).refusal[0] == "user_disabled"


def test_ended_tokens_of_a_name_are_forgotten_in_their_order() -> None:
    given = Given()
    for number in range(limits.RETIRED_KEPT_MAX + 5):
        given.when(mint(number=number)).when(retire(number=number))
    assert len(given.state.tokens) == limits.RETIRED_KEPT_MAX + 1
    assert "tok_0" not in given.state.tokens


def test_a_part_of_a_tenant_that_is_full_takes_nothing_more_and_can_be_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = Given(mint("a", 1))
    monkeypatch.setattr(limits, "STATE_BYTES_MAX", 300)
    assert given.when(mint("b", 2)).refusal[0] == "state_too_large"
    assert given.when(retire("a", 1)).in_force() == []
