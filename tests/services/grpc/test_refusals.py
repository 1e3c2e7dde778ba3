import grpc
import orjson
import pytest

from loomlog.services.core.error_codes import ERRORS
from loomlog.services.core.refusals import Refused
from loomlog.services.grpc.refusals import ERROR_BYTES_MAX, TELLING, WORDS, message_of, metadata_of, status_of


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_every_code_has_a_status_and_no_word_of_another_class(code: str):
    text = "the session snap, a snapshot, a hook: not paused, already paused, session busy, pause_not_configured"
    refused = Refused(code, text)
    message = message_of(refused, missing="run or agent")
    if code not in WORDS:
        assert not [word for word in TELLING.get(status_of(refused).name, ()) if word in message.lower()]
    else:
        assert message.startswith(WORDS[code])


def test_a_code_without_a_row_is_a_bug():
    assert status_of(Refused("no_such_code", "x")) is grpc.StatusCode.INTERNAL


def test_the_metadata_has_the_refusal_of_http_within_limits():
    refused = Refused("backpressure", "é" * 10, retry_after_s=5, details={"cap": 3})
    metadata = dict(metadata_of(refused, request_id="q_1"))
    assert (metadata["loomlog-code"], metadata["retry-after"], metadata["x-request-id"]) == ("backpressure", "5", "q_1")
    assert orjson.loads(metadata["loomlog-error-bin"]) == {"cap": 3, "code": "backpressure", "error": "é" * 10}
    long = dict(metadata_of(Refused("bad_request", "x" * 50_000, details={"more": "y" * 50_000}), request_id=""))
    assert len(long["loomlog-error-bin"]) < ERROR_BYTES_MAX
    assert len(message_of(Refused("bad_request", "x" * 50_000), missing="run")) == 1_000
