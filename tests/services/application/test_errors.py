import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.services.application.errors import CODES, RequestRefused, owner_refusal, unavailable


def test_a_code_outside_the_catalogue_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        RequestRefused("no_such_code", "x")


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
    assert {"bad_request", "not_found", "session_busy", "agent_id_in_use", "queue_full"} <= CODES
    assert {"unknown_agent", "tier_unavailable", "pin_unavailable", "tier_agent_not_available"} <= CODES
