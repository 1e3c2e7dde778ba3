"""What looks like a secret, and what only talks of one."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.crypto.secret_patterns import SECRET_PATTERNS, clean_json, clean_value, redact_secrets

PIECES = st.sampled_from(
    ["password", "=", ": ", '"', "hunter2hunter2", "bearer ", "sk-abcdefghijklmnop1234", "authorization", " ", "a(b)"]
)
SECRETS = st.sampled_from(
    [
        "-----BEGIN RSA PRIVATE KEY-----abc-----END RSA PRIVATE KEY-----",
        "Authorization: Basic dXNlcjpwYXNz",
        "bearer abcdefghijklmnop1234",
        "sk_live_abcdefghijklmnop",
        "AKIAABCDEFGHIJKLMNOP",
        "AIza" + "a" * 35,
        "xoxb-1234567890",
        "ghp_" + "a" * 36,
        "github_pat_" + "a" * 22,
        "glpat-" + "a" * 20,
        "eyJabcdefgh.eyJabcdefgh.abcdefgh",
        "API_KEY=abcdefgh",
        "nothing",
        " ",
    ]
)


@pytest.mark.parametrize(
    "code",
    [
        "token = next_token()",
        "password = form.password.data()",
        'secret = os.environ["MAIL"]',
        "api_key: settings.keys[0]",
    ],
)
def test_what_is_called_or_looked_up_is_no_secret(code: str) -> None:
    assert redact_secrets(code) is code


def test_a_value_that_is_given_is_one_also_where_code_gives_it() -> None:
    assert redact_secrets('password = "hunter2hunter2"') == 'password = "[redacted:value]"'


@given(st.lists(PIECES, max_size=8).map("".join))
def test_what_was_masked_once_stays_as_it_is(text: str) -> None:
    once = redact_secrets(text)
    assert redact_secrets(once) == once


@given(st.lists(SECRETS | PIECES, max_size=4).map("".join))
def test_looking_for_marks_and_signs_first_hides_no_secret(text: str) -> None:
    searched = text
    for pattern in SECRET_PATTERNS:
        searched = pattern.regex.sub(pattern.replacement, searched)
    assert redact_secrets(text) == searched


def test_values_are_cleaned_and_keys_are_not() -> None:
    given = {"sk-abcdefghijklmnop1234": ["sk-abcdefghijklmnop1234", 7, None], "password": "hunter2hunter2"}
    wanted = {"sk-abcdefghijklmnop1234": ["[redacted:key]", 7, None], "password": "[redacted:value]"}
    assert clean_value(given, redact_secrets) == wanted
    assert json.loads(clean_json(json.dumps(given), redact_secrets)) == wanted


def test_a_long_text_full_of_signs_takes_no_time_that_others_would_notice() -> None:
    text = "token: none\nthe secret of the key is a password = \nbearer of sk- and AKIA\n" * 10_000
    began = time.process_time()
    assert redact_secrets(text) == text
    assert time.process_time() - began < 10
