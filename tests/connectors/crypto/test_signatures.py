import base64
import stat

import pytest

from loomlog.connectors.crypto.signatures import (
    generate_key,
    load_public_keys,
    load_signing_key,
    parse_public_keys,
    parse_signing_key,
    verification_keys,
    write_new_key,
)
from loomlog.connectors.errors import Permanent

SECRET = base64.b64encode(bytes(range(32))).decode()


def test_a_signature_is_of_its_message_and_its_key_alone():
    key = generate_key()
    signature = key.sign(b"message")
    assert len(signature) == 64
    assert key.public.verify(signature, b"message")
    assert not key.public.verify(signature, b"messagf")
    assert not key.public.verify(bytes(64), b"message")
    assert not key.public.verify(signature[:-1], b"message")
    assert not generate_key().public.verify(signature, b"message")


def test_a_new_key_is_read_back_from_its_file_and_its_environment(tmp_path):
    key, public_file = write_new_key(tmp_path / "audit.key")
    text = (tmp_path / "audit.key").read_text()
    from_file = load_signing_key(file=tmp_path / "audit.key", text="")
    assert from_file is not None
    assert from_file.key_id == key.key_id
    assert parse_signing_key(text.replace("\n", "\\n"), "x").key_id == key.key_id
    assert list(load_public_keys(public_file)) == [key.key_id]
    assert stat.S_IMODE((tmp_path / "audit.key").stat().st_mode) == 0o600


def test_a_key_is_never_written_over(tmp_path):
    file = tmp_path / "audit.key"
    file.write_text("something")
    with pytest.raises(Permanent, match="never written over"):
        write_new_key(file)
    assert file.read_text() == "something"
    with pytest.raises(Permanent, match="cannot be written"):
        write_new_key(tmp_path / "nowhere" / "audit.key")


def test_raw_base64_is_a_key_too():
    key = parse_signing_key(f" {SECRET}\n", "x")
    assert key.key_id == "56475aa75463474c"
    assert load_signing_key(file=None, text=SECRET) is not None
    assert load_signing_key(file=None, text="") is None


@pytest.mark.parametrize(
    "text", ["", "abc", SECRET[:-4], "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"]
)
def test_what_is_no_key_is_refused_without_showing_it(text: str):
    with pytest.raises(Permanent, match="the file f holds no Ed25519 private key") as error:
        parse_signing_key(text, "the file f")
    assert not text or text not in str(error.value)
    assert error.value.__cause__ is None


def test_a_key_is_not_shown_by_its_repr():
    key = parse_signing_key(SECRET, "x")
    assert "object" not in repr(key)
    assert SECRET not in repr(key)


def test_a_file_holds_several_public_keys_in_either_form():
    from cryptography.hazmat.primitives import serialization

    one, two, three = generate_key().public, generate_key().public, generate_key().public
    pem = two.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    text = f"# old ones\n{one.text}\n\n{pem}\n{three.text.split()[0]}\n"
    assert set(parse_public_keys(text, "f")) == {one.key_id, two.key_id, three.key_id}


def test_a_wrong_line_of_public_keys_is_named():
    good = generate_key().public.text
    with pytest.raises(Permanent, match="f, line 3: expected the base64"):
        parse_public_keys(f"{good}\n# x\nabc\n", "f")
    with pytest.raises(Permanent, match="f holds no public key"):
        parse_public_keys("# nothing\n", "f")


def test_a_private_key_among_public_ones_is_refused(tmp_path):
    write_new_key(tmp_path / "k")
    with pytest.raises(Permanent, match="line 1"):
        load_public_keys(tmp_path / "k")
    with pytest.raises(Permanent, match="cannot be read"):
        load_public_keys(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(Permanent, match="not a text file"):
        load_public_keys(tmp_path / "binary")


def test_our_own_key_needs_no_listing():
    own, other = generate_key(), generate_key().public
    assert set(verification_keys({other.key_id: other}, own)) == {own.key_id, other.key_id}
    assert set(verification_keys({other.key_id: other}, None)) == {other.key_id}
    assert load_public_keys(None) == {}
