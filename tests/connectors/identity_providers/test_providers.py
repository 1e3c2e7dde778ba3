"""What counts as a token of a provider, and everything that does not."""

import base64
import hmac
import json
import logging
import time
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from loomlog.connectors.errors import Transient
from loomlog.connectors.identity_providers.providers import IdentityProviders
from tests.connectors.identity_providers.provider import AUDIENCE, KEYS, Clock, Provider, providers_of

DEEP = b'{"sub":' + b"[" * 5_000 + b"]" * 5_000 + b"}"


async def find(providers: IdentityProviders, token: str) -> Any:
    await providers.prepare(token)
    return providers.find_principal(token)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_token_of_the_provider_is_its_person(algorithm: str) -> None:
    provider = Provider(keys={"one": KEYS[algorithm][0]})
    principal = await find(providers_of(provider), provider.token(algorithm=algorithm))
    assert (principal.tenant, principal.subject, principal.name) == ("acme", "ann", "company/ann")
    assert principal.scopes == {"runs:create", "runs:read", "channel:publish", "channel:read"}
    assert principal.expires_at_s > time.time() + 600


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsigned(provider: Provider) -> str:
    parts = provider.token().split(".")
    return f"{encode(json.dumps({'alg': 'none', 'kid': 'one'}).encode())}.{parts[1]}."


def signed_with_the_public_key(provider: Provider) -> str:
    """The public key of RS256, used as the secret of HS256."""
    header = encode(json.dumps({"alg": "HS256", "kid": "one"}).encode())
    signed = f"{header}.{encode(json.dumps(provider.claims()).encode())}"
    digest = hmac.digest(KEYS["RS256"][0].as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{encode(digest)}"


def of_another_key(provider: Provider) -> str:
    return Provider(keys={"one": KEYS["RS256"][1]}).token()


def with_another_payload(provider: Provider) -> str:
    header, _, signature = provider.token().split(".")
    payload = provider.token(sub="bob").split(".")[1]
    return f"{header}.{payload}.{signature}"


def now() -> int:
    return int(time.time())


BAD_TOKENS: dict[str, Any] = {
    "without a signature": unsigned,
    "signed with the public key as a secret": signed_with_the_public_key,
    "signed with another key under the same id": of_another_key,
    "changed": with_another_payload,
    "of another audience": lambda one: one.token(aud="billing"),
    "of several other audiences": lambda one: one.token(aud=["billing", "crm"]),
    "without an audience": lambda one: one.token(aud=None),
    "with an empty audience": lambda one: one.token(aud=[]),
    "of another issuer": lambda one: one.token(iss="https://evil.example.com"),
    "of an issuer with a slash more": lambda one: one.token(iss=f"{one.issuer}/"),
    "without an issuer": lambda one: one.token(iss=None),
    "of a list of issuers": lambda one: one.token(iss=[one.issuer]),
    "expired": lambda one: one.token(exp=now() - 120),
    "without an expiry": lambda one: one.token(exp=None),
    "with an expiry that is no number": lambda one: one.token(exp="tomorrow"),
    "with an expiry that is NaN": lambda one: one.token(exp=float("nan")),
    "not valid yet": lambda one: one.token(nbf=now() + 300),
    "made in the future": lambda one: one.token(iat=now() + 300),
    "of an unknown key": lambda one: Provider(keys={"other": KEYS["RS256"][0]}).token(),
    "without a subject": lambda one: one.token(sub=None),
    "with a subject that is a number": lambda one: one.token(sub=17),
    "with an empty subject": lambda one: one.token(sub=""),
    "with a subject of 10,000 characters": lambda one: one.token(sub="a" * 10_000),
    "with 1,001 claims": lambda one: one.token(**{f"c{number}": 1 for number in range(1_001)}),
    "of more than 16 KiB": lambda one: one.token(note="a" * 16_384),
    "with claims that are deeply nested": lambda one: one.sign(DEEP),
    "with claims that are a list": lambda one: one.sign([1]),
    "with claims that are no JSON": lambda one: one.sign(b"{"),
    "with half a surrogate pair": lambda one: one.sign(rb'{"sub": "\ud800"}'),
    "of another kind": lambda one: one.token(header={"typ": "logout+jwt"}),
}


@pytest.mark.parametrize("what", BAD_TOKENS)
async def test_a_token_is_refused(what: str, caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider()
    providers = providers_of(provider)
    token = BAD_TOKENS[what](provider)
    with caplog.at_level(logging.DEBUG):
        assert await find(providers, token) is None
    assert await find(providers, provider.token()) is not None
    assert not any(part in caplog.text for part in token.split(".") if len(part) > 8)


@pytest.mark.parametrize("text", ["", "x", "a.b", "a.b.c", "a.b.c.d", "eyJ.eyJ.x", "\ud800.a.b", "ä.ö.ü", " . . "])
async def test_what_is_no_token_is_nobody(text: str) -> None:
    provider = Provider()
    assert await find(providers_of(provider), text) is None
    assert provider.reads == 0


async def test_a_thousand_claims_and_several_audiences_are_fine() -> None:
    provider = Provider()
    token = provider.token(aud=["crm", AUDIENCE], **{f"c{number}": 1 for number in range(990)})
    assert (await find(providers_of(provider), token)).subject == "ann"


async def test_clocks_may_differ_by_a_minute() -> None:
    provider = Provider()
    providers = providers_of(provider)
    assert await find(providers, provider.token(exp=int(time.time()) - 30)) is not None
    assert await find(providers, provider.token(nbf=int(time.time()) + 30)) is not None


async def test_an_algorithm_that_is_not_configured_is_refused() -> None:
    provider = Provider(keys={"one": KEYS["ES256"][0]})
    assert await find(providers_of(provider, algorithms=("RS256",)), provider.token(algorithm="ES256")) is None


async def test_a_key_is_used_for_its_own_algorithm_alone() -> None:
    provider = Provider(keys={"one": KEYS["ES256"][0]})
    token = provider.token(algorithm="ES256")
    header = encode(b'{"alg":"RS256","kid":"one"}')
    assert await find(providers_of(provider), f"{header}.{token.split('.', 1)[1]}") is None


async def test_a_token_that_was_checked_is_remembered_until_it_expires() -> None:
    provider, now = Provider(), [time.time()]
    providers = IdentityProviders(
        {"company": providers_of(provider).by_name["company"].block}, provider.fetch, time_s=lambda: now[0]
    )
    token = provider.token()
    first = await find(providers, token)
    assert await find(providers, token) is first
    now[0] += 661
    assert await find(providers, token) is None


async def test_a_withdrawn_key_ends_the_tokens_that_were_remembered() -> None:
    provider, clock = Provider(), Clock()
    providers = providers_of(provider, clock)
    token = provider.token()
    assert await find(providers, token) is not None
    provider.rotate()
    clock.at += 61
    assert await find(providers, provider.token("two")) is not None
    assert await find(providers, token) is None


async def test_while_no_key_was_ever_read_nothing_can_be_said_about_a_token() -> None:
    provider = Provider(is_away=True)
    providers = providers_of(provider)
    await providers.prepare(provider.token())
    with pytest.raises(Transient) as info:
        providers.find_principal(provider.token())
    assert info.value.retry_after_s == 5


async def test_a_refusal_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    provider, clock = Provider(), Clock()
    providers = providers_of(provider, clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await find(providers, provider.token(aud="billing"))
        clock.at += 61
        await find(providers, provider.token(aud="billing"))
    assert [record.message for record in caplog.records] == [
        "a token of the issuer company was refused: its claim aud is of another value than expected"
    ] * 2


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")  # the library warns of it and goes on
async def test_a_short_rsa_key_is_not_used() -> None:
    provider = Provider(keys={"one": RSAKey.generate_key(1024, private=True)})
    assert await find(providers_of(provider), provider.token()) is None
