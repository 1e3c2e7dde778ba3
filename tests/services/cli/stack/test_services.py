import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from loomlog.redpanda.topics import load_topics
from loomlog.services.cli.errors import Unreachable
from loomlog.services.cli.stack.plan import StackPlan, create_plan
from loomlog.services.cli.stack.ports import pick_port
from loomlog.services.cli.stack.services import (
    PROGRAM_ROOT,
    RUN_TOPICS,
    _spare_probe,
    apply_topics,
    build_services,
    expected_topics,
    python_path,
)
from tests.services.cli.places import configured, settings_in


def planned(folder: Path, *, runtimes: int = 1, spares: int | None = 0, **environ: str) -> StackPlan:
    configured(folder)
    # Named from outside, so that nobody is asked about claims: there is no broker in these tests.
    free = {"LOOMLOG_LISTEN_ADDR": "127.0.0.1:0", "LOOMLOG_INSIGHTS_PORT": "0", "LOOMLOG_KAFKA": "k.test:1"}
    cli = settings_in(folder, **{**free, **environ})
    return create_plan(cli, working_directory=folder, runtimes=runtimes, spares=spares)


async def services(made: StackPlan):
    async with AsyncExitStack() as probes:
        return await build_services(made, kafka="k.test:1", postgres="postgresql://p@127.0.0.1:1/p", exit_stack=probes)


async def test_what_a_run_needs_starts_together_and_insights_beside_it(tmp_path):
    specs = await services(planned(tmp_path))
    assert [child.name for child in specs.required] == ["runtime", "projector", "api"]
    assert [child.name for child in specs.secondary] == ["insights"]


async def test_grpc_runs_where_an_address_is_named_with_the_keys_of_content(tmp_path):
    made = planned(tmp_path, LOOMLOG_GRPC_ADDR="127.0.0.1:0", LOOMLOG_ENCRYPTION_KEY="k" * 43 + "=")
    served = (await services(made)).required[-1]
    assert (served.name, served.url) == ("grpc", f"grpc://{made.grpc_addr}")
    assert served.environment["LOOMLOG_GRPC_ADDR"] == made.grpc_addr != "127.0.0.1:0"
    assert "LOOMLOG_ENCRYPTION_KEY" in served.environment
    assert served.ready is not None
    assert await served.ready() == f"{made.grpc_addr} does not answer: UNAVAILABLE"


async def test_grpc_with_tls_is_ready_when_it_listens(tmp_path):
    tls = {"LOOMLOG_GRPC_TLS_CERT": "c.pem", "LOOMLOG_GRPC_TLS_KEY": "k.pem"}
    made = planned(tmp_path, LOOMLOG_GRPC_ADDR="127.0.0.1:0", **tls)
    ready = (await services(made)).required[-1].ready
    assert ready is not None
    assert await ready() == f"{made.grpc_addr} does not answer: ConnectionRefusedError"
    host, _, port = made.grpc_addr.rpartition(":")
    async with await asyncio.start_server(lambda reader, writer: writer.close(), host, int(port)):
        assert await ready() is None


async def test_the_auditor_runs_when_there_is_a_key_which_no_other_service_gets(tmp_path):
    specs = await services(planned(tmp_path, LOOMLOG_AUDIT_KEY="secret"))
    assert [child.name for child in specs.secondary] == ["insights", "auditor"]
    auditor = specs.secondary[-1]
    assert auditor.environment["LOOMLOG_AUDIT_KEY"] == "secret"
    for child in (*specs.required, specs.secondary[0]):
        assert "LOOMLOG_AUDIT_KEY" not in child.environment
    by_file = await services(planned(tmp_path, LOOMLOG_AUDIT_KEY_FILE="k", LOOMLOG_INSIGHTS_ENABLED="0"))
    assert [child.name for child in by_file.secondary] == ["auditor"]


async def test_the_api_gets_the_public_half_of_the_key_unless_it_is_told_of_others(tmp_path):
    key = tmp_path / "k"

    async def public_keys(**environ: str) -> str | None:
        specs = await services(planned(tmp_path, LOOMLOG_AUDIT_KEY_FILE=str(key), **environ))
        api = next(child for child in specs.required if child.name == "api")
        return api.environment.get("LOOMLOG_AUDIT_PUBLIC_KEYS")

    assert await public_keys() is None
    (tmp_path / "k.pub").write_text("a key")
    assert await public_keys() == str(tmp_path / "k.pub")
    assert await public_keys(LOOMLOG_AUDIT_PUBLIC_KEYS=str(tmp_path / "all")) == str(tmp_path / "all")


async def test_a_service_is_our_own_code_whatever_lies_in_the_folder(tmp_path):
    specs = await services(planned(tmp_path, PYTHONPATH="/theirs"))
    api = specs.required[-1]
    assert api.argv == (sys.executable, "-P", "-m", "loomlog.services.api.main")
    assert api.environment["PYTHONPATH"] == f"{PROGRAM_ROOT}:/theirs"
    assert (PROGRAM_ROOT / "loomlog" / "services" / "cli").is_dir()


async def test_every_service_is_told_where_broker_and_postgres_are(tmp_path):
    specs = await services(planned(tmp_path))
    for child in (*specs.required, *specs.secondary):
        assert child.environment["LOOMLOG_KAFKA"] == "k.test:1"
        assert child.environment["LOOMLOG_POSTGRES"] == "postgresql://p@127.0.0.1:1/p"
        assert child.environment["LOOMLOG_OPEN_MODE"] == "1"
        assert "LOOMLOG_TOKEN" not in child.environment


async def test_several_runtimes_have_names_of_their_own(tmp_path):
    specs = await services(planned(tmp_path, runtimes=2, LOOMLOG_REPLICA_ID="box"))
    runtimes = [child for child in specs.required if child.name.startswith("runtime")]
    assert [child.name for child in runtimes] == ["runtime-1", "runtime-2"]
    assert [child.environment["LOOMLOG_REPLICA_ID"] for child in runtimes] == ["box-1", "box-2"]


async def test_a_spare_starts_after_the_rest_and_the_stack_goes_on_without_it(tmp_path):
    specs = await services(planned(tmp_path, spares=1, LOOMLOG_REPLICA_ID="box", LOOMLOG_SECRET_KEY="c"))
    assert [child.name for child in specs.required] == ["runtime", "projector", "api"]
    assert [child.name for child in specs.secondary] == ["runtime-2", "insights"]
    owner, spare = specs.required[0], specs.secondary[0]
    assert (spare.required, spare.argv) == ("never", owner.argv)
    assert spare.environment["LOOMLOG_REPLICA_ID"] == "box-2"
    assert spare.environment["LOOMLOG_SECRET_KEY"] == "c"
    assert {child.environment["LOOMLOG_SPARES"] for child in (*specs.required, *specs.secondary)} == {"1"}


async def test_a_spare_is_asked_for_its_role_on_a_broker_of_our_own(tmp_path):
    assert (await services(planned(tmp_path, spares=1))).secondary[0].ready is None, "runtimes elsewhere may have it"
    ours = planned(tmp_path, spares=1, LOOMLOG_KAFKA="")
    assert _spare_probe(ours, 2) is not None
    assert _spare_probe(planned(tmp_path, spares=1, LOOMLOG_KAFKA="", LOOMLOG_STANDBY_ADDR="off"), 2) is None


async def test_a_child_without_an_address_yet_says_why_it_is_not_ready(tmp_path):
    made = planned(tmp_path)
    async with AsyncExitStack() as probes:
        specs = await build_services(made, kafka="k.test:1", postgres="postgresql://p@127.0.0.1:1/p", exit_stack=probes)
        api, projector = specs.required[-1], specs.required[-2]
        assert api.ready is not None
        assert await api.ready() == f"{made.api_url}/readyz does not answer: ConnectError"
        assert projector.ready is not None


def test_the_numbers_of_partitions_are_the_files_unless_they_are_set():
    assert expected_topics(1, {}) == load_topics("local", replicas=1)
    assert expected_topics(3, {}) == load_topics("cluster", replicas=3)
    named = {topic.name: topic.partitions for topic in expected_topics(1, {"LOOMLOG_PARTITIONS": "7"})}
    assert {named[name] for name in RUN_TOPICS} == {7}
    assert named["loom.dead-letter"] == 1
    assert named["loom.insights.runs"] == 4, "insights counts on it"


async def test_a_broker_that_is_not_there_is_said_as_such():
    with pytest.raises(Unreachable, match=r"Is the broker up"):
        await apply_topics(f"127.0.0.1:{pick_port()}", replicas=1, environ={})


def test_another_process_of_ours_runs_this_code():
    assert python_path({}) == str(PROGRAM_ROOT)
    assert python_path({"PYTHONPATH": "/a:/b"}) == f"{PROGRAM_ROOT}:/a:/b"


async def test_only_those_who_see_content_get_the_key_that_opens_it(tmp_path):
    specs = await services(
        planned(tmp_path, LOOMLOG_ENCRYPTION_KEY="secret", LOOMLOG_AUDIT_KEY="other", LOOMLOG_SECRET_KEY="c")
    )
    options = {
        child.name: child.environment.get("LOOMLOG_ENCRYPTION_KEY") for child in (*specs.required, *specs.secondary)
    }
    assert {name for name, key in options.items() if key == "secret"} == {"runtime", "api", "projector"}
    assert {name for name, key in options.items() if key is None} == {"insights", "auditor"}
    sealing = {child.name for child in (*specs.required, *specs.secondary) if "LOOMLOG_SECRET_KEY" in child.environment}
    assert sealing == {"runtime", "api", "projector"}, "the projector seals the rows of entities"
