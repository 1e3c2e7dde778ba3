"""Folders of processes: none is removed while its process lives, and none stays after it."""

import subprocess
import sys
from pathlib import Path

from loomlog.connectors.sqlite.folder import ClaimedFolder

CHILD = """
import sys
from pathlib import Path
from loomlog.connectors.sqlite.folder import ClaimedFolder
folder = ClaimedFolder(Path(sys.argv[1]))
(folder.path / "a.db").write_text("rows")
print(folder.path, flush=True)
sys.stdin.read()
"""


def test_the_folder_of_a_process_that_was_killed_is_removed_and_others_stay(tmp_path: Path) -> None:
    root = tmp_path / "root"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    of_child = Path(child.stdout.readline().strip())
    one = ClaimedFolder(root)
    assert (of_child / "a.db").read_text() == "rows"
    child.kill()
    child.communicate()
    other = ClaimedFolder(root)
    assert not of_child.exists()
    assert one.path.exists()
    assert one.path != other.path
    assert one.path.stat().st_mode & 0o077 == 0
    one.close()
    other.close()
    assert [path.name for path in root.iterdir()] == ["starting.lock"]
