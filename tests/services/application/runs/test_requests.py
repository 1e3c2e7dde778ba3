import base64
from typing import Any

import pytest

from loomlog.connectors.configuration.secret_registry import Purpose, SecretRegistry, SecretUse
from loomlog.schemas.generated.values import Compaction, ContentBlock, Sampling, Segment
from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.runs.requests import (
    RunRequest,
    check_input,
    check_request,
    check_signatures,
    hook_scopes,
    request_digest,
    to_json_texts,
)
from loomlog.services.core.refusals import Refused
from loomlog.services.families.operation import sanitize_reason

PIXEL = base64.b64encode(b"\x89PNG fake").decode()


def text(words: str = "hello", **more: Any) -> ContentBlock:
    return ContentBlock(type="trusted-text", text=words, **more)


def image(**more: Any) -> ContentBlock:
    return ContentBlock(**{"type": "image", "media_type": "image/png", "data": PIXEL, **more})


def segment(*blocks: ContentBlock, role: str = "user") -> Segment:
    return Segment(role=role, content=blocks)


def request(**fields: Any) -> RunRequest:
    return RunRequest(**{"agent": "soaker", "prompt": "hello", **fields})


def why_not(given: RunRequest) -> str:
    with pytest.raises(Refused) as info:
        check_request(given)
    assert info.value.code == "bad_request"
    return info.value.message


# --- what passes -----------------------------------------------------------------------------------------------------


def test_a_prompt_becomes_one_trusted_user_text() -> None:
    run_request = check_request(request(prompt="hello"))
    assert run_request.segments == (segment(text("hello")),)
    assert run_request.prompt == ""


def test_segments_win_over_a_prompt() -> None:
    run_request = check_request(request(prompt="and this", segments=(segment(text("first")),)))
    assert [block.text for one in run_request.segments for block in one.content] == ["first"]


def test_short_names_of_image_types_are_understood() -> None:
    run_request = check_request(request(segments=(segment(image(media_type="png")),)))
    assert run_request.segments[0].content[0].media_type == "image/png"


def test_an_unknown_kind_of_untrusted_block_passes_because_the_core_makes_it_untrusted() -> None:
    block = ContentBlock(type="untrusted-block", text="x", kind="made_up")
    assert check_request(request(segments=(segment(block),))).segments[0].content[0].kind == "made_up"


def test_an_empty_parent_context_value_is_as_if_it_were_not_there() -> None:
    assert check_request(request(parent_context={"function_key": "", "tier_at_run": "gold"})).parent_context == {
        "tier_at_run": "gold"
    }


@pytest.mark.parametrize("name", ["soaker", "team/reviewer", "a-b_c/d/E9"])
def test_agent_names_may_have_parts(name: str) -> None:
    assert check_request(request(agent=name)).agent == name


def test_an_ill_formed_trace_context_is_left_out_and_a_good_one_kept() -> None:
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert check_request(request(traceparent=good)).traceparent == good
    for bad in ("junk", f"ff{good[2:]}", good.upper(), f"00-{'0' * 32}-b7ad6b7169203331-01"):
        assert check_request(request(traceparent=bad)).traceparent == ""


# --- what does not ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["agent_id", "user_id", "session_id"])
@pytest.mark.parametrize("value", ["has space", "x" * 129, "ä", "a/b", "a\n", "../x"])
def test_an_id_outside_the_charset_is_refused_by_name(field: str, value: str) -> None:
    assert why_not(request(**{field: value})).startswith(f"{field} is ")


@pytest.mark.parametrize("name", ["a b", "/a", "a/", "a//b", "..", "a*", "x" * 129, "a\n"])
def test_an_agent_name_outside_the_charset_is_refused(name: str) -> None:
    assert why_not(request(agent=name)).startswith("agent is ")


def test_a_request_without_user_input_is_refused() -> None:
    assert "no input" in why_not(request(prompt=""))
    assert "no input" in why_not(request(prompt="", segments=(segment(text("rule"), role="system"),)))
    assert "no input" in why_not(request(prompt="", segments=(segment(),)))


@pytest.mark.parametrize("words", ["", "  ", "\n\t "])
def test_user_input_of_nothing_but_white_space_is_none(words: str) -> None:
    blank = ContentBlock(type="untrusted-block", text=words, kind="web_content")
    assert "no input" in why_not(request(prompt=words))
    assert "no input" in why_not(request(prompt=words, segments=(segment(text(words), blank),)))
    assert "no input" in why_not(request(prompt=words, segments=(segment(text("rule"), role="system"),)))
    assert check_request(request(prompt="", segments=(segment(text(words), image()),)))
    assert check_request(request(prompt="", segments=(segment(text(words)), segment(text("hello")))))


def test_an_unknown_role_is_refused_with_its_place() -> None:
    run_request = request(prompt="", segments=(segment(text()), segment(text(), role="assistant")))
    assert why_not(run_request).startswith("segments[1].role is 'assistant'")


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (ContentBlock(type="video"), "type is 'video'"),
        (text(kind="web_content"), "kind belongs to"),
        (text(data=PIXEL), "data and media_type belong"),
        (image(media_type="image/tiff"), "media_type is 'image/tiff'"),
        (image(text="caption"), "no text and no kind"),
        (image(data="not base64!"), "data is not base64"),
        (image(data=""), "data is empty"),
    ],
)
def test_a_block_that_makes_no_sense_is_refused_with_its_place(block: ContentBlock, why: str) -> None:
    message = why_not(request(prompt="", segments=(segment(text(), block),)))
    assert message.startswith("segments[0].content[1]")
    assert why in message


def test_an_image_in_a_system_segment_is_refused() -> None:
    assert "role user" in why_not(request(segments=(segment(image(), role="system"),)))


def test_too_many_segments_and_blocks_are_refused() -> None:
    assert "at most" in why_not(request(segments=(segment(text()),) * (limits.SEGMENTS_MAX + 1)))
    assert "at most" in why_not(request(segments=(segment(*[text()] * (limits.BLOCKS_MAX + 1)),)))


def test_the_parent_context_is_bounded_in_bytes_not_characters() -> None:
    check_request(request(parent_context={"function_key": "x" * 256}))
    assert "parent_context.function_key" in why_not(request(parent_context={"function_key": "ä" * 129}))


def test_credential_names_outside_the_charset_are_refused_and_values_never_shown() -> None:
    message = why_not(request(user_credentials={"bad name": "hunter2-hunter2"}))
    assert "bad name" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("bearer", ["short", "x" * 513, "has space has space", "semi;colon;semi;colon"])
def test_a_bearer_outside_the_charset_is_refused_without_being_shown(bearer: str) -> None:
    assert bearer not in why_not(request(user_bearer=bearer))


def test_secrets_do_not_show_in_the_text_of_a_request() -> None:
    shown = repr(request(user_bearer="s" * 20, user_credentials={"a": "hunter2-hunter2"}))
    assert "hunter2" not in shown
    assert "s" * 20 not in shown


@pytest.mark.parametrize("key", ["with space", "x" * 256, "tab\t", "ä"])
def test_an_idempotency_key_is_visible_ascii(key: str) -> None:
    assert "Idempotency-Key" in why_not(request(idempotency_key=key))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("top_p", -0.1),
        ("top_k", 0),
        ("frequency_penalty", 3.0),
        ("presence_penalty", float("inf")),
        ("seed", 2**63),
    ],
)
def test_sampling_outside_its_bounds_is_refused_by_name(field: str, value: Any) -> None:
    assert f"sampling.{field}" in why_not(request(sampling=Sampling(**{field: value})))


def test_stop_strings_are_few_and_not_empty() -> None:
    assert "sampling.stop" in why_not(request(sampling=Sampling(stop=("x",) * 9)))
    assert "sampling.stop[0]" in why_not(request(sampling=Sampling(stop=("",))))


@pytest.mark.parametrize("field", ["tools", "allowed_hosts"])
def test_narrowing_lists_are_bounded_and_hold_no_empty_name(field: str) -> None:
    assert f"{field}[0]" in why_not(request(**{field: ("",)}))
    assert f"{field}[0]" in why_not(request(**{field: ("x\0y",)}))
    assert field in why_not(request(**{field: ("x",) * (limits.NAMES_MAX + 1)}))


def test_metadata_is_bounded_and_must_be_json() -> None:
    assert "metadata" in why_not(request(metadata={"big": "x" * limits.METADATA_BYTES_MAX}))
    assert "metadata" in why_not(request(metadata={str(n): 1 for n in range(limits.METADATA_KEYS_MAX + 1)}))
    assert "metadata" in why_not(request(metadata={"number": 2**70}))


def test_a_plan_with_control_characters_is_refused_because_read_models_cannot_hold_them() -> None:
    assert "user_tier" in why_not(request(user_tier="gold\0"))


def test_only_the_two_words_of_the_web_search_filter_pass() -> None:
    assert check_request(request(web_search_filter="keep", allowed_hosts=("a.example",))).web_search_filter == "keep"
    assert "web_search_filter" in why_not(request(web_search_filter="maybe"))


@pytest.mark.parametrize(
    ("hosts", "said", "kept"),
    [
        (None, "", ""),
        (None, "keep", ""),
        ((), "", "drop"),
        (("a.example",), "", "drop"),
        (("a.example",), "keep", "keep"),
    ],
)
def test_search_results_are_filtered_by_default_once_hosts_are_named(
    hosts: tuple[str, ...] | None, said: str, kept: str
) -> None:
    assert check_request(request(allowed_hosts=hosts, web_search_filter=said)).web_search_filter == kept


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [("target_percentage", 10, 50), ("keep_last_n", 0, 1_000), ("autocompact_at_pct", 50, 95)],
)
def test_wishes_about_compaction_have_bounds(field: str, least: int, most: int) -> None:
    for value in (least, most):
        assert check_request(request(compaction=Compaction(**{field: value}))).compaction == Compaction(
            **{field: value}
        )
    for value in (least - 1, most + 1):
        assert f"compaction.{field}" in why_not(request(compaction=Compaction(**{field: value})))


def test_the_parent_context_has_six_keys_and_is_absent_when_all_are_empty() -> None:
    keys = ["root_agent_run_id", "function_key", "tier_at_run", "board_scope", "board_chunk_id", "board_document_id"]
    assert check_request(request(parent_context=dict.fromkeys(keys, "x"))).parent_context == dict.fromkeys(keys, "x")
    assert check_request(request(parent_context=dict.fromkeys(keys, ""))).parent_context == {}
    assert "function_kay" in why_not(request(parent_context={"function_kay": "x"}))


def test_data_of_a_trigger_has_the_bounds_of_metadata() -> None:
    assert check_request(request(payload_metadata={"n": 1})).payload_metadata == {"n": 1}
    assert "payload_metadata" in why_not(request(payload_metadata={"big": "x" * limits.METADATA_BYTES_MAX}))


# --- hooks -----------------------------------------------------------------------------------------------------------

PUBLISH = {"kind": "channel.publish", "on": "completed", "channel": "done", "payload": {"b": 1, "a": None}}
MEMORY = {"kind": "memory.set", "scope": "user", "key": "k"}


def test_hooks_are_checked_at_once_and_named_by_their_place() -> None:
    checked = check_request(request(on_complete=(PUBLISH, MEMORY)))
    assert [dict(one) for one in checked.on_complete] == [
        {"kind": "channel.publish", "channel": "done", "payload": {"b": 1, "a": None}},
        MEMORY,
    ]
    assert check_request(checked) == checked
    assert why_not(request(on_complete=(PUBLISH, {"kind": "http", "url": "ftp://x"}))).startswith("on_complete[1].url:")
    assert "on_complete: 9 hooks, at most 8" in why_not(request(on_complete=(PUBLISH,) * 9))


def test_hooks_belong_to_the_digest() -> None:
    assert digest(on_complete=(PUBLISH,)) == digest(on_complete=({**PUBLISH, "on": "completed"},))
    assert len({digest(), digest(on_complete=(PUBLISH,)), digest(on_complete=(PUBLISH, PUBLISH))}) == 3


def test_hooks_need_the_scopes_of_what_they_do() -> None:
    def scopes(*hooks: dict[str, Any]) -> frozenset[str]:
        return hook_scopes(check_request(request(on_complete=hooks)))

    assert scopes() == scopes(MEMORY, {"kind": "http", "url": "https://a.example"}) == frozenset()
    assert scopes(PUBLISH) == {"channel:publish"}
    assert scopes({**MEMORY, "scope": "agent"}, PUBLISH) == {"channel:publish", "memory:write"}


# --- digests ---------------------------------------------------------------------------------------------------------


def digest(**fields: Any) -> str:
    return request_digest(check_request(request(**fields)))


def test_the_same_request_has_the_same_digest() -> None:
    assert digest() == digest()
    assert digest(metadata={"a": 1, "b": 2}) == digest(metadata={"b": 2, "a": 1})


def test_a_prompt_and_the_segment_it_stands_for_are_the_same_request() -> None:
    assert digest(prompt="hello") == digest(prompt="", segments=(segment(text("hello")),))


@pytest.mark.parametrize(
    "fields",
    [
        {"agent": "other"},
        {"prompt": "other"},
        {"session_id": "s_1"},
        {"agent_id": "mine"},
        {"user_id": "zoe"},
        {"user_tier": "gold"},
        {"tools": ()},
        {"allowed_hosts": ()},
        {"metadata": {"a": 1}},
        {"parent_context": {"function_key": "x"}},
        {"interactive": True},
        {"sampling": Sampling(seed=1)},
        {"compaction": Compaction(enabled=True)},
        {"payload_metadata": {"a": 1}},
        {"allowed_hosts": ("a",), "web_search_filter": "keep"},
    ],
)
def test_whatever_changes_the_run_changes_the_digest(fields: dict[str, Any]) -> None:
    assert digest(**fields) != digest()


def test_the_key_the_trace_and_the_secrets_are_no_part_of_the_digest() -> None:
    secrets = {"user_bearer": "s" * 20, "user_credentials": {"a": "b"}}
    assert digest(idempotency_key="k", traceparent="x", **secrets) == digest()


# --- texts -----------------------------------------------------------------------------------------------------------


def test_metadata_values_become_json_texts() -> None:
    assert to_json_texts({"ticket": "a", "n": 1, "deep": {"x": [None]}}) == {
        "ticket": '"a"',
        "n": "1",
        "deep": '{"x":[null]}',
    }


def test_an_empty_input_is_refused_and_a_large_one_too() -> None:
    with pytest.raises(Refused) as info:
        check_input(" \n")
    assert info.value.code == "empty_text"
    with pytest.raises(Refused) as info:
        check_input("x" * (limits.INPUT_BYTES_MAX + 1))
    assert info.value.code == "payload_too_large"
    assert check_input("hello\0") == "hello\0"


def test_a_reason_keeps_its_words_and_loses_control_characters() -> None:
    assert sanitize_reason(" it\0 is\nenough ") == "it  is enough"
    assert len(sanitize_reason("x" * 10_000)) == limits.REASON_CHARACTERS_MAX


def test_checking_twice_changes_nothing() -> None:
    once = check_request(request(segments=(segment(image(media_type="png")),), parent_context={"function_key": ""}))
    assert check_request(replace(once)) == once


def test_a_hook_is_signed_only_for_the_tenant_and_the_host_of_its_secret() -> None:
    uses = [SecretUse("CRM", Purpose.CALLBACK_SIGNATURE, "acme", "crm.example.com", ())]
    hook = {"kind": "http", "url": "https://crm.example.com/done", "secret_env": "CRM"}
    hooks = check_request(request(on_complete=(PUBLISH, hook, {**hook, "secret_env": None}))).on_complete
    check_signatures(SecretRegistry(uses, {"CRM": "long-enough"}), hooks, "acme")
    for tenant, change in (("globex", {}), ("acme", {"url": "https://a.example/x"}), ("acme", {"secret_env": "HOME"})):
        with pytest.raises(Refused) as refused:
            check_signatures(SecretRegistry(uses, {}), (PUBLISH, {**hook, **change}), tenant)
        assert refused.value.code == "bad_request"
        assert refused.value.message.startswith("on_complete[1].secret_env: ")
        assert "block secrets" in refused.value.message
