from loomlog.services.cli.terminal.timeline import BAR_COLUMNS, Timeline

MS = 1_000_000


def frame(kind, seq, at_ms, **event):
    return {"type": kind, "seq": seq, "ts_ns": at_ms * MS, "event": {"type": kind, **event}}


def story():
    use = {"id": "t1", "name": "Read", "input": {}}
    return [
        frame("user_input", 256, 1_000),
        frame("text", 768, 1_100, text="I look."),
        frame("tool_call", 769, 1_100, tool_use=use),
        frame("usage", 770, 1_100),
        frame("tool_result", 1280, 1_150, tool_use=use),
        frame("text", 1792, 1_200, text="Done."),
        frame("done", 2048, 1_200),
    ]


def margins(columns):
    frames = story()
    timeline = Timeline(frames, columns=columns)
    return timeline, [timeline.margin(one).plain for one in frames]


def test_a_turn_takes_from_the_step_before_it_and_a_call_from_its_turn():
    _, shown = margins(80)
    assert shown[0].split() == ["1", "0", "ms"]
    assert shown[1].split() == ["3", "0", "ms", "100", "ms"]
    assert shown[4].split() == ["5", "100", "ms", "50", "ms"]
    assert shown[5].split() == ["7", "150", "ms", "50", "ms"]


def test_bars_lie_where_the_step_was_and_are_as_long_as_it_took():
    timeline, shown = margins(120)
    half, quarter = BAR_COLUMNS // 2, BAR_COLUMNS // 4
    assert shown[1].endswith("▇" * half + " " * half + "  ")
    assert shown[4].endswith(" " * half + "▇" * quarter + " " * quarter + "  ")
    assert {len(one) for one in shown} == {timeline.columns}


def test_a_narrow_terminal_has_no_bars():
    timeline, shown = margins(80)
    assert all("▇" not in one and len(one) == timeline.columns for one in shown)


def test_a_step_without_length_is_a_thin_bar_and_a_run_of_one_instant_has_none():
    frames = [frame("user_input", 256, 0), frame("text", 512, 0), frame("done", 768, 1_000)]
    timeline = Timeline(frames, columns=120)
    assert "▏" in [timeline.margin(one).plain for one in frames][1]
    alone = Timeline(frames[:2], columns=120)
    assert not set("▏▇") & set("".join(alone.margin(one).plain for one in frames[:2]))
