import json

import pytest

from tests.services.cli.fake_api import Scripted, invoke

AT = {"X-Loomlog-Position": "loom.entity.events/0:7"}
LIMIT = {
    "tenant_id": "acme",
    "scope": "user",
    "scope_id": "ada",
    "soft_limit": 100,
    "hard_limit": None,
    "used": 120,
    "soft_limit_micros": None,
    "hard_limit_micros": 5_000_000,
    "used_micros": 1_250_000,
    "currency": "USD",
    "updated_at": "2026-11-21T12:00:00.000Z",
    "updated_by": "op",
}


@pytest.mark.parametrize(
    ("arguments", "body", "named"),
    [
        (("--everybody", "--hard", "5"), {"scope": "operator", "hard_limit": 5}, "everybody"),
        (("--tenant", "acme", "--soft", "5"), {"scope": "tenant", "tenant_id": "acme", "soft_limit": 5}, "tenant acme"),
        (
            ("--user", "ada", "--tenant", "acme", "--hard-money", "12.50", "--soft-money", "0.000001"),
            {
                "scope": "user",
                "tenant_id": "acme",
                "scope_id": "ada",
                "soft_limit_micros": 1,
                "hard_limit_micros": 12_500_000,
            },
            "user ada of acme",
        ),
        (
            ("--user", "ada", "--hard", "5", "--strict"),
            {"scope": "user", "scope_id": "ada", "hard_limit": 5, "strict": True},
            "user ada of acme",
        ),
    ],
)
def test_a_limit_is_set_for_whom_it_names_and_shows_its_position(fake, arguments, body, named):
    answered = {**LIMIT, **body, "tenant_id": body.get("tenant_id", "acme")}
    fake.answers["PUT", "/v1/_limits"] = Scripted(body=answered, headers=AT)
    assert invoke("limits", "set", *arguments).stdout == f"{named} is limited  event loom.entity.events/0:7\n"
    assert fake.bodies("/v1/_limits") == [body]
    shown = json.loads(invoke("limits", "set", *arguments, "--json").stdout)
    assert shown == {**answered, "position": "loom.entity.events/0:7"}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--everybody",), "at least one of"),
        (("--hard", "5"), "whose limit"),
        (("--everybody", "--user", "ada", "--hard", "5"), "whole installation"),
        (("--everybody", "--hard-money", "lots"), "an amount like"),
        (("--everybody", "--hard-money", "1.0000001"), "six decimals"),
        (("--everybody", "--hard-money", "-1"), "an amount like"),
    ],
)
def test_a_limit_that_says_too_little_or_nonsense_is_not_sent(fake, arguments, word):
    result = invoke("limits", "set", *arguments)
    assert result.exit_code == 2
    assert word in " ".join(result.stderr.split())
    assert fake.asked == []


def test_a_limit_to_be_removed_must_be_named(fake):
    result = invoke("limits", "rm")
    assert (result.exit_code, fake.asked) == (2, [])
    assert "whose limit" in result.stderr


def test_limits_are_listed_with_what_is_used(fake):
    fake.answers["GET", "/v1/_limits"] = Scripted(body={"limits": [LIMIT]})
    lines = invoke("limits", "ls").stdout.splitlines()
    assert len(lines) == 3
    assert lines[1].split()[:6] == ["user", "ada", "of", "acme", "120", "tokens"]
    assert "1.25 USD" in lines[2]
    assert "5.00 USD" in lines[2]
    assert json.loads(invoke("limits", "ls", "--json").stdout) == {"limits": [LIMIT]}


def test_a_removed_limit_shows_its_position_and_one_that_was_not_there_says_so(fake):
    fake.answers["DELETE", "/v1/_limits"] = Scripted(headers=AT)
    assert invoke("limits", "rm", "--user", "ada", "--tenant", "acme").stdout == (
        "the limits are gone  event loom.entity.events/0:7\n"
    )
    assert dict(fake.asked[0].url.params) == {"scope": "user", "tenant": "acme", "scope_id": "ada"}
    assert json.loads(invoke("limits", "rm", "--everybody", "--json").stdout)["position"] == "loom.entity.events/0:7"
    fake.answers["DELETE", "/v1/_limits"] = Scripted()
    assert invoke("limits", "rm", "--everybody").stdout == "there was no such limit\n"


def test_usage_is_shown_by_what_was_asked(fake):
    row = {
        "tenant_id": "acme",
        "model": "large",
        "input_tokens": 1000,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 34,
        "output_tokens": 8,
        "cost": 1.25,
        "cost_micros": 1_250_000,
        "currency": "USD",
        "call_count": 3,
        "unpriced_calls": 0,
    }
    body = {"group_by": ["tenant", "model"], "from": None, "to": None, "rows": [row]}
    fake.answers["GET", "/v1/_usage"] = Scripted(body=body)
    lines = invoke("usage", "--by", "tenant,model", "--from", "2026-11-01").stdout.splitlines()
    assert lines[1].split() == ["acme", "large", "3", "1,234", "8", "1.25", "USD"]
    assert dict(fake.asked[0].url.params) == {"group_by": "tenant,model", "from": "2026-11-01"}
    assert json.loads(invoke("usage", "--json").stdout) == body
