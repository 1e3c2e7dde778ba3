import pytest

from loomlog.services.core.refusals import Refused
from loomlog.services.grpc.messages import message_class, parse, service_descriptor, to_fields, to_message


def test_only_fields_that_are_set_are_fields_and_an_optional_zero_is_set():
    request = message_class("RunRequest")(agent="a", user_credentials={"k": "v"})
    assert to_fields(request) == {"agent": "a", "user_credentials": {"k": "v"}}
    request.sampling.temperature = 0.0
    request.allowed_hosts.SetInParent()
    assert to_fields(request) == {
        "agent": "a",
        "user_credentials": {"k": "v"},
        "sampling": {"temperature": 0.0},
        "allowed_hosts": [],
    }


def test_bytes_are_json_save_those_of_images_and_state_files():
    block = message_class("PromptContentBlock")(type="image", data=b"\0\1")
    assert to_fields(block)["data"] == "AAE="
    assert to_fields(message_class("PublishChannelRequest")(payload=b"[1]"))["payload"] == [1]
    assert to_fields(message_class("RestoreSnapshotRequest")(raw_json=b"{"))["raw_json"] == b"{"
    with pytest.raises(Refused, match="payload: expected JSON"):
        to_fields(message_class("PublishChannelRequest")(payload=b"{"))


def test_an_answer_is_a_message_without_what_the_message_lacks():
    agent = message_class("Agent")
    made = to_message(
        agent, {"agent_id": "a", "completed_at": None, "started_at": "2026-11-28T14:18:02.5Z", "unknown": 1}
    )
    assert (made.agent_id, made.HasField("completed_at")) == ("a", False)
    assert (made.started_at.seconds, made.started_at.nanos) == (1795875482, 500_000_000)
    usage = to_message(message_class("Usage"), {"cache_read_input_tokens": 2, "input_tokens": 1})
    assert (usage.cache_read_tokens, usage.input_tokens) == (2, 1)


def test_maps_of_messages_are_filled():
    matrix = to_message(
        message_class("ResolverMatrixResponse"),
        {"providers": {"p": {"excluded": True, "models": {"m": {"listed": True}}}}},
    )
    assert matrix.providers["p"].excluded
    assert matrix.providers["p"].models["m"].listed


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x05ab", b"\x0a\xff\xff\xff\xff\x0f"])
def test_a_truncated_message_is_refused(raw: bytes):
    with pytest.raises(Refused, match="cannot be read as a RunRequest"):
        parse(message_class("RunRequest"), raw)


def test_an_empty_answer_fits_every_message():
    for method in service_descriptor().methods:
        assert to_message(message_class(method.output_type.name), {}).SerializeToString() == b""
