import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.webhook_block import WebhookAuth, WebhookBlock
from loomlog.services.families.webhook.bodies import BodyInvalid, parse_body
from loomlog.services.families.webhook.limits import BODY_DEPTH_MAX
from loomlog.services.families.webhook.mapping import (
    REMOVED,
    MappingInvalid,
    RunInput,
    run_input,
    take_credentials,
)

BODY = {"issue": {"title": "Broken", "labels": ["bug", "ui"], "n": 7}, "who": "ada", "key": "s3cret", "null": None}


def block(**mapping: str) -> WebhookBlock:
    targets = {name.replace("__", "."): value for name, value in mapping.items()}
    return WebhookBlock(agent="a", auth=WebhookAuth(kind="none"), payload_mapping=targets)


def mapped(body: object = BODY, **mapping: str) -> RunInput:
    return run_input(block(**mapping), body, json.dumps(body))


def test_without_a_goal_the_whole_body_is_the_goal() -> None:
    assert mapped().goal == json.dumps(BODY)
    assert mapped(user_id="$.who").user_id == "ada"


@pytest.mark.parametrize(
    ("path", "goal"),
    [
        ("$.issue.title", "Broken"),
        ("$.issue.labels[1]", "ui"),
        ("$.issue.n", "7"),
        ("$.issue.labels", '["bug","ui"]'),
        ("$", json.dumps(BODY, separators=(",", ":"))),
        ("$.issue.absent.deeper", ""),
        ("$.issue.labels[9]", ""),
        ("$.null", ""),
        ("$.who[0]", ""),
        ("look at it", "look at it"),
    ],
)
def test_a_goal_is_what_a_path_finds_or_the_text(path: str, goal: str) -> None:
    assert mapped(goal=path).goal == goal


def test_metadata_are_texts_and_what_is_not_found_is_left_out() -> None:
    made = mapped(run_metadata__n="$.issue.n", run_metadata__kind="issue", run_metadata__gone="$.absent")
    assert made.run_metadata == {"n": '"7"', "kind": '"issue"'}
    with pytest.raises(MappingInvalid, match="run_metadata"):
        mapped({"a": "x" * 70_000}, run_metadata__a="$.a")


def test_a_user_must_be_a_name() -> None:
    for who in ("x" * 129, "a\nb"):
        with pytest.raises(MappingInvalid, match="user_id"):
            mapped({"who": who}, user_id="$.who")


def test_credentials_are_taken_out_of_the_body() -> None:
    hook = block(user_credentials__token="$.key", user_credentials__fixed="text", user_credentials__gone="$.absent")
    credentials, rest = take_credentials(hook, BODY)
    assert credentials == {"token": "s3cret", "fixed": "text"}
    assert rest == BODY | {"key": REMOVED}
    assert BODY["key"] == "s3cret"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 1_000_000, "deeper"),
        ('{"a":' * 100 + "1" + "}" * 100, "deeper"),
        ('{"a":1,"a":2}', "twice"),
        ('{"a":{"b":1,"b":1}}', "twice"),
        ("NaN", "NaN"),
        ("[1e999]", "too large"),
        ("-Infinity", "Infinity"),
        ("1" * 5_000, "digits"),
        ("", "not JSON"),
        ('["\\ud800"]', "surrogate"),
        ("goal=x", "not JSON"),
        ("\xff".encode("latin-1"), "UTF-8"),
    ],
)
def test_a_body_that_readers_may_understand_differently_is_refused(text: str | bytes, problem: str) -> None:
    with pytest.raises(BodyInvalid, match=problem):
        parse_body(text)


def test_brackets_in_texts_are_no_nesting() -> None:
    assert parse_body(json.dumps("[" * 200 + '\\"' + "{" * 200)) == "[" * 200 + '\\"' + "{" * 200
    assert parse_body("[]," * 0 + "[" * BODY_DEPTH_MAX + "]" * BODY_DEPTH_MAX)
    assert len(parse_body("[" + ",".join(["{}"] * 1_000) + "]")) == 1_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=8,
)
PATHS = st.lists(st.sampled_from([".a", ".b", "[0]", "[1]"]), max_size=3).map(lambda steps: "$" + "".join(steps))


@given(JSON, PATHS, PATHS)
def test_any_body_gives_texts_that_stores_take(body: object, goal: str, secret: str) -> None:
    hook = block(goal=goal, user_credentials__token=secret, run_metadata__m=goal)
    try:
        credentials, rest = take_credentials(hook, body)
    except MappingInvalid:
        return
    made = run_input(hook, rest, "")
    assert "\0" not in made.goal
    made.goal.encode()
    assert all(json.loads(value) is not None for value in made.run_metadata.values())
    if credentials and rest != body:
        assert REMOVED not in take_credentials(hook, rest)[0].values()


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_no_garbage_breaks_the_parser(raw: str | bytes) -> None:
    with contextlib.suppress(BodyInvalid):
        parse_body(raw)
