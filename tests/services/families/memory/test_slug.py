"""Slugs: readable, different for different texts, and the same in Python and in the consolidator's script."""

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomlog.connectors.configuration.presets import load_presets
from loomlog.connectors.models.code_js import CodeModel
from loomlog.services.families.memory.slug import SLUG_CHARACTERS_MAX, fact_key, fingerprint, slug
from tests.connectors.models.scripts import script_request, turn


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ada's favourite tea", "ada-s-favourite-tea"),
        ("  Café   Zürich ", "cafe-zurich"),
        ("ＡＢＣ　１２", "abc-12"),
        ("release 2.0", "release-2-0"),
        ("ﬁne", "fine"),
    ],
)
def test_latin_text_is_readable(text: str, expected: str) -> None:
    assert slug(text) == expected


@pytest.mark.parametrize("text", ["好きなお茶", "любимый чай", "شاي", "!?", "🌍", ""])
def test_text_that_is_lost_is_a_fingerprint(text: str) -> None:
    assert slug(text) == fingerprint(text)


def test_what_is_lost_in_part_or_too_long_has_both() -> None:
    assert slug("Ada の 町") == f"ada-{fingerprint('ada の 町')}"
    assert slug("Straße") == f"stra-e-{fingerprint('straße')}"
    long = "a very long subject " * 10
    assert slug(long) == f"{slug(long)[:-17]}-{fingerprint(long.strip())}"
    assert len(slug(long)) <= SLUG_CHARACTERS_MAX + 17
    assert slug(long) != slug(f"{long} more")


def test_case_and_space_tell_no_keys_apart() -> None:
    assert slug("お茶 A") == slug("お茶\u3000 a")
    assert fact_key("Decision", "Ship on Fridays") == "memory/decision/ship-on-fridays"
    assert fact_key("", "x") == "memory/fact/x"


@given(st.text(), st.text())
def test_a_key_can_be_printed_and_is_short(fact_class: str, subject: str) -> None:
    key = fact_key(fact_class, subject)
    assert key.isascii()
    assert key.isprintable()
    assert len(key) < 200
    assert key.count("/") == 2


SAMPLES = st.lists(st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=90), min_size=50, max_size=200)
"""Without characters that this Python has no properties of: the engine knows a newer Unicode."""


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(SAMPLES)
async def test_the_script_of_the_consolidator_has_the_same_function(texts: list[str]) -> None:
    preset = yaml.safe_load(load_presets()["memory"].content)
    body = preset["agents"]["memory/consolidator"]["code_body"].replace("function run(", "function pass(")
    body += "\nfunction run(input) { return JSON.parse(input.prompt).map(slug); }"
    model = CodeModel(provider="code-js")
    try:
        reply = await turn(model, script_request(body, prompt=json.dumps(texts), tools=()))
    finally:
        await model.close()
    assert json.loads(reply.text) == [slug(text) for text in texts]
