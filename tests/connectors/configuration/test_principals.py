from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.principals import (
    SCOPES,
    Principal,
    TokenTable,
    bearer_token,
    build_token_table,
    find_principal,
    is_loopback_listen_addr,
)
from tests.connectors.configuration.conftest import Folder

TEXT = """\
principals:
  operator: {tenant: acme, subject: op, scopes: ["substrate:tenant"], token_env: LOOMLOG_OP}
  member: {tenant: acme, subject: ann, scopes: ["runs:create", "runs:read"], token_env: LOOMLOG_ANN}
  isolated: {tenant: acme, subject: ivy, scopes: ["substrate:user"], token_env: LOOMLOG_IVY}
"""
ENVIRON = {"LOOMLOG_OP": "op-token", "LOOMLOG_ANN": "ann-token", "LOOMLOG_IVY": "ivy-token-which-is-long-enough"}


def table(folder: Folder, text: str, environ: Mapping[str, str]) -> TokenTable:
    loaded = folder.load(text, environ)
    return build_token_table(loaded.configuration, loaded.settings, environ)


def authenticate(tokens: TokenTable, header: str | None) -> Principal | None:
    return find_principal(tokens, bearer_token(header))


def problems(folder: Folder, text: str, environ: Mapping[str, str]) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        table(folder, text, environ)
    return [str(problem) for problem in caught.value.findings]


def test_the_shared_token_is_an_administrator_of_the_default_tenant(folder: Folder):
    actual = authenticate(table(folder, "agents: {}", {"LOOMCYCLE_AUTH_TOKEN": "shared"}), "Bearer shared")
    assert actual is not None
    assert (actual.tenant, actual.subject, actual.legacy, actual.is_admin) == ("default", "default", True, True)
    assert actual.scopes == {"substrate:admin"}


def test_a_declared_principal_is_found_by_its_token(folder: Folder):
    tokens = table(folder, TEXT, {**ENVIRON, "LOOMLOG_AUTH_TOKEN": "shared"})
    actual = authenticate(tokens, "Bearer ann-token")
    assert actual == Principal(
        name="member", tenant="acme", subject="ann", scopes=frozenset({"runs:create", "runs:read"}), token_suffix=""
    )
    assert find_principal(tokens, "op-token") is not None
    assert not tokens.open_mode


@pytest.mark.parametrize("header", ["bearer ann-token", "BEARER   ann-token ", " Bearer ann-token"])
def test_the_scheme_may_be_written_in_any_case(folder: Folder, header: str):
    assert authenticate(table(folder, TEXT, ENVIRON), header) is not None


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "ann-token", "Basic ann-token", "Bearer ann-token x", "Bearer x"]
)
def test_anything_else_is_nobody(folder: Folder, header: str | None):
    assert authenticate(table(folder, TEXT, ENVIRON), header) is None


@given(st.text(max_size=40))
def test_no_other_text_is_let_in(text: str):
    row = Principal(name="a", tenant="t", subject="s", scopes=frozenset({"runs:read"}))
    tokens = TokenTable(rows=((bytes(32), row),))
    assert authenticate(tokens, text) is None
    assert authenticate(tokens, f"Bearer {text}") is None


def test_neither_tokens_nor_hashes_are_shown(folder: Folder):
    tokens = table(folder, TEXT, ENVIRON)
    assert repr(tokens) == "TokenTable(open_mode=False)"
    suffixes = [principal.token_suffix for _, principal in tokens.rows]
    assert suffixes == ["", "", "enough"]


def test_an_empty_token_names_its_variable(folder: Folder):
    environ = {**ENVIRON, "LOOMLOG_ANN": " "}
    assert problems(folder, TEXT, environ) == [
        "principals.member: its token should be in LOOMLOG_ANN, which is not set or empty"
    ]
    assert len(problems(folder, TEXT, {"LOOMLOG_AUTH_TOKEN": "x"})) == 3


def test_a_token_that_is_there_twice_names_both_variables_and_not_the_token(folder: Folder):
    (line,) = problems(folder, TEXT, {**ENVIRON, "LOOMLOG_IVY": "op-token"})
    assert line == "principals.isolated: LOOMLOG_IVY holds the same token as LOOMLOG_OP; each principal needs its own"
    (line,) = problems(folder, TEXT, {**ENVIRON, "LOOMLOG_AUTH_TOKEN": "ann-token"})
    assert "LOOMLOG_ANN holds the same token as LOOMLOG_AUTH_TOKEN" in line


def test_without_any_token_the_door_stays_closed(folder: Folder):
    (line,) = problems(folder, "agents: {}", {})
    assert line.startswith("there is no token, so every request would be refused")


def test_open_mode_must_be_meant_and_is_for_this_machine_only(folder: Folder):
    tokens = table(folder, "agents: {}", {"LOOMLOG_OPEN_MODE": "1"})
    assert tokens.open_mode
    for name in ("LOOMLOG_LISTEN_ADDR", "LOOMLOG_GRPC_ADDR"):
        (line,) = problems(folder, "agents: {}", {"LOOMLOG_OPEN_MODE": "1", name: "0.0.0.0:8787"})
        assert "0.0.0.0:8787, which is no loopback address" in line


def test_open_mode_opens_nothing_where_there_are_tokens(folder: Folder):
    tokens = table(folder, TEXT, {**ENVIRON, "LOOMLOG_OPEN_MODE": "1"})
    assert not tokens.open_mode
    assert authenticate(tokens, None) is None


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.8.0.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        (":1", False),
        ("10.0.0.1:1", False),
        ("localhost.example:1", False),
    ],
)
def test_only_loopback_addresses_are_loopback(address: str, expected: bool):
    assert is_loopback_listen_addr(address) is expected


def principal(*scopes: str) -> Principal:
    return Principal(name="x", tenant="t", subject="s", scopes=frozenset(scopes))


def test_scopes_include_what_the_catalogue_says():
    admin, tenant, user, member = (
        principal("substrate:admin"),
        principal("substrate:tenant"),
        principal("substrate:user"),
        principal("runs:read"),
    )
    assert all(admin.allows(scope) for scope in SCOPES)
    assert {scope for scope in SCOPES if tenant.allows(scope)} == SCOPES - {"substrate:admin", "substrate:user"}
    assert {scope for scope in SCOPES if user.allows(scope)} == {"substrate:user", "runs:create", "runs:read"}
    assert {scope for scope in SCOPES if member.allows(scope)} == {"runs:read", "tenant:read"}
    assert [p.is_isolated for p in (admin, tenant, user, member)] == [False, False, True, False]
    assert [p.is_member for p in (admin, tenant, user, member)] == [False, False, False, True]
    assert not principal("substrate:user", "substrate:tenant").is_isolated


def test_asking_for_a_scope_that_does_not_exist_is_a_bug():
    with pytest.raises(AssertionError):
        principal("substrate:admin").allows("everything")
