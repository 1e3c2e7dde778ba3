"""What clients switch on when something is refused: code and status, from the tables of the reference.

runtime 1.3 (setup), 1.12 (steering), 1.13 (stopping a turn), 1.14 (pauses), 5.8 (compaction), 5.10 (questions).
"""

import orjson
import pytest

from loomlog.services.api.responses import refusal_response
from loomlog.services.application.errors import bad_request, share_refusal
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.refusals import Refused
from loomlog.services.core.shares import Holder, ShareExhausted, ShareLimits, Shares

KNOWN = {
    # setup (runtime 1.3)
    "unknown_agent": 400,
    "bad_request": 400,
    "provider_unknown": 404,
    "not_found": 404,
    "session_busy": 409,
    "agent_id_in_use": 409,
    "backpressure": 429,
    "per_user_quota_exhausted": 429,
    "provider_concurrency_exhausted": 429,
    "token_limit_exceeded": 429,
    "runtime_paused": 503,
    "tier_unavailable": 503,
    "pin_unavailable": 503,
    "tier_agent_not_available": 403,
    "operator_key_restricted": 403,
    "internal": 500,
    # steering (1.12)
    "queue_full": 429,
    "empty_text": 422,
    # stopping a turn (1.13)
    "not_interactive": 409,
    "not_mid_turn": 409,
    # pauses (1.14)
    "already_pausing": 409,
    "not_paused": 409,
    # compaction (5.8)
    "run_busy": 409,
    "agent_gone": 409,
    "empty_source": 400,
    "compaction_failed": 502,
    # questions to people (5.10)
    "invalid_answer": 422,
    "interrupt_closed": 409,
    "interrupt_expired": 410,
    # who asks (surfaces 0)
    "unauthorized": 401,
    "insufficient_scope": 403,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
}


@pytest.mark.parametrize(("code", "status"), sorted(KNOWN.items()))
def test_a_refusal_has_the_code_and_the_status_clients_know(code: str, status: int) -> None:
    assert code in STATUS_BY_CODE
    assert STATUS_BY_CODE[code] == status


@pytest.mark.parametrize("code", sorted(STATUS_BY_CODE))
def test_a_status_says_whose_turn_it_is(code: str) -> None:
    """What waits or is away can be sent again as it is; of what is wrong with a request that is never said."""
    if code == "search_unavailable":
        assert STATUS_BY_CODE[code] == 400  # parity: reference surfaces 1.5
    elif code.endswith(("_pending", "_unavailable")) or code in ("starting", "stopping", "not_yet"):
        assert STATUS_BY_CODE[code] in (503, 504), code
    if code.startswith(("invalid", "bad", "unknown")):
        assert 400 <= STATUS_BY_CODE[code] < 500, code


def test_what_is_wrong_with_the_request_is_400() -> None:
    assert refusal_response(bad_request("prompt: is empty")).status_code == 400
    assert refusal_response(Refused("runtime_paused", "why")).headers.get("retry-after") is None


@pytest.mark.parametrize(
    ("tenant", "code", "status"), [("acme", "share_exhausted", 429), ("initech", "capacity_exhausted", 503)]
)
def test_the_own_share_is_429_and_the_total_503_and_both_say_when_to_come_again(
    tenant: str, code: str, status: int
) -> None:
    shares = Shares("event streams", ShareLimits.of(2))
    for first in ("acme", "globex"):
        shares.take(Holder(tenant=first, principal="ada"))
    with pytest.raises(ShareExhausted) as info:
        shares.take(Holder(tenant=tenant, principal="ada"))
    answer = refusal_response(share_refusal(info.value))
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "5")
    body = orjson.loads(answer.body)
    assert (body["code"], body["resource"], body["held"]) == (code, "event streams", body["limit"])
