"""Tokens hide, give back, and cannot be moved, altered or forged; keys of the settings are read or refused."""

import base64
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from loomlog.connectors.crypto.content_encryption import (
    TOKEN,
    ContentDecryptionError,
    DataKey,
    KeyEncryptionKeys,
    generate_data_key,
    has_tokens,
    is_token,
    key_encryption_key_id,
    load_key_encryption_keys,
)
from loomlog.connectors.errors import Permanent

KEY = generate_data_key("acme", "ivy", os.urandom)
TEXTS = some.text(some.characters(exclude_categories=["Cs"]))


def written() -> str:
    return base64.b64encode(os.urandom(32)).decode()


@given(TEXTS, some.booleans())
def test_a_token_gives_back_what_was_sealed_and_hides_it(text: str, untrusted: bool) -> None:
    token = KEY.encrypt(text, os.urandom, untrusted=untrusted)
    assert KEY.decrypt(token) == text
    assert is_token(token, untrusted=untrusted)
    assert not is_token(token, untrusted=not untrusted)
    assert len(text) < 8 or text not in token
    assert KEY.encrypt(text, os.urandom, untrusted=untrusted) != token


@given(TEXTS, some.integers(min_value=0), some.integers(1, 255))
def test_no_byte_of_a_token_can_be_altered(text: str, place: int, flip: int) -> None:
    head, _, body = KEY.encrypt(text, os.urandom).rpartition(".")
    sealed = bytearray(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    sealed[place % len(sealed)] ^= flip
    altered = f"{head}.{base64.urlsafe_b64encode(bytes(sealed)).rstrip(b'=').decode()}"
    with pytest.raises(ContentDecryptionError):
        KEY.decrypt(altered)


@given(TEXTS, TEXTS, TEXTS)
def test_a_token_is_found_in_the_middle_of_any_text(before: str, text: str, after: str) -> None:
    token = KEY.encrypt(text, os.urandom)
    found = TOKEN.search(f"{before.replace('lenc', '')} {token} {after}")
    assert found is not None
    assert found[0] == token
    assert has_tokens(f"{before}{token}")


def test_a_token_cannot_be_passed_off_as_another_subjects_or_as_trusted() -> None:
    token = KEY.encrypt("hello", os.urandom, untrusted=True)
    for other in (replace(KEY, tenant="globex"), replace(KEY, subject="rob"), replace(KEY, secret=os.urandom(32))):
        with pytest.raises(ContentDecryptionError):
            other.decrypt(token)
    with pytest.raises(ContentDecryptionError):
        KEY.decrypt(token.replace("lenc1u.", "lenc1."))
    with pytest.raises(ContentDecryptionError):
        KEY.decrypt("hello")


def test_a_digest_cannot_be_compared_without_the_key() -> None:
    assert KEY.digest("ab") == KEY.digest("ab")
    assert KEY.digest("ab") != replace(KEY, secret=os.urandom(32)).digest("ab")


def test_a_data_key_is_unwrapped_by_the_key_that_wrapped_it_and_by_no_other() -> None:
    old, new = os.urandom(32), os.urandom(32)
    first = KeyEncryptionKeys(current=key_encryption_key_id(old), keys={key_encryption_key_id(old): old})
    wrapped = first.wrap(KEY, os.urandom)

    def opened_by(keys: KeyEncryptionKeys, **change: str) -> DataKey:
        named = {
            "wrapped_by": key_encryption_key_id(old),
            "key_id": KEY.key_id,
            "tenant": "acme",
            "subject": "ivy",
            **change,
        }
        return keys.unwrap(wrapped, **named)

    rotated = KeyEncryptionKeys(
        current=key_encryption_key_id(new), keys={key_encryption_key_id(new): new, key_encryption_key_id(old): old}
    )
    assert opened_by(first) == opened_by(rotated) == KEY
    with pytest.raises(ContentDecryptionError, match="is not given here"):
        opened_by(KeyEncryptionKeys(current=key_encryption_key_id(new), keys={key_encryption_key_id(new): new}))
    with pytest.raises(ContentDecryptionError, match="altered"):
        opened_by(first, subject="rob")


def test_keys_of_the_settings_are_read_from_a_text_or_a_file(tmp_path: Path) -> None:
    one, two = written(), written()
    file = tmp_path / "key"
    file.write_text(f"{one}\n")
    from_file = load_key_encryption_keys(text="", file=file, previous=two)
    assert from_file is not None
    assert from_file.current == key_encryption_key_id(base64.b64decode(one))
    assert len(from_file.keys) == 2
    assert load_key_encryption_keys(text=one, file=None, previous="") is not None
    assert load_key_encryption_keys(text="", file=None, previous="") is None


@pytest.mark.parametrize("text", ["short", base64.b64encode(b"x" * 31).decode(), "?" * 44])
def test_what_is_no_key_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(Permanent, match="openssl rand") as refused:
        load_key_encryption_keys(text=text, file=None, previous="")
    assert text not in str(refused.value)


def test_a_previous_key_alone_and_an_unreadable_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="without LOOMLOG_ENCRYPTION_KEY"):
        load_key_encryption_keys(text="", file=None, previous=written())
    with pytest.raises(Permanent, match="cannot be read"):
        load_key_encryption_keys(text="", file=tmp_path / "none", previous="")
