import io

import pytest

from loomlog.services.cli.failures import Failure
from loomlog.services.cli.stack.foreground import Steps, require_none_runs, wiring_of
from loomlog.services.cli.stack.plan import plan
from loomlog.services.cli.terminal.output import Terminal
from tests.services.cli.places import child, configured, settings_in, with_stack


def test_steps_tell_the_time_since_the_beginning():
    times = iter([10.0, 13.25])
    file = io.StringIO()
    Steps(Terminal(file=file, force_terminal=False), lambda: next(times)).say("broker answers")
    assert file.getvalue() == "   3.2 s  broker answers\n"


def test_what_other_terminals_are_told_is_what_was_planned(tmp_path):
    file = configured(tmp_path)
    cli = settings_in(tmp_path, LOOMLOG_LISTEN_ADDR="127.0.0.1:0", LOOMLOG_INSIGHTS_ENABLED="0")
    made = plan(cli, working_directory=tmp_path, runtimes=2)
    wiring = wiring_of(made, 2.5)
    assert (wiring.api_url, wiring.insights_url) == (made.api_url, "")
    assert (wiring.source, wiring.out) == (str(tmp_path / "src"), str(tmp_path / "results"))
    assert (wiring.open_mode, wiring.runtimes, wiring.ready_after_s) == (True, 2, 2.5)
    assert wiring.configuration == (str(file),)


def test_a_second_stack_in_one_folder_is_refused_with_what_to_do(tmp_path):
    cli = settings_in(tmp_path)
    require_none_runs(cli)
    with pytest.raises(
        Failure, match=r"running in .*home already \(supervisor \d+\)\. `loomlog status`.*`loomlog down`"
    ):
        require_none_runs(with_stack(cli, child("api")))
    require_none_runs(with_stack(cli, child("kafka"), supervised=False))
