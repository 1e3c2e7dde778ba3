import pytest

from loomlog.services.application.runs.run_filter import RunFilterExpression, parse_filter
from loomlog.services.core.refusals import Refused

NOW = 1_000_000_000


def wrong(text: str) -> str:
    with pytest.raises(Refused) as info:
        parse_filter(text)
    assert info.value.code == "bad_request"
    return info.value.message


def test_keys_are_read_with_commas_between_and_spaces_do_not_matter() -> None:
    assert parse_filter("agent=helper, tenant=acme,status = paused ,user_id=u1") == RunFilterExpression(
        agent="helper", tenant="acme", status="paused", user_id="u1"
    )


@pytest.mark.parametrize(("said", "ms"), [("90s", 90_000), ("10m", 600_000), ("2h", 7_200_000), ("7d", 604_800_000)])
def test_ages_become_bounds_of_the_start(said: str, ms: int) -> None:
    assert parse_filter(f"older_than={said}").to_run_filter(NOW).until_ms == NOW - ms
    assert parse_filter(f"newer_than={said}").to_run_filter(NOW).since_ms == NOW - ms


def test_only_live_runs_are_ever_meant() -> None:
    assert parse_filter("agent=helper").to_run_filter(NOW).statuses == {"running"}
    assert "only live runs" in wrong("status=completed")


@pytest.mark.parametrize(
    ("misspelt", "near"),
    [("agnet=x", "agent"), ("older=5m", "older_than"), ("user=x", "user_id"), ("state=x", "status")],
)
def test_an_unknown_key_gets_the_nearest_valid_one(misspelt: str, near: str) -> None:
    assert f"did you mean {near}?" in wrong(misspelt)


def test_a_key_like_nothing_gets_the_list() -> None:
    message = wrong("zzz=1")
    assert "did you mean" not in message
    assert "agent, agent_id, tenant" in message


@pytest.mark.parametrize(
    "text", ["", "  ", "agent", "agent=", "agent=a,agent=b", "agent=a,", "older_than=10", "x" * 2_000]
)
def test_what_is_not_whole_is_refused(text: str) -> None:
    assert wrong(text)


@pytest.mark.parametrize("age", ["0m", "-5m", "5w", "m", "1e3s", "99999999999d"])
def test_what_is_no_age_is_refused(age: str) -> None:
    assert "such as 90s" in wrong(f"older_than={age}")
