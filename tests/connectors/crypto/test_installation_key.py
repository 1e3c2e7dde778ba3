import base64

import pytest

from loomlog.connectors.crypto.installation_key import SecretDecryptionError, parse_secret_key
from loomlog.connectors.errors import Permanent

TEXT = base64.b64encode(bytes(range(32))).decode()
OTHER = base64.b64encode(bytes(range(1, 33))).decode()


def key(text: str = TEXT, previous: str = ""):
    found = parse_secret_key(text=text, previous=previous)
    assert found is not None
    return found


def test_what_is_sealed_opens_again() -> None:
    sealed = key().encrypt(b"a secret", "run credentials", "acme", "r_1")
    assert b"a secret" not in sealed
    assert key().decrypt(sealed, "run credentials", "acme", "r_1") == b"a secret"


@pytest.mark.parametrize(
    ("purpose", "of"),
    [
        ("run credentials", ("acme", "r_2")),
        ("run credentials", ("globex", "r_1")),
        ("hook callbacks", ("acme", "r_1")),
        ("run credentials", ("acmer_1", "")),
        ("run credentials", ("acme",)),
    ],
)
def test_it_opens_for_nothing_else(purpose: str, of: tuple[str, ...]) -> None:
    sealed = key().encrypt(b"a secret", "run credentials", "acme", "r_1")
    with pytest.raises(SecretDecryptionError):
        key().decrypt(sealed, purpose, *of)


@pytest.mark.parametrize("place", [0, 8, 20, -1])
def test_a_changed_byte_is_noticed(place: int) -> None:
    sealed = bytearray(key().encrypt(b"a secret", "p"))
    sealed[place] ^= 1
    with pytest.raises(SecretDecryptionError):
        key().decrypt(bytes(sealed), "p")


@pytest.mark.parametrize("short", [b"", b"x" * 5, b"x" * 25])
def test_a_cut_one_is_noticed(short: bytes) -> None:
    with pytest.raises(SecretDecryptionError):
        key().decrypt(short, "p")


def test_an_earlier_key_still_opens_and_seals_nothing() -> None:
    old, both = key(TEXT), key(OTHER, previous=TEXT)
    assert both.decrypt(old.encrypt(b"x", "p"), "p") == b"x"
    with pytest.raises(SecretDecryptionError, match="SECRET_KEY_PREVIOUS"):
        old.decrypt(both.encrypt(b"x", "p"), "p")


def test_each_purpose_and_tenant_has_a_key_of_its_own() -> None:
    made = {key().derive_keys(*of) for of in [("a",), ("b",), ("a", "acme"), ("a", "globex"), ("a", "ac", "me")]}
    assert len(made) == 5
    assert key().derive_keys("a", "acme") == key().derive_keys("a", "acme")
    assert len(key(OTHER, previous=TEXT).derive_keys("a")) == 2


def test_without_a_key_there_is_none() -> None:
    assert parse_secret_key(text=" ", previous="") is None


@pytest.mark.parametrize(("text", "previous"), [("short", ""), ("", TEXT), (TEXT, "!"), (TEXT[:-8], "")])
def test_a_wrong_key_is_refused_without_repeating_it(text: str, previous: str) -> None:
    with pytest.raises(Permanent) as caught:
        parse_secret_key(text=text, previous=previous)
    assert "LOOMLOG_SECRET_KEY" in str(caught.value)
    assert TEXT[:-8] not in str(caught.value)


def test_a_key_does_not_show() -> None:
    assert str(bytes(range(32))) not in repr(key())
