"""Tokens and users over the whole stack: taken back at once, and what is decided survives the death of any process."""

import json
import os
import signal
import time

import httpx
import pytest

from tests.acceptance.installation import Installation

WAIT_S = 30.0
"""How long a token may still give access after the answer that ends it."""


def base_url(stack: Installation) -> str:
    return f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}"


def status_of(stack: Installation, token: str) -> int:
    """The status of a request with a token, once the API answers."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            answer = httpx.get(
                f"{base_url(stack)}/v1/_me", headers={"authorization": f"Bearer {token}"}, trust_env=False
            )
            if answer.status_code != 503:
                return answer.status_code
        except httpx.TransportError:
            pass  # the process is being started again
        assert time.monotonic() < until, "the API does not answer"


def kill(stack: Installation, name: str) -> None:
    children = stack.loomlog("status", "--json").json["children"]
    pid = next(child["pid"] for child in children if name in (child.get("role"), child.get("name")))
    os.kill(pid, signal.SIGKILL)


@pytest.mark.stack
def test_a_token_survives_the_death_of_owner_and_api_and_ends_when_it_is_retired(stack: Installation) -> None:
    create = ("tokens", "create", "--name", "robot", "--tenant", "acme", "--scopes", "runs:read", "--json")
    first = stack.loomlog(*create).json
    assert status_of(stack, first["token"]) == 200
    kill(stack, "owner")
    rotate = ("tokens", "rotate", "robot", "--grace-seconds", "0", "--idempotency-key", "once", "--json")
    second = stack.loomlog(*rotate).json
    again = stack.loomlog(*rotate).json
    assert (again["def_id"], "token" in again) == (second["def_id"], False)
    assert status_of(stack, first["token"]) == 401
    kill(stack, "api")
    assert status_of(stack, second["token"]) == 200
    assert status_of(stack, first["token"]) == 401
    stack.loomlog("tokens", "retire", "robot")
    until = time.monotonic() + WAIT_S
    while status_of(stack, second["token"]) != 401:
        assert time.monotonic() < until, "the token still gives access"
    listed = stack.loomlog("tokens", "show", "robot", "--json").out
    assert first["token"] not in listed
    assert second["token"] not in listed


@pytest.mark.stack
def test_a_user_is_registered_gets_a_token_and_loses_it_when_disabled(stack: Installation) -> None:
    stack.loomlog("users", "add", "--subject", "ada", "--access-mode", "isolated", "--display-name", "Ada L.")
    made = stack.loomlog("users", "token", "ada", "--json").json
    stack.environ["LOOMLOG_TOKEN"] = made["token"]
    try:
        me = stack.loomlog("whoami", "--json").json
        assert (me["subject"], me["scopes"], me["is_isolated"]) == ("ada", ["substrate:user"], True)
        assert [row["user_id"] for row in stack.loomlog("users", "ls", "--json").json["users"]] == ["ada"]
        stack.loomlog("users", "add", "--subject", "eve", code=1)
    finally:
        del stack.environ["LOOMLOG_TOKEN"]
    explained = stack.loomlog("access", "explain", "ada", "tenant.list", "--json")
    assert json.loads(explained.out)["allowed"] is False
    stack.loomlog("users", "set", "ada", "--status", "disabled")
    assert status_of(stack, made["token"]) == 401
    stack.loomlog("users", "rm", "ada")


@pytest.mark.stack
def test_a_stored_credential_outlives_the_api_and_is_shown_nowhere(stack: Installation) -> None:
    stack.environ["STORED_VALUE"] = value = "hunter2-hunter2-hunter2"
    stack.loomlog("credentials", "set", "git", "--copy-from-env", "STORED_VALUE")
    kill(stack, "api")
    status_of(stack, "lct_none")
    listed = stack.loomlog("credentials", "ls", "--json")
    assert [row["name"] for row in listed.json["credentials"]] == ["git"]
    assert value not in listed.out
    assert stack.loomlog("credentials", "rewrap", "--json").json["rewrapped"] == 1
    logs = [one.read_text(errors="replace") for one in stack.folder.rglob("*.log") if one.is_file()]
    assert logs
    assert not any(value in text for text in logs)
    stack.loomlog("credentials", "set", "crm", "--reference", "vault:team/crm#token", code=1)
    stack.loomlog("credentials", "set", "bot", "--backend", "github_app", "--copy-from-env", "STORED_VALUE", code=1)
    stack.loomlog("credentials", "rm", "git")
    assert stack.loomlog("credentials", "ls", "--json").json["credentials"] == []
