"""Attempts of callbacks: what is posted with which headers, and what the log is told of each end."""

import asyncio
import base64
import hmac
from collections.abc import Mapping
from typing import Any

import pytest

from loomlog.connectors.configuration.secret_registry import Purpose, SecretRegistry, SecretUse
from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.schemas.generated.callback_commands import RequestCallback
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import replace
from loomlog.services.core.bounded_resources import CALLBACKS
from loomlog.services.families.callback import FAMILY
from loomlog.services.families.callback.posts import SETTLE_TRIES, CallbackPosts
from loomlog.services.families.callback.sends import CallbackPost
from loomlog.services.families.callback.state import Callback
from tests.services.entities import NOW_MS, UNANSWERED, MemoryEntities
from tests.waiting import until

URL, SECRET = "https://a.example/x", "CALLBACK_SECRET_A"
SEALED_URL = "sealed:4a1b"
FIRST = CallbackPost(run_id="r_1", hook=2, attempt=1)


class Receiver:
    """An address that answers in turn."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, bytes, Mapping[str, str]]] = []
        self.answers: list[int | ConnectorError] = []

    async def notify(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> int:
        self.posts.append((url, body, headers))
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, ConnectorError):
            raise answer
        return answer


class Here:
    """A process that owns callbacks."""

    def __init__(self) -> None:
        self.entities = MemoryEntities(FAMILY)
        self.receiver = Receiver()
        self.environment = {SECRET: "one two"}
        self.now_ms = NOW_MS
        self.posts = CallbackPosts(
            self.entities,
            self.entities,
            self.receiver,
            decrypt=self._decrypt,
            secrets=SecretRegistry(
                [
                    SecretUse(name, Purpose.CALLBACK_SIGNATURE, "acme", "a.example", ())
                    for name in (SECRET, "PARTNER_KEY")
                ],
                self.environment,
            ),
            clock_ms=lambda: self.now_ms,
        )

    async def _decrypt(self, text: str, tenant: str) -> str:
        if text == "erased":
            raise Permanent("the content was erased", kind="not_found")
        text = URL if text == SEALED_URL else text
        return f"{text}@{tenant}"

    async def request(self, body: str = '{"a":1}', secret_env: str = SECRET, url: str = URL) -> None:
        envelope = CommandEnvelope(command_id="r_1:end:2", tenant="acme", subject="ada")
        command = RequestCallback(envelope=envelope, run_id="r_1", hook=2, url=url, body=body, secret_env=secret_env)
        await self.entities.ask(command, wait_s=1)

    @property
    def state(self) -> Callback:
        state: Callback = self.entities.entities["acme", "r_1/2"].state
        return state


@pytest.fixture
def here() -> Here:
    return Here()


def signature(key: str, body: bytes) -> str:
    signed = f"r_1:end:2.{NOW_MS // 1000}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key.encode(), signed, "sha256")).decode()


async def test_an_attempt_is_posted_with_each_signature_and_recorded(here: Here) -> None:
    await here.request()
    await here.posts.attempt("acme", FIRST)
    body = b'{"a":1}@acme'
    ((url, sent, headers),) = here.receiver.posts
    assert (url, sent) == (f"{URL}@acme", body), "the address is content too"
    assert headers == {
        "webhook-id": "r_1:end:2",
        "webhook-timestamp": str(NOW_MS // 1000),
        "webhook-signature": f"{signature('one', body)} {signature('two', body)}",
    }
    assert (here.state.status, here.state.http_status) == ("delivered", 200)
    assert here.posts.ended == {"delivered": 1}


async def test_a_sealed_address_is_opened_before_it_is_asked_who_may_sign_for_it(here: Here) -> None:
    await here.request(url=SEALED_URL)
    await here.posts.attempt("acme", FIRST)
    assert (here.state.status, here.state.error) == ("delivered", "")
    ((url, _, headers),) = here.receiver.posts
    assert url == f"{URL}@acme"
    assert headers["webhook-signature"]


async def test_an_attempt_that_is_not_due_any_more_is_not_posted(here: Here) -> None:
    await here.posts.attempt("acme", FIRST)
    await here.request()
    await here.posts.attempt("other", FIRST)
    await here.posts.attempt("acme", CallbackPost(run_id="r_1", hook=2, attempt=2))
    assert here.receiver.posts == []
    await here.posts.attempt("acme", FIRST)
    await here.posts.attempt("acme", FIRST)
    assert len(here.receiver.posts) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Transient("it answered 500", kind="unavailable", status=500),
        Permanent("it answered 404", kind="refused", status=404),
        Transient("no answer", kind="timeout"),
    ],
)
async def test_a_failed_attempt_waits_for_the_next(here: Here, answer: ConnectorError) -> None:
    here.receiver.answers = [answer]
    await here.request()
    await here.posts.attempt("acme", FIRST)
    assert (here.state.status, here.state.http_status, here.state.error) == ("waiting", answer.status, str(answer))


@pytest.mark.parametrize(
    ("body", "secret_env", "answer", "error"),
    [
        ("{}", SECRET, Permanent("10.0.0.1 is private", kind="refused"), "10.0.0.1 is private"),
        ("{}", SECRET, Permanent("it answered 410", kind="refused", status=410), "it answered 410"),
        ("erased", SECRET, 200, "the content was erased"),
        (
            "{}",
            "LOOMLOG_INSTALLATION_SECRET",
            200,
            "the tenant acme may not use it",
        ),
    ],
)
async def test_what_cannot_succeed_is_not_tried_again(
    here: Here, body: str, secret_env: str, answer: Any, error: str
) -> None:
    here.receiver.answers = [answer]
    await here.request(body, secret_env)
    await here.posts.attempt("acme", FIRST)
    assert here.state.status == "dead"
    assert error in here.state.error


async def test_a_secret_may_be_set_later(here: Here) -> None:
    del here.environment[SECRET]
    await here.request()
    await here.posts.attempt("acme", FIRST)
    assert (here.state.status, here.receiver.posts) == ("waiting", [])
    assert here.state.error.startswith(
        f"secret_env: the variable {SECRET} is not set in the environment of this process"
    )


async def test_the_operator_may_allow_other_variables_and_none_is_needed(here: Here) -> None:
    here.environment["PARTNER_KEY"] = "x"
    await here.request(secret_env="PARTNER_KEY")
    await here.posts.attempt("acme", FIRST)
    assert "webhook-signature" in here.receiver.posts[0][2]
    unsigned = Here()
    await unsigned.request(secret_env="")
    await unsigned.posts.attempt("acme", FIRST)
    assert set(unsigned.receiver.posts[0][2]) == {"webhook-id", "webhook-timestamp"}


async def test_an_end_that_the_log_does_not_take_is_left_to_the_timer(here: Here) -> None:
    await here.request()
    ask, asked = here.entities.ask, 0

    async def unanswered(command: Any, *, wait_s: float) -> Any:
        nonlocal asked
        asked += 1
        raise UNANSWERED

    here.entities.ask = unanswered  # type: ignore[method-assign]  # the owner is away from now on
    await here.posts.attempt("acme", FIRST)
    assert (here.state.status, asked) == ("posting", SETTLE_TRIES)
    here.entities.ask = ask  # type: ignore[method-assign]
    await here.posts.attempt("acme", FIRST)
    assert (here.state.status, len(here.receiver.posts)) == ("delivered", 2)
    assert {headers["webhook-id"] for _, _, headers in here.receiver.posts} == {"r_1:end:2"}


async def test_a_callback_that_cannot_be_read_is_left_to_its_timer(here: Here) -> None:
    await here.request()
    here.entities.is_owner = False
    here.entities.error = Transient("the rows are away", kind="unavailable")
    await here.posts.attempt("acme", FIRST)
    assert here.receiver.posts == []
    here.entities.error = None
    await here.posts.attempt("acme", FIRST)
    assert here.state.status == "delivered"


async def test_a_tenant_whose_receivers_hang_leaves_attempts_for_others(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, going_on = list[str](), asyncio.Event()

    async def attempt(tenant: str, post: CallbackPost) -> None:
        begun.append(tenant)
        await going_on.wait()

    monkeypatch.setattr(here.posts, "attempt", attempt)
    for number in range(200):
        here.posts.receive(replace(FIRST, run_id=f"r_{number}"), "acme")
    here.posts.receive(FIRST, "globex")
    running = asyncio.create_task(here.posts.run())
    await until(lambda: "globex" in begun)
    assert (begun.count("acme"), begun.index("globex")) == (CALLBACKS.shares.per_tenant, 1)
    going_on.set()
    await until(lambda: len(begun) == 201)
    running.cancel()
    await asyncio.wait([running])


async def test_what_the_outbox_hands_over_is_posted_once(here: Here) -> None:
    await here.request()
    for _ in range(3):
        here.posts.receive(FIRST, "acme")
    running = asyncio.create_task(here.posts.run())
    async with asyncio.timeout(30):
        while here.state.status != "delivered":
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert len(here.receiver.posts) == 1
