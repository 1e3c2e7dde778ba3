import io

import pytest

from loomlog.services.cli.errors import CliError
from loomlog.services.cli.stack.foreground import StepLog, build_services_record, require_not_running
from loomlog.services.cli.stack.plan import create_plan
from loomlog.services.cli.terminal.output import Terminal
from tests.services.cli.places import child, configured, settings_in, with_stack


def test_steps_tell_the_time_since_the_beginning():
    times = iter([10.0, 13.25])
    file = io.StringIO()
    StepLog(Terminal(file=file, force_terminal=False), lambda: next(times)).report("broker answers")
    assert file.getvalue() == "   3.2 s  broker answers\n"


def test_what_other_terminals_are_told_is_what_was_planned(tmp_path):
    file = configured(tmp_path)
    cli = settings_in(tmp_path, LOOMLOG_LISTEN_ADDR="127.0.0.1:0", LOOMLOG_INSIGHTS_ENABLED="0")
    made = create_plan(cli, working_directory=tmp_path, runtimes=2)
    wiring = build_services_record(made, 2.5)
    assert (wiring.api_url, wiring.insights_url) == (made.api_url, "")
    assert (wiring.source, wiring.out) == (str(tmp_path / "src"), str(tmp_path / "results"))
    assert (wiring.open_mode, wiring.runtimes, wiring.ready_after_s) == (True, 2, 2.5)
    assert wiring.configuration == (str(file),)


def test_a_second_stack_in_one_folder_is_refused_with_what_to_do(tmp_path):
    cli = settings_in(tmp_path)
    require_not_running(cli)
    with pytest.raises(
        CliError, match=r"running in .*home already \(supervisor \d+\)\. `loomlog status`.*`loomlog down`"
    ):
        require_not_running(with_stack(cli, child("api")))
    require_not_running(with_stack(cli, child("kafka"), supervised=False))
