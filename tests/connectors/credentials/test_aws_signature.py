"""Signatures for AWS, against the vectors that AWS publishes (aws-sig-v4-test-suite)."""

import pytest

from loomlog.connectors.credentials.aws_signature import AwsKeys, signed_headers

KEYS = AwsKeys(access_key_id="AKIDEXAMPLE", secret_access_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
AT = "20150830T123600Z"
HOST = "https://example.amazonaws.com"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "signature"),
    [
        ("GET", "/", {}, b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", {}, b"", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            {},
            b"",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "POST",
            "/",
            FORM,
            b"Param1=value1",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
        (
            "GET",
            "/",
            {"My-Header1": " value1", "My-Header2": ' "a   b   c"'},
            b"",
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        ),
    ],
)
def test_the_published_vectors(method: str, path: str, headers: dict[str, str], body: bytes, signature: str) -> None:
    sent = signed_headers(method, HOST + path, headers, body, keys=KEYS, region="us-east-1", service="service", at=AT)
    assert sent["authorization"].rpartition("Signature=")[2] == signature
    assert "Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request" in sent["authorization"]


def test_the_token_of_a_session_is_signed_too() -> None:
    keys = AwsKeys(access_key_id="A", secret_access_key="hunter2-hunter2", session_token="session")
    sent = signed_headers("POST", HOST + "/", {}, b"", keys=keys, region="eu-central-1", service="s", at=AT)
    assert sent["x-amz-security-token"] == "session"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token" in sent["authorization"]
    assert "hunter2" not in repr(keys)
