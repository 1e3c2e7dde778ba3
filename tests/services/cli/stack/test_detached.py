import io
import sys
from pathlib import Path

import pytest

from loomlog.services.cli.errors import CliError, Unreachable, UsageError
from loomlog.services.cli.stack import detached
from loomlog.services.cli.stack.services_record import save_services_record
from loomlog.services.cli.terminal.output import Terminal
from tests.services.cli.places import settings_in, wiring

READY = """
import json, os, sys, time
home = sys.argv[1]
print("   0.1 s  broker answers", flush=True)
wiring = dict(supervisor_pid=os.getpid(), api_url="", insights_url="", source="", out="", open_mode=True, runtimes=1,
              configuration=[], ready_after_s=1.25)
print("Try it:", flush=True)
print("  for who sits here", flush=True)
open(home + "/wiring.json", "w").write(json.dumps(wiring))
sys.stdin.read(); time.sleep(0.5)
"""
FAILS = """
import sys
print('   0.1 s  broker answers')
print('insights ended with exit code 1. Its log ends with:\\nlast words', file=sys.stderr)
sys.exit(CODE)
"""


def start(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> str:
    """Starts `program` in the place of `loomlog up`; what was shown."""
    real = detached.subprocess.Popen
    home = folder / "home"

    def popen(command, **options):
        assert command[1:5] == ["-P", "-m", "loomlog.services.cli.main", "up"]
        assert options["start_new_session"] is True, "Ctrl-C in this terminal must not reach it"
        return real([sys.executable, "-c", program, str(home)], **options)

    monkeypatch.setattr(detached.subprocess, "Popen", popen)
    file = io.StringIO()
    detached.start_detached(settings_in(folder), 1, None, Terminal(file=file, force_terminal=False))
    return file.getvalue()


def test_it_returns_when_exactly_that_process_is_ready(tmp_path, monkeypatch):
    shown = start(tmp_path, monkeypatch, READY)
    assert "   0.1 s  broker answers\n" in shown
    assert "for who sits here" not in shown
    assert "Ready after 1.2 s, supervisor" in shown


def test_what_another_stack_wrote_does_not_count(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    save_services_record(tmp_path / "home", wiring(tmp_path, supervisor_pid=1, ready_after_s=99.0))
    assert "Ready after 1.2 s" in start(tmp_path, monkeypatch, READY)


@pytest.mark.parametrize(("code", "kind"), [(1, CliError), (2, UsageError), (3, Unreachable)])
def test_a_start_that_fails_says_why_in_full_and_ends_in_the_same_way(tmp_path, monkeypatch, code, kind):
    with pytest.raises(CliError) as failure:
        start(tmp_path, monkeypatch, FAILS.replace("CODE", str(code)))
    assert str(failure.value) == "insights ended with exit code 1. Its log ends with:\nlast words"
    assert type(failure.value) is kind


def test_a_start_that_dies_without_a_word_is_said_too(tmp_path, monkeypatch):
    with pytest.raises(CliError, match="ended with 7 and without a word"):
        start(tmp_path, monkeypatch, "import sys; sys.exit(7)")


def test_a_start_that_takes_for_ever_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(detached, "TIMEOUT_S", 0.05)
    with pytest.raises(CliError, match="was told to stop"):
        start(tmp_path, monkeypatch, "import time; time.sleep(20)")
