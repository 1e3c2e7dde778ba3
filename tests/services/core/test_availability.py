"""Which models can be called: the fold of marks and probes, and what a call says of its model."""

import pytest

from loomlog.schemas.generated.stream_records import ModelMarked, ProbeRequested, ProviderProbed
from loomlog.services.core.availability import (
    COOLDOWN_DEFAULT_MS,
    RATE_LIMITED,
    RECOVERED,
    REQUESTS_KEPT,
    STALLED,
    STATUSES_MAX,
    AvailabilityTable,
    ModelStatus,
    ProviderRecord,
    failure_mark,
    is_listed,
    success_mark,
)

NOW = 1_000_000


def mark(kind: str, model: str = "m", provider: str = "p", *, until_ms: int = 0, at_ms: int = NOW) -> ModelMarked:
    return ModelMarked(provider=provider, model=model, mark=kind, until_ms=until_ms, reason="unavailable", at_ms=at_ms)


def probe(
    *models: str, provider: str = "p", reachable: bool = True, at_ms: int = NOW, request_id: str = ""
) -> ProviderProbed:
    error = "" if reachable else "refused"
    return ProviderProbed(
        provider=provider, reachable=reachable, models=models, error=error, at_ms=at_ms, request_id=request_id
    )


def after(*records: ProviderRecord) -> AvailabilityTable:
    matrix = AvailabilityTable()
    for record in records:
        matrix = matrix.apply(record)
    return matrix


def why_not(matrix: AvailabilityTable, model: str = "m", provider: str = "p", now_ms: int = NOW) -> str:
    return matrix.availability(provider, model, now_ms).unavailable_reason


def test_a_model_nobody_has_asked_about_is_taken_to_be_well() -> None:
    assert AvailabilityTable().availability("p", "m", NOW).is_available


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ((mark(STALLED),), "it is stalled"),
        ((mark(RATE_LIMITED, until_ms=NOW + 1),), "it is rate limited"),
        ((probe(reachable=False),), "its provider does not answer"),
        ((probe("other"),), "its provider does not list it"),
        ((probe(reachable=False), mark(STALLED)), "its provider does not answer and it is stalled"),
    ],
)
def test_what_stands_against_a_model(records: tuple[ProviderRecord, ...], words: str) -> None:
    standing = after(*records).availability("p", "m", NOW)
    assert (standing.is_available, standing.unavailable_reason) == (False, words)


def test_a_mark_is_about_one_model_of_one_provider() -> None:
    matrix = after(mark(STALLED))
    assert not why_not(matrix, model="n")
    assert not why_not(matrix, provider="q")


# --- how the two states heal -----------------------------------------------------------------------------------------


def test_a_stall_lasts_until_a_call_succeeds() -> None:
    assert why_not(after(mark(STALLED)), now_ms=NOW + 10**9) == "it is stalled"
    assert after(mark(STALLED), mark(RECOVERED)) == AvailabilityTable()


def test_a_stall_lasts_until_its_provider_answers_a_probe() -> None:
    assert after(mark(STALLED), probe()).statuses == {}
    assert after(mark(STALLED), probe(reachable=False)).status("p", "m").is_stalled
    assert after(mark(STALLED), probe(provider="q")).status("p", "m").is_stalled


def test_a_rate_limit_ends_by_itself_and_not_before() -> None:
    matrix = after(mark(RATE_LIMITED, until_ms=NOW + 10))
    assert [bool(why_not(matrix, now_ms=NOW + ms)) for ms in (0, 9, 10)] == [True, True, False]


def test_neither_a_probe_nor_a_success_ends_a_rate_limit() -> None:
    limited = mark(RATE_LIMITED, until_ms=NOW + 10)
    for heals in (probe("m"), mark(RECOVERED)):
        assert why_not(after(limited, heals)) == "it is rate limited"


def test_a_probe_takes_the_stall_and_leaves_the_rate_limit() -> None:
    matrix = after(mark(STALLED), mark(RATE_LIMITED, until_ms=NOW + 10), probe())
    assert matrix.status("p", "m") == ModelStatus(limited_until_ms=NOW + 10, reason="unavailable")


def test_of_two_ends_of_a_rate_limit_the_later_counts() -> None:
    for ends in ((10, 20), (20, 10)):
        matrix = after(*(mark(RATE_LIMITED, until_ms=NOW + end) for end in ends))
        assert matrix.status("p", "m").limited_until_ms == NOW + 20


def test_the_next_change_without_a_record_is_the_first_end() -> None:
    matrix = after(mark(RATE_LIMITED, "a", until_ms=NOW + 20), mark(RATE_LIMITED, "b", until_ms=NOW + 10))
    assert [matrix.next_change_ms(NOW + ms) for ms in (0, 10, 20)] == [NOW + 10, NOW + 20, 0]


def test_limits_that_are_over_are_left_out_of_the_matrix() -> None:
    matrix = after(mark(RATE_LIMITED, "old", until_ms=NOW), mark(STALLED, "new", at_ms=NOW + 1))
    assert list(matrix.statuses) == [("p", "new")]


def test_a_record_that_is_read_twice_changes_nothing() -> None:
    records: tuple[ProviderRecord, ...] = (
        mark(STALLED),
        mark(RATE_LIMITED, until_ms=NOW + 10),
        probe("m", request_id="r"),
        ProbeRequested(request_id="r"),
        mark(RECOVERED),
    )
    for record in records:
        assert after(record, record) == after(record)


def test_the_matrix_has_a_bound() -> None:
    cells = {("p", str(number)): ModelStatus(stalled_at_ms=NOW) for number in range(STATUSES_MAX)}
    full = AvailabilityTable(statuses=cells)
    with pytest.raises(ValueError, match="marked already"):
        full.apply(mark(STALLED))
    assert len(full.apply(mark(RECOVERED, "0")).statuses) == STATUSES_MAX - 1


def test_a_mark_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="tired"):
        after(mark("tired"))


# --- probes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "listed", "is_there"),
    [
        ("gpt-5", ("gpt-5",), True),
        ("gpt-5", ("gpt-5-mini",), False),
        ("claude-haiku-4-5", ("claude-haiku-4-5-20251001",), True),
        ("claude-haiku-4", ("claude-haiku-4-5-20251001",), False),
        ("claude-haiku-4-5-20251001", ("claude-haiku-4-5",), False),
        ("llama3", ("llama3:latest",), True),
        ("llama3", ("llama3:70b",), False),
    ],
)
def test_a_list_means_a_model_by_the_names_vendors_give_it(model: str, listed: tuple[str, ...], is_there: bool) -> None:
    assert is_listed(model, listed) is is_there


def test_a_provider_that_lists_nothing_has_said_nothing_about_its_models() -> None:
    matrix = after(probe())
    assert matrix.availability("p", "m", NOW).is_available
    assert matrix.listings() == {"p": ()}


def test_a_provider_that_is_away_keeps_what_it_listed() -> None:
    matrix = after(probe("m"), probe(reachable=False, at_ms=NOW + 1))
    assert matrix.listings() == {"p": ("m",)}
    assert (matrix.providers["p"].error, matrix.providers["p"].checked_at_ms) == ("refused", NOW + 1)


def test_a_provider_that_answers_and_cannot_list_keeps_what_it_listed() -> None:
    failed = ProviderProbed(provider="p", reachable=True, error="the list is broken", at_ms=NOW)
    assert after(probe("m"), failed).listings() == {"p": ("m",)}
    assert after(probe("m"), probe()).listings() == {"p": ()}, "one that lists nothing any more says so"


def test_an_answer_shows_that_a_provider_is_there_again() -> None:
    away = after(probe("m"), probe(reachable=False))
    actual = success_mark(away, "p", "m", at_ms=NOW, by="me")
    assert actual is not None
    assert away.apply(actual).availability("p", "m", NOW).is_available
    assert (away.apply(actual).providers["p"].error, away.apply(actual).listings()) == ("", {"p": ("m",)})
    assert success_mark(after(probe("m")), "p", "m", at_ms=NOW, by="me") is None


def test_since_when_a_provider_has_a_stalled_model() -> None:
    matrix = after(mark(STALLED, "a", at_ms=5), mark(STALLED, "b", at_ms=3), mark(STALLED, "c", "q", at_ms=1))
    assert (matrix.stalled_since_ms("p"), matrix.stalled_since_ms("other")) == (3, 0)


def test_a_probe_on_demand_is_answered_by_each_provider_for_itself() -> None:
    matrix = after(ProbeRequested(request_id="r"), probe(request_id="r"))
    assert matrix.has_answered("r", "p")
    assert not matrix.has_answered("r", "q")
    assert not after(ProbeRequested(request_id="r"), probe()).has_answered("r", "p")


def test_the_answer_to_a_later_request_is_one_to_the_earlier_too() -> None:
    matrix = after(ProbeRequested(request_id="a"), ProbeRequested(request_id="b"), probe(request_id="b"))
    assert (matrix.has_answered("a", "p"), matrix.has_answered("b", "p")) == (True, True)
    late = matrix.apply(probe(request_id="a"))
    assert late.has_answered("b", "p")
    assert not matrix.apply(ProbeRequested(request_id="c")).has_answered("c", "p")


def test_only_the_latest_requests_are_remembered() -> None:
    matrix = after(*(ProbeRequested(request_id=str(number)) for number in range(REQUESTS_KEPT + 3)))
    assert (len(matrix.request_ids), matrix.request_ids[-1]) == (REQUESTS_KEPT, str(REQUESTS_KEPT + 2))


# --- what calls say --------------------------------------------------------------------------------------------------


def failed(matrix: AvailabilityTable, kind: str, cooldown_ms: int = 0) -> ModelMarked | None:
    return failure_mark(matrix, "p", "m", kind, cooldown_ms=cooldown_ms, at_ms=NOW, by="me")


@pytest.mark.parametrize("kind", ["overloaded", "unavailable", "timeout", "network", "broken_off", "deprecated"])
def test_a_failure_of_the_provider_stalls_the_model_once(kind: str) -> None:
    actual = failed(AvailabilityTable(), kind)
    assert actual is not None
    assert (actual.mark, actual.reason, actual.by) == (STALLED, kind, "me")
    assert failed(after(actual), kind) is None


@pytest.mark.parametrize("kind", ["invalid", "unauthorised", "forbidden", "not_found", "unsupported", "refused"])
def test_a_request_that_is_wrong_in_itself_says_nothing_of_the_model(kind: str) -> None:
    assert failed(AvailabilityTable(), kind) is None


@pytest.mark.parametrize(
    ("wanted_ms", "lasts_ms"),
    [(0, COOLDOWN_DEFAULT_MS), (5_000, 5_000), (1, 1_000), (999, 1_000), (600_000, 600_000), (600_001, 600_000)],
)
def test_a_rate_limit_lasts_as_the_plan_says_within_bounds(wanted_ms: int, lasts_ms: int) -> None:
    actual = failed(AvailabilityTable(), "rate_limited", wanted_ms)
    assert actual is not None
    assert (actual.mark, actual.until_ms) == (RATE_LIMITED, NOW + lasts_ms)


def test_a_model_that_is_limited_already_is_not_marked_again() -> None:
    assert failed(after(mark(RATE_LIMITED, until_ms=NOW + 1)), "rate_limited") is None
    assert failed(after(mark(RATE_LIMITED, until_ms=NOW)), "rate_limited") is not None


def test_a_connection_that_was_closed_meanwhile_says_nothing_of_the_model() -> None:
    assert failed(AvailabilityTable(), "stale") is None
    assert failed(AvailabilityTable(), "network") is not None


def test_an_answer_says_something_only_where_the_model_was_stalled() -> None:
    limited = after(mark(RATE_LIMITED, until_ms=NOW + 1))
    assert success_mark(AvailabilityTable(), "p", "m", at_ms=NOW, by="me") is None
    assert success_mark(limited, "p", "m", at_ms=NOW, by="me") is None
    actual = success_mark(after(mark(STALLED)), "p", "m", at_ms=NOW, by="me")
    assert actual is not None
    assert actual.mark == RECOVERED


# --- what only the operator's key has met ----------------------------------------------------------------------------

REFUSED = ProviderProbed(provider="p", reachable=False, error="p 401: no", key_refused=True, at_ms=NOW)


def test_limits_and_refusals_of_the_operators_key_are_no_matter_of_another() -> None:
    for record in (mark(RATE_LIMITED, until_ms=NOW + 1), REFUSED):
        matrix = after(record)
        assert not matrix.availability("p", "m", NOW).is_available
        assert matrix.availability("p", "m", NOW, own_key=True).is_available


def test_what_is_wrong_with_the_provider_or_the_model_is_wrong_with_every_key() -> None:
    for record in (mark(STALLED), probe(reachable=False), probe("other")):
        assert not after(record).availability("p", "m", NOW, own_key=True).is_available


def test_a_provider_that_refuses_a_key_has_answered() -> None:
    assert after(mark(STALLED), REFUSED).availability("p", "m", NOW, own_key=True).is_available
    assert not after(REFUSED, mark(RECOVERED)).providers["p"].key_refused


def test_an_answer_to_another_key_does_not_open_what_refuses_the_operators() -> None:
    for matrix in (after(REFUSED), after(REFUSED, mark(STALLED))):
        assert success_mark(matrix, "p", "m", at_ms=NOW, by="one", own_key=True) is None
        assert success_mark(matrix, "p", "m", at_ms=NOW, by="one") is not None
    assert success_mark(after(mark(STALLED)), "p", "m", at_ms=NOW, by="one", own_key=True) is not None
