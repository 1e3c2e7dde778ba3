from loomlog.connectors.client.run_stream import RECONNECTED, WAITING, Frame
from loomlog.services.cli.terminal.run_view import CALLS_SHOWN, RunView


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def told(*frames: Frame, view: RunView | None = None) -> list[str]:
    view = view or RunView(clock=Clock())
    return [line.plain for frame in frames for line in view.handle_frame(frame)]


def text(said: str) -> Frame:
    return Frame(name="text", data={"type": "text", "text": said})


def usage(**tokens: int) -> Frame:
    counts = {"input_tokens": 1200, "output_tokens": 34, "provider": "mock", "model": "mock-reviewer"} | tokens
    return Frame(name="usage", data={"type": "usage", "usage": counts})


def called(call_id: str, name: str = "Grep", **arguments: object) -> Frame:
    return Frame(name="tool_call", data={"tool_use": {"id": call_id, "name": name, "input": arguments}})


def returned(call_id: str, said: str, *, is_error: bool = False, **more: object) -> Frame:
    data: dict[str, object] = {"tool_use": {"id": call_id}, "text": said, **more}
    return Frame(name="tool_result", data=data | ({"is_error": True} if is_error else {}))


def done(reason: str = "end_turn") -> Frame:
    return Frame(name="done", data={"type": "done", "stop_reason": reason})


def test_a_turn_has_a_header_what_was_said_and_what_it_cost():
    assert told(Frame(name="started", data={}), text("Hello "), text("there."), usage(), done()) == [
        "turn 1",
        "  Hello there.",
        "  1,200 tokens in, 34 out   mock/mock-reviewer",
    ]


def test_text_that_streams_is_kept_until_it_is_whole():
    view = RunView(clock=Clock())
    assert told(text("Hel"), text("lo"), view=view) == ["turn 1"]
    assert view.streaming_text(4).plain == "  Hello"
    assert told(usage(), view=view) == ["  Hello"]
    assert view.streaming_text(4).plain == ""


def test_a_call_is_told_with_its_result_on_one_line_and_before_the_cost_of_its_turn():
    lines = told(
        text("I search."),
        called("1", path="services", pattern="TODO"),
        usage(),
        returned("1", "services/a.py:1: # TODO\nservices/b.py:2: # TODO\n"),
        text("Found."),
        usage(),
        done(),
    )
    assert lines == [
        "turn 1",
        "  I search.",
        "  ok    Grep path=services pattern=TODO  2 lines, 48 B  services/a.py:1: # TODO",
        "  1,200 tokens in, 34 out   mock/mock-reviewer",
        "turn 2",
        "  Found.",
        "  1,200 tokens in, 34 out   mock/mock-reviewer",
    ]


def test_an_error_of_a_tool_is_marked_and_counted():
    view = RunView(clock=Clock())
    lines = told(called("1", "Read", path="x.py"), returned("1", "There is no file x.py.", is_error=True), view=view)
    assert lines[1] == "  fail  Read path=x.py  There is no file x.py."
    assert view.tool_errors == 1


def test_of_many_calls_of_one_tool_the_first_few_are_shown_and_the_rest_counted():
    calls = [called(str(n), pattern=f"p{n}") for n in range(CALLS_SHOWN + 3)]
    results = [returned(str(n), f"a.py:{n}: x") for n in range(CALLS_SHOWN + 2)]
    failed = returned(str(CALLS_SHOWN + 2), "bad pattern", is_error=True)
    lines = told(*calls, usage(), *results, failed, done())
    assert sum(line.startswith("  ok    Grep") for line in lines) == CALLS_SHOWN
    assert "  and 3 more Grep, 1 failed" in lines


def test_of_many_calls_those_that_found_nothing_are_counted_first():
    calls = [called(str(n), pattern=f"p{n}") for n in range(CALLS_SHOWN + 2)]
    results = [returned(str(n), "no matches") for n in range(CALLS_SHOWN + 1)]
    lines = told(*calls, *results, returned(str(CALLS_SHOWN + 1), "a.py:1: x"), done())
    assert [line for line in lines if "Grep" in line] == [
        f"  ok    Grep pattern=p{CALLS_SHOWN + 1}  a.py:1: x",
        f"  and {CALLS_SHOWN + 1} more Grep without a match",
    ]


def test_a_result_in_the_blob_store_is_told_by_its_size():
    lines = told(called("1", "Read", path="big.log"), returned("1", "", text_blob={"size_bytes": 1_258_291}))
    assert lines[1] == "  ok    Read path=big.log  1.2 MiB"


def test_a_new_connection_and_a_retry_throw_away_half_a_sentence():
    assert told(text("Half a sen"), Frame(name=RECONNECTED, data={}), text("Half a sentence."), usage()) == [
        "turn 1",
        "connected again",
        "  Half a sentence.",
    ]
    retry = Frame(name="retry", data={"retry": {"provider": "mock", "attempt": 1, "wait_ms": 300, "reason": "backoff"}})
    assert told(text("Half"), retry, text("Whole."), usage()) == [
        "turn 1",
        "  attempt 2 at mock in 300 ms: backoff",
        "  Whole.",
    ]


def test_how_a_run_ends_is_its_status():
    for frame, status in (
        (done(), "completed"),
        (done("cancelled"), "cancelled"),
        (Frame(name="error", data={"error": "mock 400: no"}), "failed"),
        (Frame(name="quarantined", data={"error": "bad record"}), "quarantined"),
        (Frame(name="awaiting_input", data={}), "waiting for input"),
        (Frame(name="outcome_unknown", data={"outcome_unknown": {"call": "1.0"}}), "waiting for an operator"),
        (Frame(name="interruption_pending", data={"interruption": {"question": "?"}}), "waiting for an answer"),
        (Frame(name=WAITING, data={"error": "no runtime"}), "waiting"),
    ):
        view = RunView(clock=Clock())
        view.handle_frame(frame)
        assert view.status == status
    assert told(Frame(name="error", data={"error": "mock 400: no"})) == ["mock 400: no"]
    assert told(Frame(name="quarantined", data={"error": "bad record"})) == ["quarantined: bad record"]


def test_of_what_is_over_only_what_still_waits_says_how_it_is_settled():
    unknown = Frame(name="outcome_unknown", data={"outcome_unknown": {"call": "1.0", "id": "c1", "name": "Pay"}})
    question = Frame(
        name="interruption_pending", data={"interruption": {"interrupt_id": "i_1", "question": "Shall I?"}}
    )
    answered = Frame(name="interruption_resolved", data={"interruption": {"interrupt_id": "i_1"}})
    view = RunView(clock=Clock(), run_id="r_1", is_finished=True)
    said = ["the outcome of call 1.0 (Pay) is unknown", "Shall I?"]
    assert told(unknown, question, view=view) == said
    assert [hint.plain for hint in view.hints.values()] == [
        "loomlog runs resolve r_1 --call 1.0 --as done|not-done",
        "loomlog inbox answer r_1 i_1 TEXT",
    ]
    told(answered, returned("c1", "paid"), view=view)
    assert view.hints == {}


def test_thinking_is_counted_and_not_printed():
    thinking = Frame(name="thinking", data={"text": "three little words"})
    assert told(thinking, text("So."), usage()) == ["turn 1", "  (3 words of thinking)", "  So."]


def test_the_progress_line_tells_what_is_waited_for():
    clock = Clock()
    view = RunView(clock=clock)
    told(text("Go."), called("1", path="a"), called("2", path="b"), usage(cache_read_input_tokens=800), view=view)
    clock.now += 12.4
    view.cost = "0.0012 USD"
    assert view.progress_line().plain == (
        "turn 1 · Grep and 1 more 12.4 s · 2 tool calls · 2,000 tokens in, 34 out · 0.0012 USD · 12.4 s"
    )


def test_long_lines_are_wrapped_for_a_terminal_and_kept_whole_for_a_file():
    said = "word " * 30 + "services/a/very/long/path/that/is/not/broken/because/it/is/there/to/be/copied.py:12"
    wrapped = told(text(said), usage(), view=RunView(clock=Clock(), columns=60, wraps_text=True))
    assert len(wrapped) > 3
    assert any(line.strip().endswith("copied.py:12") for line in wrapped)
    assert told(text(said), usage(), view=RunView(clock=Clock(), columns=60))[1] == "  " + said


def test_what_a_model_says_of_its_calls_cannot_reach_the_line_that_is_redrawn():
    view = RunView(clock=Clock())
    told(called("1", "Gr\x1b[2Jep", path="x"), text("a\x1b[2Jb"), view=view)
    assert "\x1b" not in view.progress_line().plain + view.streaming_text(4).plain


def test_frames_of_later_versions_are_passed_over():
    assert (
        told(Frame(name="hologram", data={"x": 1}), Frame(name="session", data={}), Frame(name="agent", data={})) == []
    )


def test_a_question_shows_what_is_asked_and_how_it_is_answered():
    asked = {"interrupt_id": "intr_1", "question": "Shall I?", "options": ["yes", "no"]}
    agent = Frame(name="agent", data={"run_id": "r_1", "session_id": "s_1", "agent_id": "a_1"})
    assert told(agent, Frame(name="interruption_pending", data={"interruption": asked})) == [
        "Shall I?",
        "loomlog inbox answer r_1 intr_1 TEXT (yes | no)",
    ]
    assert told(Frame(name="interruption_resolved", data={"interruption": {"status": "resolved"}})) == []
    assert told(Frame(name="notice", data={"notice": {"message": "Half done."}})) == ["Half done."]


def test_a_stopped_turn_shows_what_was_said_and_why():
    stopped = Frame(name="turn_cancelled", data={"turn_cancelled": {"reason": "stop talking"}})
    assert told(text("I was"), stopped) == ["turn 1", "  I was", "turn cancelled: stop talking"]


def test_a_compaction_is_told_with_what_it_saved_and_one_that_failed_with_why():
    done = {"context_compaction": {"before_tokens": 81_000, "after_tokens": 12_000, "trigger": "auto"}}
    assert told(Frame(name="context_compaction", data=done)) == [
        "conversation compacted (auto): 81.0k tokens became 12.0k"
    ]
    for banked, end in (
        ({"pending_id": "mp_1", "messages": 7, "error": ""}, "; memory keeps 7 messages"),
        (
            {"pending_id": "", "messages": 0, "error": "no answer in 15 s"},
            "; memory keeps nothing of it: no answer in 15 s",
        ),
        ({"pending_id": "", "messages": 0, "error": ""}, ""),
    ):
        data = {"context_compaction": {**done["context_compaction"], "memory_banked": banked}}
        (line,) = told(Frame(name="context_compaction", data=data))
        assert line == f"conversation compacted (auto): 81.0k tokens became 12.0k{end}"
    failed = {"error": "the context could not be compacted: mock 529: busy"}
    assert told(Frame(name="compaction_failed", data=failed)) == [failed["error"]]
    rejected = {"turn": 1, "number": 2, "path": "$.total", "message": "m"}
    assert told(Frame(name="output_rejected", data={"output_rejected": rejected})) == [
        "the answer is no record: $.total (answer 2)"
    ]
