import orjson
import pytest

from loomlog.services.api.responses import json_response, position_headers, refusal_response
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.refusals import Refused


@pytest.mark.parametrize("code", sorted(STATUS_BY_CODE))
def test_every_refusal_has_the_one_shape(code: str) -> None:
    answer = refusal_response(Refused(code, "why", details={"scope": "runs:read"}))
    assert answer.status_code == STATUS_BY_CODE[code]
    actual = orjson.loads(answer.body)
    assert (actual["code"], actual["error"]) == (code, "why")
    assert answer.headers["content-type"] == "application/json"


def test_details_join_the_answer_and_cannot_hide_the_code() -> None:
    actual = orjson.loads(refusal_response(Refused("not_yet", "why", details={"lag": 3, "code": "ok"})).body)
    assert (actual["lag"], actual["code"]) == (3, "not_yet")


def test_when_to_come_again_is_a_header() -> None:
    assert refusal_response(Refused("backpressure", "x", retry_after_s=5)).headers["retry-after"] == "5"
    assert "retry-after" not in refusal_response(Refused("runtime_paused", "x")).headers


def test_a_value_is_json_to_the_byte() -> None:
    assert json_response({"a": orjson.Fragment(b'{"b": 1}')}).body == b'{"a":{"b": 1}}'
    assert json_response({}, status=201, headers={"x": "y"}).headers["x"] == "y"


def test_of_each_partition_the_newest_position_is_in_the_header() -> None:
    assert position_headers("t/0:9", "", "t/0:10", None, "t/1:2", "u/0:1", "t/0:3") == {
        "x-loomlog-position": "t/0:10,t/1:2,u/0:1"
    }
    assert position_headers("", None) is None
