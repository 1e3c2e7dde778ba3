import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.services.application.errors import owner_refusal, run_refusing, unavailable
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.refusals import Refused, Unavailable, request_refusal


@pytest.mark.parametrize(
    ("decided", "shown"),
    [("invalid_argument", "bad_request"), ("session_busy", "session_busy"), ("not_found", "not_found")],
)
def test_what_an_owner_decides_is_told_in_words_callers_know(decided: str, shown: str) -> None:
    assert owner_refusal(decided, "why").code == shown


def test_a_code_of_a_newer_owner_is_told_as_it_is() -> None:
    actual = owner_refusal("moon_phase_wrong", "come back")
    assert (actual.code, actual.message) == ("bad_request", "moon_phase_wrong: come back")


@pytest.mark.parametrize("what", ["log", "projection", "blobs"])
def test_something_outside_that_is_away_tells_no_internals(what: str) -> None:
    error = Transient("postgresql://user:secret@10.0.0.1 refused", kind="network")
    actual = unavailable(what, error)
    assert actual.code == f"{what}_unavailable"
    assert "secret" not in actual.message
    assert actual.retry_after_s == 1
    assert "logs" in unavailable(what, Permanent("secret", kind="unauthorised")).message


def test_every_code_of_the_core_is_in_the_catalogue() -> None:
    """Codes that services/core/run and the definitions can put into RunRefused and CommandRefused."""
    assert {"bad_request", "not_found", "session_busy", "agent_id_in_use", "queue_full"} <= set(STATUS_BY_CODE)
    assert {"unknown_agent", "tier_unavailable", "pin_unavailable", "tier_agent_not_available"} <= set(STATUS_BY_CODE)


@pytest.mark.parametrize("family_code", ["lease_lost", "code_of_a_newer_owner"])
def test_a_code_that_http_does_not_have_is_in_the_details(family_code: str) -> None:
    shown = request_refusal(Refused(family_code, "why", details={"lag": 3}))
    assert (shown.code, shown.message) == ("command_refused", "why")
    assert shown.details == {"lag": 3, "refusal": family_code}


def test_a_code_that_http_has_is_kept_with_details_and_delay() -> None:
    shown = request_refusal(Refused("keys_unavailable", "why", details={"lag": 3}, retry_after_s=1))
    assert (shown.code, shown.details, shown.retry_after_s) == ("keys_unavailable", {"lag": 3}, 1)


def test_a_missing_scope_is_named() -> None:
    assert request_refusal(Refused("insufficient_scope", "why")).details == {"scope": "substrate:admin"}
    named = Refused("insufficient_scope", "why", details={"scope": "runs:read"})
    assert request_refusal(named).details == {"scope": "runs:read"}


@pytest.mark.parametrize(("is_unknown", "code"), [(False, "memory_unavailable"), (True, "command_pending")])
async def test_an_operation_without_an_answer_can_be_asked_for_again(is_unknown: bool, code: str) -> None:
    async def fail() -> None:
        raise Unavailable("no owner", is_unknown=is_unknown)

    with pytest.raises(Refused, match="no owner") as caught:
        await run_refusing(fail(), unavailable_code="memory_unavailable")
    assert (caught.value.code, caught.value.retry_after_s) == (code, 1)


async def test_a_failure_with_a_code_of_its_own_keeps_it() -> None:
    async def fail() -> None:
        raise Unavailable("no log", is_unknown=True, code="log_unavailable", details={"lag": 3})

    with pytest.raises(Refused, match=r"^no log$") as caught:
        await run_refusing(fail(), unavailable_code="memory_unavailable")
    assert (caught.value.code, caught.value.details) == ("log_unavailable", {"lag": 3})
