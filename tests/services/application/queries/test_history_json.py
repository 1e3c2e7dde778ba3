"""A run as it was, as JSON."""

from loomlog.services.application.queries.history_json import _phase
from loomlog.services.cli.terminal.state_text import _open_call
from tests.services.core.run.waiting import OTHER_QUEUE, QUEUE, waiting


def test_an_open_call_names_the_channels_that_it_waits_for() -> None:
    run = waiting("Channel", "Read", mode="any", queues=(QUEUE, OTHER_QUEUE))
    opened = sorted(_phase(run.state)["open_calls"], key=lambda call: call["index"])
    assert opened == [
        {"index": 0, "id": "c0", "name": "Channel", "attempt": 1, "channels": ["news", "alarms"]},
        {"index": 1, "id": "c1", "name": "Read", "attempt": 1},
    ]
    assert [_open_call(call) for call in opened] == ["Channel (c0, waits for news, alarms)", "Read (c1)"]
