from pathlib import Path

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.file_tool import Arguments, FileTool
from loomlog.connectors.tools.thread_pool import CancellationToken, ThreadPool
from loomlog.connectors.tools.volumes import Volume
from tests.connectors.tools.given import binding, context


async def test_a_failing_disk_is_an_error_result_without_a_path(tmp_path: Path) -> None:
    def work(arguments: Arguments, volume: Volume, stop: CancellationToken) -> str:
        raise OSError(5, "Input/output error", str(tmp_path))

    tool = FileTool(
        name="Broken",
        description="d",
        usage_hint="",
        properties={},
        required=(),
        effect=EffectClass.READ,
        operation=work,
        threads=ThreadPool(),
    )
    result = await tool.call({}, context(volumes=(binding(tmp_path),)))
    assert result.is_error
    assert result.text == "Broken failed: Input/output error."
