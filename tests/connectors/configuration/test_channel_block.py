import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.channel_block import (
    EVENT_CHANNELS,
    MAX_PERIOD_S,
    ChannelBlock,
    format_duration,
    name_problem,
    parse_duration_s,
)
from tests.connectors.configuration.conftest import Folder


def channels(folder: Folder, text: str) -> Mapping[str, ChannelBlock]:
    return folder.load(f"channels: {{{text}}}").configuration.channels


def test_a_channel_has_its_declared_keys_and_defaults_for_the_others(folder: Folder) -> None:
    full = "{scope: tenant, semantic: broadcast, default_ttl: 1h30m, max_messages: 9}"
    declared = channels(folder, f"plaza: {{scope: global}}, research/c1: {full}")
    plaza, research = declared["plaza"], declared["research/c1"]
    assert (plaza.scope, plaza.semantic, plaza.default_ttl, plaza.max_messages) == ("global", "queue", 0, 0)
    assert (plaza.publisher, plaza.period, plaza.description) == ("", 0, "")
    assert (research.scope, research.semantic, research.default_ttl, research.max_messages) == (
        "tenant",
        "broadcast",
        5_400,
        9,
    )


def test_channels_of_the_system_have_a_period_or_one_of_the_names_of_its_events(folder: Folder) -> None:
    events = ", ".join(
        f"{name}: {{scope: {'user' if 'interrupts' in name else 'global'}, publisher: system}}"
        for name in EVENT_CHANNELS
    )
    declared = channels(folder, f"beat: {{scope: global, publisher: system, period: 1h}}, {events}")
    assert declared["beat"].period == 3_600
    assert set(EVENT_CHANNELS) < declared.keys()


@pytest.mark.parametrize(
    ("channel", "problem"),
    [
        ("a: {}", "channels.a.scope is missing"),
        (
            "a: {scope: run}",
            "channels.a.scope: 'run' is not usable: expected 'agent', 'user', 'tenant' or 'global'",
        ),
        (
            "a: {scope: user, semantic: queu}",
            "channels.a.semantic: 'queu' is not usable: expected 'queue', 'topic' or 'broadcast'; did you mean queue?",
        ),
        ("a: {scope: user, ttl: 3}", "channels.a.ttl is not a known key"),
        (
            "a: {scope: user, default_ttl: soon}",
            "channels.a.default_ttl: 'soon' is not usable: expected seconds, or a duration such as 90s, 1h30m or 7d",
        ),
        (
            "a: {scope: user, max_messages: -1}",
            "channels.a.max_messages: -1 is not usable: expected greater than or equal to 0",
        ),
        (
            "a: {scope: global, publisher: admin}",
            "channels.a.publisher: 'admin' is not usable: expected '', 'system' or 'any'",
        ),
        (
            "a: {scope: tenant, publisher: any}",
            "channels.a.publisher: any is for the scope global: with the scope tenant all of the tenant publish",
        ),
        (
            "_system/a: {scope: global, publisher: any}",
            "channels._system/a.publisher: is any: only the system publishes to channels of _system/",
        ),
        (
            "a: {scope: global, period: 1h}",
            "channels.a.period: needs publisher: system, because the system publishes it",
        ),
        (
            "a: {scope: global, publisher: system}",
            "channels.a.publisher: system needs a period, or one of the names of its events: _system/runtime-state, "
            "_system/provider-events, _system/interrupts/pending, _system/interrupts/resolved",
        ),
        (
            "a: {scope: user, publisher: system, period: 1h}",
            "channels.a.scope: is user: a channel with a period has the scope global",
        ),
        (
            "a: {scope: global, publisher: system, period: 32d}",
            "channels.a.period: is 768h: expected at most 744h",
        ),
        (
            "_system/runtime-state: {scope: tenant, publisher: system}",
            "channels._system/runtime-state.scope: is tenant: what happens to the installation has the scope global",
        ),
    ],
)
def test_a_wrong_channel_is_refused_with_what_was_expected(folder: Folder, channel: str, problem: str) -> None:
    (line,) = folder.problems(f"channels: {{{channel}}}")
    assert problem in line


@pytest.mark.parametrize("name", ["a/../b", "a//b", "/a", "a/", "a/*", "a*", "", "a\tb", "x" * 201, "é" * 86])
def test_a_name_that_no_grant_could_name_is_refused(folder: Folder, name: str) -> None:
    assert name_problem(name)
    assert folder.problems(f"channels: {{{json.dumps(name)}: {{scope: user}}}}")


@pytest.mark.parametrize("name", ["a", "research-done/c1", "_system/x", "a.b", "Größe 1", "é" * 42])
def test_any_other_name_is_taken(folder: Folder, name: str) -> None:
    assert not name_problem(name)
    assert list(channels(folder, f"{name!r}: {{scope: user}}")) == [name]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h", 3_600), ("1h30m", 5_400), ("7d", 604_800), ("0s", 0), (" 5m ", 300)]
)
def test_a_duration_is_read_as_seconds(text: str, seconds: int) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1.5h", "-1s", "1h 30m", "1m1h", "60", "1ns", "9" * 40 + "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected seconds"):
        parse_duration_s(text)


@given(st.integers(1, MAX_PERIOD_S))
def test_a_duration_is_written_as_it_is_read(seconds: int) -> None:
    assert parse_duration_s(format_duration(seconds)) == seconds
