import base64
import dataclasses
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.secret_registry import build_secret_registry
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.configuration.webhook_block import WebhookAuth, WebhookBlock
from loomlog.services.families.webhook.definition import AddressedWebhook
from loomlog.services.families.webhook.secrets import proof_secrets
from loomlog.services.families.webhook.signatures import TOLERANCE_S, Proof, Unproven, check_proof, delivery_id

SECRET, OLD = b"hush", b"former"
BODY = b'{"goal": "x"}'
NOW = 1_700_000_000
HMAC = WebhookAuth(kind="hmac", signing_secret_env="LOOMLOG_HOOK")
BEARER = WebhookAuth(kind="bearer", bearer_token_env="LOOMLOG_HOOK")


def digest(data: bytes, secret: bytes = SECRET) -> str:
    return hmac.new(secret, data, hashlib.sha256).hexdigest()


def standard(body: bytes, *, at: int = NOW, key: bytes = SECRET) -> dict[str, str]:
    signed = hmac.new(key, f"msg_1.{at}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(at),
        "webhook-signature": f"v2,xx v1,{base64.b64encode(signed).decode()}",
    }


def stripe(body: bytes, at: int, *, more: str = "") -> str:
    return f"t={at},{more}v1={digest(str(at).encode() + b'.' + body)}"


def proves(
    auth: WebhookAuth, headers: dict[str, str], body: bytes = BODY, secrets: tuple[bytes, ...] = (SECRET,)
) -> bool:
    return isinstance(check_proof(auth, headers, body, secrets, now_s=NOW), Proof)


def identity(auth: WebhookAuth, headers: dict[str, str]) -> str:
    proof = check_proof(auth, headers, BODY, (SECRET,), now_s=NOW)
    assert isinstance(proof, Proof)
    return delivery_id(auth, proof, headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"x-loomcycle-signature": "sha256=" + digest(BODY)},
        {"x-hub-signature-256": "sha256=" + digest(BODY)},
        {"x-hub-signature-256": "SHA256=" + digest(BODY).upper()},
        {"x-loomcycle-signature": digest(BODY)},
        {"x-loomcycle-signature": stripe(BODY, NOW)},
        {"x-loomcycle-signature": stripe(BODY, NOW - TOLERANCE_S, more=f"v0=1,v1={'0' * 64},")},
        standard(BODY),
    ],
)
def test_each_form_of_a_signature_is_taken_and_covers_the_body(headers: dict[str, str]) -> None:
    assert proves(HMAC, headers)
    assert not proves(HMAC, headers, BODY + b" ")
    assert not proves(HMAC, headers, secrets=(b"another",))
    assert not proves(HMAC, headers, secrets=())
    assert not proves(HMAC, headers, secrets=(b"",))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-loomcycle-signature": ""},
        {"x-loomcycle-signature": "nonsense"},
        {"x-loomcycle-signature": "0" * 64},
        {"x-loomcycle-signature": "sha256="},
        {"x-loomcycle-signature": "sha256=" + digest(BODY)[:-1]},
        {"x-loomcycle-signature": "sha256=" + "é" * 64},
        {"x-loomcycle-signature": "sha256=" + "４" * 64},
        {"x-loomcycle-signature": stripe(BODY, NOW - TOLERANCE_S - 1)},
        {"x-loomcycle-signature": stripe(BODY, NOW + TOLERANCE_S + 1)},
        {"x-loomcycle-signature": f"v1={digest(BODY)}"},
        {"x-loomcycle-signature": "t=" + "9" * 5_000 + ",v1=0"},
        standard(BODY, at=NOW - TOLERANCE_S - 1),
        standard(BODY) | {"webhook-id": "msg_2"},
    ],
)
def test_a_wrong_stale_or_missing_signature_is_refused(headers: dict[str, str]) -> None:
    assert not proves(HMAC, headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"x-loomcycle-signature": "sha256=" + digest(BODY)},
        {"x-loomcycle-signature": digest(BODY)},
        {"x-loomcycle-signature": stripe(BODY, NOW)},
        {"x-loomcycle-signature": digest(BODY)} | {name: "1" for name in standard(BODY) if name != "webhook-id"},
    ],
)
def test_an_id_that_no_signature_covers_is_not_the_id_of_a_delivery(headers: dict[str, str]) -> None:
    ids = {identity(HMAC, headers | {"webhook-id": f"z{number}"}) for number in range(3)}
    assert ids == {identity(HMAC, headers)} == {"sha256:" + hashlib.sha256(BODY).hexdigest()}


def test_a_signed_id_is_the_id_whatever_other_headers_say() -> None:
    named = dataclasses.replace(HMAC, delivery_id_header="X-Delivery-Id")
    assert identity(HMAC, standard(BODY)) == "msg_1"
    assert identity(named, standard(BODY) | {"x-delivery-id": "another"}) == "msg_1"


@pytest.mark.parametrize("auth", [HMAC, BEARER])
def test_an_unsigned_id_counts_where_the_definition_names_its_header(auth: WebhookAuth) -> None:
    named = dataclasses.replace(auth, delivery_id_header="X-Delivery-Id")
    headers = {"x-loomcycle-signature": digest(BODY), "authorization": "Bearer hush", "webhook-id": "z1"}
    assert identity(named, headers | {"x-delivery-id": "d1"}) == "d1"
    assert identity(named, headers) == identity(auth, headers) == "sha256:" + hashlib.sha256(BODY).hexdigest()


def test_a_standard_secret_is_decoded_from_its_form() -> None:
    secret = b"whsec_" + base64.b64encode(b"raw key")
    assert proves(HMAC, standard(BODY, key=b"raw key"), secrets=(secret,))


def test_both_secrets_of_a_rotation_are_taken() -> None:
    old, new = ({"x-loomcycle-signature": digest(BODY, secret)} for secret in (OLD, SECRET))
    block = WebhookBlock(agent="a", auth=HMAC)
    webhook = AddressedWebhook(tenant="default", name="hook", def_id="d", is_of_file=True, block=block)
    configuration = Configuration(webhooks={"hook": block})
    registry = build_secret_registry(configuration, Settings(), {"LOOMLOG_HOOK": "hush former"})
    secrets = proof_secrets(registry, webhook)
    assert proves(HMAC, old, secrets=tuple(secrets))
    assert proves(HMAC, new, secrets=tuple(secrets))


def test_a_bearer_token_or_a_raw_header_is_compared() -> None:
    assert proves(BEARER, {"authorization": "bearer hush"})
    assert not proves(BEARER, {"authorization": "Bearer hus"})
    assert not proves(BEARER, {"authorization": "hush"})
    assert not proves(BEARER, {})
    gitlab = WebhookAuth(kind="bearer", header="X-Gitlab-Token", bearer_token_env="LOOMLOG_HOOK")
    assert proves(gitlab, {"x-gitlab-token": "hush"})
    assert not proves(gitlab, {"x-gitlab-token": "", "authorization": "Bearer hush"})
    assert not proves(gitlab, {"x-gitlab-token": ""}, secrets=(b"",))


def test_kind_none_needs_nothing() -> None:
    assert proves(WebhookAuth(kind="none"), {}, secrets=())


@given(
    st.sampled_from([HMAC, BEARER]),
    st.dictionaries(
        st.sampled_from(
            ["authorization", "x-loomcycle-signature", "webhook-id", "webhook-timestamp", "webhook-signature"]
        ),
        st.one_of(
            st.text(max_size=80),
            st.text(max_size=80).map("sha256=".__add__),
            st.text(max_size=80).map(f"t={NOW},v1=".__add__),
            st.text(max_size=80).map("v1,".__add__),
            st.text(max_size=80).map("Bearer ".__add__),
        ),
    ),
    st.binary(max_size=40),
)
def test_no_garbage_proves_anything_or_raises(auth: WebhookAuth, headers: dict[str, str], body: bytes) -> None:
    assert not proves(auth, headers, body)


@pytest.mark.parametrize(
    ("auth", "headers", "reason"),
    [
        (HMAC, {}, "the header x-loomcycle-signature is missing"),
        (WebhookAuth(kind="hmac", header="X-Signed"), {}, "the header x-signed is missing"),
        (HMAC, {"x-hub-signature-256": "sha256=" + "0" * 64}, "the digest in the header x-hub-signature-256 differs"),
        (HMAC, {"x-hub-signature-256": "sha256=none"}, "has no signature of 64 hexadecimal digits"),
        (HMAC, {"x-loomcycle-signature": stripe(BODY, NOW - 301)}, "is 301 s behind our clock; at most 300 s"),
        (HMAC, {"x-loomcycle-signature": stripe(BODY, NOW + 900)}, "is 900 s ahead of our clock"),
        (HMAC, {"x-loomcycle-signature": "t=1,t=2,v1=0"}, "not of the form: t=SECONDS,v1=HEX"),
        (HMAC, standard(BODY, at=NOW - 3_600), "is 3600 s behind our clock"),
        (HMAC, standard(BODY, key=b"other"), "the digest in the header webhook-signature differs"),
        (BEARER, {}, "the header authorization is missing"),
        (BEARER, {"authorization": "Basic eDp5"}, "not of the form: Bearer TOKEN"),
        (BEARER, {"authorization": "Bearer guess"}, "differs from the secret"),
    ],
)
def test_it_is_said_why_a_proof_is_missing_and_no_secret_with_it(
    auth: WebhookAuth, headers: dict[str, str], reason: str
) -> None:
    refused = check_proof(auth, headers, BODY, (SECRET,), now_s=NOW)
    assert isinstance(refused, Unproven)
    assert reason in refused.reason
    assert not any(value in refused.reason for value in headers.values())
    assert SECRET.decode() not in refused.reason
