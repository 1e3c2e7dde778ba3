"""The handlers of the operations on the encrypted content of a subject.

Nothing is erased unless dry_run is false and confirm repeats the subject.

Before: services/application/dispatch.py. After: services/application/admin/erasure.py.
"""

from typing import Any

from loomlog.services.application.admin.erasure_json import erased_json, preview_json, report_json
from loomlog.services.application.answers.erasure import ErasureResult, KeysRewrapped, SubjectList, SubjectReport
from loomlog.services.application.operations import erasure as api
from loomlog.services.application.operations.area import Area
from loomlog.services.core.access.decide import resolve_tenant
from loomlog.services.core.operations import Answer, Call, Handlers, NoInput
from loomlog.services.core.refusals import Refused


class ErasureHandlers(Area):
    def by_operation(self) -> Handlers:
        return {
            api.REPORT: self.report,
            api.LIST_SUBJECTS: self.subjects,
            api.ERASE: self.erase,
            api.REWRAP: self.rewrap,
        }

    async def report(self, call: Call[api.ErasureSubject]) -> Answer[SubjectReport]:
        """Return what is stored of a subject."""
        asked = call.input
        report = await self._application.erasure.report(call.principal, _tenant(call), asked.subject)
        return Answer(value=report_json(report))

    async def subjects(self, call: Call[api.ErasureTenant]) -> Answer[SubjectList]:
        """Return the subjects of a tenant."""
        tenant = _tenant(call)
        subjects = await self._application.erasure.subjects(tenant)
        return Answer(value={"tenant": tenant, "subjects": subjects})

    async def erase(self, call: Call[api.ErasureErase]) -> Answer[ErasureResult]:
        """Erase the content of a subject, or return what that would do."""
        asked, erasing = call.input, self._application.erasure
        if asked.dry_run is not False:
            return Answer(value=preview_json(await erasing.preview(call.principal, _tenant(call), asked.subject)))
        if asked.confirm != asked.subject:
            raise Refused("confirm_mismatch", "confirm must repeat the subject; nothing was erased")
        erased = await erasing.erase(call.principal, _tenant(call), asked.subject, reason=asked.reason or "")
        return Answer(value=erased_json(erased, erasing.receipts), positions=erased.positions)

    async def rewrap(self, call: Call[NoInput]) -> Answer[KeysRewrapped]:
        """Encrypt the keys with the current installation key."""
        positions = await self._application.erasure.rewrap_keys()
        return Answer(value={"wrapped": len(positions)}, positions=tuple(positions[-1:]))


def _tenant(call: Call[Any]) -> str:
    """Return the tenant that is meant: an administrator belongs to none, so it names one. Raises Refused."""
    caller, named = call.principal, call.input.tenant
    return named if caller.is_admin else resolve_tenant(caller, named)
