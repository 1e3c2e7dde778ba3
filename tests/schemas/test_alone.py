"""A microservice takes the schemas package, fastavro and msgspec, and nothing else of loomlog."""

import subprocess
import sys
import textwrap

from loomlog.schemas.generate import HERE

PROGRAM = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("loomlog", "fastavro", "msgspec"):
            raise ImportError(f"{name} is neither of the standard library nor loomlog nor fastavro nor msgspec")

# A module of fastavro may look for what it does not need (snappy, ...); that is an ImportError it expects.
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, ROOT)
import loomlog.schemas.codec, loomlog.schemas.conversation, loomlog.schemas.ids
import loomlog.schemas.producer, loomlog.schemas.reader
from loomlog.schemas.generated.run_commands import StartRun

started = loomlog.schemas.producer.start_run_record(agent="assistant", prompt="hello")
found = loomlog.schemas.codec.local_codec().decode(started.value).record
assert isinstance(found, StartRun) and found.prompt == "hello"
reader = loomlog.schemas.reader.TermReader()
others = ("loomlog.services", "loomlog.connectors", "aiokafka", "pydantic")
print(sorted({name for name in sys.modules if name.startswith(others)}))
"""


def test_the_package_needs_fastavro_and_msgspec_and_nothing_else() -> None:
    program = f"ROOT = {str(HERE.parent)!r}\n" + textwrap.dedent(PROGRAM)
    # -S: without site-packages hooks an editable install cannot put our other folders in reach; the two are added.
    site = next(path for path in sys.path if path.endswith("site-packages"))
    program = f"import sys; sys.path.append({site!r})\n" + program
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
