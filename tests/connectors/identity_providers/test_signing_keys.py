"""When the keys of a provider are read, and which of them are used."""

import asyncio
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent
from loomlog.connectors.identity_providers.signing_keys import KEEP_S, KEYS_MAX, REFETCH_S, SigningKeys, read_keys
from tests.connectors.identity_providers.provider import ISSUER, KEYS, Clock, Provider, block


def keys_of(provider: Provider, clock: Clock, **changes: Any) -> SigningKeys:
    return SigningKeys("company", block(**changes), provider.fetch, clock=clock)


async def test_keys_are_read_at_the_first_token_and_then_kept() -> None:
    provider, clock = Provider(), Clock()
    keys = keys_of(provider, clock)
    for _ in range(3):
        await keys.prepare("one", "RS256")
    assert keys.find("one", "RS256") is not None
    assert provider.reads == 1


async def test_an_unknown_key_has_them_read_again_once_a_minute() -> None:
    provider, clock = Provider(), Clock()
    keys = keys_of(provider, clock)
    await keys.prepare("one", "RS256")
    for _ in range(100):
        await keys.prepare("made-up", "RS256")
    assert provider.reads == 1
    clock.at += REFETCH_S
    for number in range(100):
        await keys.prepare(f"made-up-{number}", "RS256")
    assert provider.reads == 2


async def test_after_a_rotation_the_new_key_is_found_and_the_old_one_gone() -> None:
    provider, clock = Provider(), Clock()
    keys = keys_of(provider, clock)
    await keys.prepare("one", "RS256")
    generation = keys.generation
    provider.rotate()
    clock.at += REFETCH_S
    await keys.prepare("two", "RS256")
    assert (keys.find("two", "RS256") is not None, keys.find("one", "RS256")) == (True, None)
    assert keys.generation != generation


async def test_what_is_known_stays_known_while_the_provider_is_away() -> None:
    provider, clock = Provider(), Clock()
    keys = keys_of(provider, clock)
    await keys.prepare("one", "RS256")
    provider.is_away = True
    clock.at += 10 * KEEP_S
    await keys.prepare("one", "RS256")
    await keys.prepare("two", "RS256")
    assert keys.find("one", "RS256") is not None
    await keys.close()


async def test_a_provider_that_is_away_at_the_start_is_asked_again_soon() -> None:
    provider, clock = Provider(is_away=True), Clock()
    keys = keys_of(provider, clock)
    await keys.prepare("one", "RS256")
    provider.is_away = False
    await keys.prepare("one", "RS256")
    assert (keys.are_known, keys.retry_after_s) == (False, 5)
    clock.at += 5
    await keys.prepare("one", "RS256")
    assert keys.find("one", "RS256") is not None


async def test_a_withdrawn_key_is_gone_after_ten_minutes_of_use() -> None:
    provider, clock = Provider(), Clock()
    keys = keys_of(provider, clock)
    await keys.prepare("one", "RS256")
    provider.rotate()
    clock.at += KEEP_S
    await keys.prepare("one", "RS256")
    assert keys.find("one", "RS256") is not None  # the request does not wait for the provider
    async with asyncio.timeout(30):
        while keys.find("one", "RS256") is not None:
            await asyncio.sleep(0)


async def test_many_requests_with_a_new_key_wait_for_one_reading() -> None:
    provider, clock = Provider(), Clock()
    keys = keys_of(provider, clock)
    await asyncio.gather(*(keys.prepare("one", "RS256") for _ in range(50)))
    assert provider.reads == 1


async def test_a_token_without_a_key_id_takes_the_only_key_of_its_kind() -> None:
    provider, clock = Provider(keys={"one": KEYS["RS256"][0], "curve": KEYS["ES256"][0]}), Clock()
    keys = keys_of(provider, clock)
    await keys.prepare(None, "RS256")
    rsa = keys.find(None, "RS256")
    assert rsa is not None
    assert rsa.kid == "one"
    provider.keys["two"] = KEYS["RS256"][1]
    clock.at += REFETCH_S
    await keys.prepare("two", "RS256")
    assert keys.find(None, "RS256") is None


async def test_the_address_of_the_keys_may_be_configured() -> None:
    provider = Provider(documents={"jwks_uri": "https://elsewhere.example.com"})
    keys = keys_of(provider, Clock(), jwks_url=f"{ISSUER}/keys")
    await keys.prepare("one", "RS256")
    assert keys.are_known


@pytest.mark.parametrize(
    "documents",
    [{"issuer": "https://evil.example.com"}, {"jwks_uri": "http://login.example.com/keys"}, {"jwks_uri": 1}],
)
async def test_a_configuration_of_another_provider_or_without_https_is_not_used(documents: dict[str, Any]) -> None:
    keys = keys_of(Provider(documents=documents), Clock())
    await keys.prepare("one", "RS256")
    assert not keys.are_known


def test_of_a_set_only_public_keys_for_signatures_count() -> None:
    good = {**KEYS["ES256"][0].as_dict(private=False), "kid": "good", "use": "sig"}
    others = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        {"kty": "RSA", "n": "x", "kid": "broken"},
        {**good, "use": "enc", "kid": "encryption"},
        {"kty": ["RSA"]},
        {"kty": "LATTICE", "kid": "new"},
        "text",
        None,
    ]
    assert [key.kid for key in read_keys({"keys": [*others, good]})] == ["good"]


@pytest.mark.parametrize("document", [{}, {"keys": {}}, {"keys": "x"}, {"keys": [{}] * (KEYS_MAX + 1)}])
def test_a_document_that_is_no_set_of_keys_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(Permanent):
        read_keys(document)
