"""A file of another kind is named, with the command that takes it."""

import gzip
import io
import json

import pytest

from loomlog.services.stream.archive.bundle import BrokenBundle, BundleReader
from loomlog.services.stream.archive.file_formats import RUN_BUNDLE, STATE, wrong_format_hint
from loomlog.services.stream.archive.state_file import BrokenStateFile
from loomlog.services.stream.archive.state_reader import StateReader
from tests.services.stream.archive.test_bundle import written


def test_only_another_file_of_ours_is_another_file() -> None:
    line = json.dumps({"format": STATE}).encode()
    assert "backup restore" in wrong_format_hint(line, RUN_BUNDLE)
    assert wrong_format_hint(line, STATE) == ""
    assert wrong_format_hint(b"\x00 whatever", STATE) == ""


def test_a_state_is_no_bundle() -> None:
    file = io.BytesIO(gzip.compress(b'{"format":"loomlog.state","schema_version":2,"sections":{\n'))
    with pytest.raises(BrokenBundle, match="it is a state, which `loomlog backup restore` takes"):
        BundleReader(file)


async def test_a_bundle_is_no_state() -> None:
    with pytest.raises(BrokenStateFile, match="it is a run, which `loomlog replay` and `loomlog runs import` take"):
        StateReader(io.BytesIO(await written()))
