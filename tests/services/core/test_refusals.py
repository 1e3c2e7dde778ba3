"""Refusals that are decided, in the codes of the API."""

import pytest

from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.refusals import DECIDED_CODES, decided_refusal


@pytest.mark.parametrize(
    ("code", "known"),
    [
        ("quarantined", "aggregate_quarantined"),
        ("not_found", "not_found"),
        ("queue_full", "queue_full"),
        ("too_large", "command_invalid"),
        ("state_too_large", "command_invalid"),
        ("bad_name", "command_invalid"),
        ("stock_empty", "command_refused"),
        ("insufficient_scope", "command_refused"),
        ("internal", "command_refused"),
        ("log_unavailable", "command_refused"),
        ("", "command_refused"),
    ],
)
def test_a_code_of_a_family_becomes_one_that_clients_know(code: str, known: str) -> None:
    refusal = decided_refusal(code, "why")
    assert (refusal.code, refusal.message) == (known, "why")
    assert (refusal.details.get("refusal") == code) == known.startswith("command_")


def test_codes_of_families_are_codes_of_the_api() -> None:
    assert set(DECIDED_CODES.values()) <= set(STATUS_BY_CODE)
