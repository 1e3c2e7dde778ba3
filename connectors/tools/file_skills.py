"""Skills of the configuration, inline ones and those of files, the same for every tenant.

A file has no versions: a pin holds as long as the content, further files included, has the same hash.

Before: the wiring of a process. After: the Skill tool, perhaps behind skills that were made at run time.
"""

from collections.abc import Callable, Mapping, Sequence

from loomlog.connectors.configuration.model import SkillBlock
from loomlog.connectors.protocols import SkillSummary, SkillText
from loomlog.schemas.generated.values import SkillPin


class FileSkills:
    """Protocol loomlog.connectors.protocols.SkillShelf. `content_hash` returns sha256: and hex of a named skill."""

    def __init__(self, skills: Mapping[str, SkillBlock], content_hash: Callable[[str, SkillBlock], str]) -> None:
        self._texts = {
            name: SkillText(
                name=name,
                description=skill.description,
                body=skill.body,
                tools=skill.tools,
                files=skill.files,
                content_sha256=content_hash(name, skill),
            )
            for name, skill in skills.items()
        }
        self._summaries = [
            SkillSummary(name=name, description=text.description) for name, text in sorted(self._texts.items())
        ]

    async def find(self, tenant: str, name: str) -> SkillText | None:
        return self._texts.get(name)

    async def version(self, tenant: str, pin: SkillPin) -> SkillText | None:
        text = self._texts.get(pin.name)
        same = text is not None and not pin.def_id and text.content_sha256 == pin.content_sha256
        return text if same else None

    async def names(self, tenant: str) -> Sequence[SkillSummary]:
        return self._summaries
