"""Callbacks: an attempt at once, further ones after pauses, and none after a day or a final refusal."""

from typing import Any

import pytest

from loomlog.schemas.generated.callback_commands import RequestCallback, SettleCallback
from loomlog.schemas.generated.callback_events import (
    CallbackAttempted,
    CallbackDead,
    CallbackDelivered,
    CallbackRequested,
    CallbackStarted,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import TIMER_FIRED, At
from loomlog.services.families.callback import FAMILY, view
from loomlog.services.families.callback.limits import (
    BODY_BYTES_MAX,
    ERROR_CHARACTERS_MAX,
    GIVE_UP_MS,
    LOST_MS,
    PAUSES_MS,
)
from loomlog.services.families.callback.sends import RECEIVER, CallbackPost
from loomlog.services.families.callback.state import Callback

ENVELOPE = CommandEnvelope(command_id="c", tenant="acme")
BEGIN_MS = 1_800_000_000_000


def request(**fields: Any) -> RequestCallback:
    asked = {"run_id": "r_1", "hook": 2, "url": "https://a.example/x", "body": "{}", "secret_env": "A_SECRET"}
    return RequestCallback(envelope=ENVELOPE, **{**asked, **fields})


def failed(attempt: int = 1, **fields: Any) -> SettleCallback:
    settled = {"status": 500, "error": "it answered 500", **fields}
    return SettleCallback(envelope=ENVELOPE, run_id="r_1", hook=2, attempt=attempt, **settled)


def delivered(attempt: int = 1) -> SettleCallback:
    return SettleCallback(envelope=ENVELOPE, run_id="r_1", hook=2, attempt=attempt, status=204)


class Given:
    """A callback after these commands; `events` and `sent` are those of the last one."""

    def __init__(self, *commands: Any) -> None:
        self.state: Callback = FAMILY.rules.initial("callback:acme/r_1/2")
        self.now_ms = BEGIN_MS
        self.events: list[Any] = []
        self.sent: list[Any] = []
        for command in commands:
            self.when(command)

    def when(self, command: Any, after_ms: int = 0) -> "Given":
        self.now_ms += after_ms
        self.events = list(FAMILY.rules.decide(self.state, command, At(self.now_ms)))
        self.sent = []
        for event in self.events:
            if not isinstance(event, CommandRefused):
                self.state = FAMILY.rules.evolve(self.state, event, self.now_ms)
                self.sent += [(send.to, send.command) for send in FAMILY.sends(self.state, event)]
        return self

    def when_due(self) -> "Given":
        """Fire the timer at its time."""
        due_ms = FAMILY.rules.next_timer_ms(self.state)
        assert due_ms, "there is no timer"
        return self.when(TIMER_FIRED, due_ms - self.now_ms)

    @property
    def kinds(self) -> list[type[Any]]:
        return [type(event) for event in self.events]


def post(attempt: int) -> list[Any]:
    return [(RECEIVER, CallbackPost(run_id="r_1", hook=2, attempt=attempt))]


def test_the_first_attempt_begins_with_the_request() -> None:
    given = Given(request())
    assert given.events == [
        CallbackRequested(
            run_id="r_1",
            hook=2,
            url="https://a.example/x",
            body="{}",
            secret_env="A_SECRET",
            give_up_at_ms=BEGIN_MS + GIVE_UP_MS,
            lost_at_ms=BEGIN_MS + LOST_MS,
        )
    ]
    assert given.sent == post(1)


def test_a_request_that_comes_again_changes_nothing() -> None:
    assert Given(request(), request(body='{"b":1}')).events == []
    assert Given(request(), delivered(), request()).events == []


def test_a_failed_attempt_is_followed_by_another_after_a_pause() -> None:
    given = Given(request(), failed())
    assert given.events == [
        CallbackAttempted(
            run_id="r_1", hook=2, attempt=1, status=500, error="it answered 500", next_at_ms=BEGIN_MS + PAUSES_MS[0]
        )
    ]
    assert given.sent == []
    assert given.when(TIMER_FIRED, PAUSES_MS[0] - 1).events == []
    assert given.when_due().kinds == [CallbackStarted]
    assert given.sent == post(2)
    assert given.when(delivered(2)).kinds == [CallbackDelivered]
    assert (given.state.status, given.state.body, FAMILY.rules.next_timer_ms(given.state)) == ("delivered", "", 0)


def test_a_receiver_that_is_down_is_asked_for_a_day() -> None:
    given, attempts = Given(request()), 1
    while given.when(failed(attempts)).kinds == [CallbackAttempted]:
        assert given.when_due().sent == post(attempts + 1)
        attempts += 1
    (dead,) = given.events
    assert (dead.attempt, dead.reason, dead.error) == (attempts, "time", "it answered 500")
    assert BEGIN_MS + GIVE_UP_MS - PAUSES_MS[-1] <= given.now_ms <= BEGIN_MS + GIVE_UP_MS
    assert attempts == 19
    assert given.when(TIMER_FIRED, GIVE_UP_MS).events == []


def test_an_attempt_whose_end_is_not_known_is_made_again() -> None:
    given = Given(request())
    assert given.when(TIMER_FIRED, LOST_MS - 1).events == []
    assert given.when_due().sent == post(1)
    # The first one ends after all: the receiver has it, whatever becomes of the second.
    assert given.when(delivered(1)).kinds == [CallbackDelivered]
    assert given.when(failed(1)).events == []


def test_without_any_end_it_is_given_up_too() -> None:
    given = Given(request())
    while given.kinds != [CallbackDead]:
        given.when_due()
    assert (given.state.status, given.state.error) == ("dead", "the end of the last attempt is not known")
    assert given.now_ms >= BEGIN_MS + GIVE_UP_MS


def test_a_final_refusal_ends_it() -> None:
    given = Given(request(), failed(status=0, error="x" * 1_000, is_final=True))
    (dead,) = given.events
    assert (dead.reason, dead.error) == ("refused", "x" * ERROR_CHARACTERS_MAX)
    assert FAMILY.rules.next_timer_ms(given.state) == 0


def test_the_late_failure_of_an_earlier_attempt_changes_nothing() -> None:
    given = Given(request(), failed()).when_due()
    assert given.when(failed(1)).events == []
    assert given.when(failed(2)).kinds == [CallbackAttempted]
    assert given.when(failed(2)).events == []


@pytest.mark.parametrize("attempt", [-1, 0, 2])
def test_an_attempt_that_was_not_made_is_refused(attempt: int) -> None:
    (refused,) = Given(request()).when(delivered(attempt)).events
    assert refused.code == "bad_request"
    (refused,) = Given(delivered()).events
    assert refused.code == "bad_request"


@pytest.mark.parametrize(
    "wrong",
    [
        {"run_id": ""},
        {"run_id": "a/b"},
        {"hook": -1},
        {"hook": 1_001},
        {"url": ""},
        {"url": "https://a\n"},
        {"url": "x" * 3_001},
        {"body": "x" * (BODY_BYTES_MAX + 1)},
    ],
)
def test_what_is_no_request_is_refused_with_the_field(wrong: dict[str, Any]) -> None:
    (refused,) = Given(request(**wrong)).events
    assert refused.message.startswith(f"{next(iter(wrong))}: ")


def test_the_body_is_not_shown() -> None:
    shown = view(Given(request(body='{"private":1}'), failed()).state)
    assert "private" not in str(shown)
    assert (shown["status"], shown["attempts"], shown["http_status"]) == ("waiting", 1, 500)
    assert shown["next_attempt_at"] == "2027-01-15T08:00:01.000Z"
    assert "next_attempt_at" not in view(Given(request(), delivered()).state)
