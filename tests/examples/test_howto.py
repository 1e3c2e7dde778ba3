"""The programs of docs/HOWTO.md against the code that they talk to."""

import ast
import re
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.http.signed_callbacks import standard_headers
from loomlog.connectors.protocols import ConsumerRecord
from loomlog.schemas.codec import local_codec
from loomlog.services.families.webhook.ingress_records import read_record

PAGE = (Path(__file__).parents[2] / "docs" / "HOWTO.md").read_text(encoding="utf-8")
BODY = b'{"run_id": "r_1"}'
SECRETS = ("plain text", "whsec_c2VjcmV0IG9mIHRoZSB0ZXN0")


def block(first_line: str) -> str:
    """The code block of the page that begins with a line, indented or fenced."""
    match = re.search(rf"^( *){re.escape(first_line)}\n(?:(?!```)(?:\1.*)?\n)*", PAGE, re.MULTILINE)
    assert match is not None, f"no block begins with {first_line!r}"
    return textwrap.dedent(match[0]).partition("\n## ")[0]


def is_genuine(*arguments: Any) -> bool:
    names: dict[str, Any] = {}
    exec(block("import base64, hmac, time"), names)
    return bool(names["is_genuine"](*arguments))


@pytest.mark.parametrize("secret", SECRETS)
def test_the_receiver_takes_what_a_runtime_has_signed_also_while_the_secret_changes(secret: str) -> None:
    headers = standard_headers("r_1:end:0", BODY, ["another", secret], int(time.time()))
    assert is_genuine(headers, BODY, secret)


@pytest.mark.parametrize(
    ("body", "secret", "age_s"), [(BODY + b" ", SECRETS[0], 0), (BODY, "wrong", 0), (BODY, SECRETS[0], 400)]
)
def test_the_receiver_refuses_another_body_another_secret_and_an_old_request(
    body: bytes, secret: str, age_s: int
) -> None:
    headers = standard_headers("r_1:end:0", BODY, SECRETS[:1], int(time.time()) - age_s)
    assert not is_genuine(headers, body, secret)


def test_the_record_of_the_producer_is_a_cloud_event_for_its_channel() -> None:
    tree = ast.parse(block("from aiokafka import AIOKafkaProducer"))
    assigned = next(node for node in tree.body if isinstance(node, ast.Assign))
    headers = ast.literal_eval(assigned.value)
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    value, key = (one for one in constants if isinstance(one, bytes))
    pairs = tuple((name, text.encode()) for name, text in headers.items())
    record = ConsumerRecord("loom.ingress", 0, 5, 1_000, key, value, pairs)
    submitted = read_record(record, local_codec())
    assert (submitted.channel, submitted.delivery_id, submitted.body) == ("orders", "/shop#19", '{"order": 19}')
