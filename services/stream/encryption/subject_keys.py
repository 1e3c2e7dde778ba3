"""The data keys of a process: reads loom.subject.keys completely, then follows it; creates, rewraps and erases keys.

Every process that sees user content has one: runtimes, and processes with the application layer. A key is used only
after it was read back from the log, so that no content is encrypted with a key that is lost. An erasure is appended in
the same batch as empty records of the keys, so that compaction deletes them; the erasure has a key of its own and
stays. Every process drops the key when it reads that, and shows its content as erased.

Before: connectors/crypto/content_encryption.py has the ciphers, services/core/subjects.py the rule. After:
services/runtime and services/application encrypt input and decrypt output; everything between has tokens only.
"""

import asyncio
import contextlib
import logging
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType

from loomlog.connectors.crypto.content_encryption import (
    TOKEN,
    ContentDecryptionError,
    DataKey,
    KeyEncryptionKeys,
    RandomBytes,
    generate_data_key,
    has_tokens,
    is_token,
    key_ids_in,
)
from loomlog.connectors.errors import Permanent, Transient, UnknownOutcome
from loomlog.connectors.protocols import LogAppender, LogRanges, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import SubjectErased, SubjectKeyMade
from loomlog.services.core.refusals import StartProblem
from loomlog.services.core.subjects import Erasure, SubjectTable
from loomlog.services.stream.global_tables.global_table import PARTITION, GlobalTable, RecordOrigin, TableFold

log = logging.getLogger(__name__)

OPEN_KEYS_MAX = 10_000
"""Unwrapped keys kept in memory, latest used; unwrapping one again costs 10 us."""
SHORT_BYTES = 2_600
"""Bytes of a text of which the core keeps 4,000 characters (limits.ERROR_TEXT_MAX): its token has to fit, with text
around it.
"""
ERASED = "[erased]"
"""Shown instead of content whose key is erased."""
UNREADABLE = "[unreadable: its key is not here]"
"""Shown instead of content whose key this installation never had, or that was altered."""


class NewerInstallationKey(Transient):
    """A data key is wrapped by an installation key that this process does not have. The text says what to do."""


ContentEncryptor = Callable[[str, bool], str]
"""(text, is_untrusted) to the text for the log."""


@dataclass(frozen=True, slots=True)
class ContentCipher:
    """Encrypts texts of one subject. Not to be kept: the key may be erased at any moment."""

    key: DataKey
    random: RandomBytes

    def text(self, text: str) -> str:
        """Empty stays empty: the absence of a text is not a secret."""
        return self.key.encrypt(text, self.random) if text else ""

    def untrusted_text(self, text: str) -> str:
        """Encrypt text that a model is shown fenced."""
        return self.key.encrypt(text, self.random, untrusted=True) if text else ""

    def short_text(self, text: str) -> str:
        """Encrypt reasons and errors, of which the core keeps only the beginning."""
        data = text.encode()
        return self.text(text if len(data) <= SHORT_BYTES else data[:SHORT_BYTES].decode(errors="ignore") + " [cut]")


async def open_subject_keys(
    wrapping: KeyEncryptionKeys | None,
    codec: Codec,
    appender: LogAppender,
    ranges: LogRanges,
    *,
    topic: str,
    clock_ms: Callable[[], int],
) -> "SubjectKeys | None":
    """Return the keys as far as they are in the log; None if content is not encrypted here.

    Raises Transient, and StartProblem if the installation key is wrong, or missing although there are data
    keys.
    """
    if wrapping is None:
        if await ranges.end_offset(topic, PARTITION) > 0:
            raise StartProblem(
                f"LOOMLOG_ENCRYPTION_KEY is not set, and {topic} has data keys: content of this log is encrypted, and "
                "it could be neither read nor extended"
            )
        return None
    keys = SubjectKeys(codec, appender, ranges, wrapping, topic=topic, clock_ms=clock_ms)
    await keys.catch_up()
    keys.check()
    return keys


class SubjectKeys:
    """See the module."""

    def __init__(
        self,
        codec: Codec,
        appender: LogAppender,
        ranges: LogRanges,
        wrapping: KeyEncryptionKeys,
        *,
        topic: str,
        clock_ms: Callable[[], int],
    ) -> None:
        self.topic = topic
        self.global_table = GlobalTable(
            codec,
            topic,
            TableFold[SubjectTable, SubjectKeyMade | SubjectErased | None](
                initial=SubjectTable(), apply=self._apply, accepts=(SubjectKeyMade, SubjectErased, NoneType)
            ),
        )
        self._codec = codec
        self._appender = appender
        self._ranges = ranges
        self._wrapping = wrapping
        self._clock_ms = clock_ms
        self._open: OrderedDict[str, DataKey] = OrderedDict()
        self._making = asyncio.Lock()
        self.on_erased: list[Callable[[str, str], None]] = []
        """Called with tenant and subject of each erasure that is read: what is kept in plaintext goes too."""

    # --- reading the topic -------------------------------------------------------------------------------------------

    @property
    def table(self) -> SubjectTable:
        """The keys and erasures, as far as this process has read."""
        return self.global_table.table

    async def catch_up(self) -> None:
        """Read everything there is now. Raises Transient."""
        await self.global_table.catch_up(self._ranges)

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        """Read the topic to its end if the record at the offset has not been read, for at most `timeout_s`; returns the
        number of records that are missing, 0 when it has been. `partition` is always PARTITION. Raises Transient.
        """
        if self.global_table.next_offset <= offset and timeout_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self.catch_up()
        return max(0, offset + 1 - self.global_table.next_offset)

    def _apply(
        self, table: SubjectTable, change: SubjectKeyMade | SubjectErased | None, origin: RecordOrigin
    ) -> SubjectTable:
        if change is None:
            table.forget_reappeared(origin.key)
            return table
        for key_id in table.apply(change, origin.offset):
            self._open.pop(key_id, None)
        if isinstance(change, SubjectErased):
            for call in self.on_erased:
                call(change.tenant, change.subject)
        if isinstance(change, SubjectKeyMade) and change.key_id in table.reappeared_keys:
            log.warning("%s offset %d: the erased key %s came back", self.topic, origin.offset, change.key_id)
        return table

    def check(self) -> None:
        """Raises StartProblem if keys in the log are not wrapped by this process's installation key."""
        strange = {key.wrapped_by for key in self.table.all_keys()} - set(self._wrapping.keys)
        if strange:
            raise StartProblem(
                f"{self.topic} has data keys wrapped by {', '.join(sorted(strange))}, and LOOMLOG_ENCRYPTION_KEY is "
                f"{self._wrapping.current}: set the right one, or give the earlier one as "
                "LOOMLOG_ENCRYPTION_KEY_PREVIOUS"
            )

    # --- encryption --------------------------------------------------------------------------------------------------

    def cached(self, tenant: str, subject: str) -> ContentCipher | None:
        """As `cipher_for`, without waiting; None if there is no key yet, or none this process can unwrap."""
        made = self.table.current_key(tenant, subject)
        return ContentCipher(self._data_key(made), os.urandom) if made is not None and self._is_own_key(made) else None

    async def cipher_for(self, tenant: str, subject: str) -> ContentCipher:
        """Return the cipher of that subject; its key is created if it has none.

        Raises Transient, also while another process uses a newer installation key than this one was started with.
        """
        sealer = self.cached(tenant, subject)
        if sealer is not None:
            return sealer
        async with self._making:
            await self.catch_up()
            if self.table.current_key(tenant, subject) is None:
                await self._make_key(tenant, subject)
            sealer = self.cached(tenant, subject)
        if sealer is None and (strange := self.table.current_key(tenant, subject)) is not None:
            raise self._is_newer_key(strange)
        if sealer is None:
            raise Transient(f"the key of {subject or tenant} could not be written to {self.topic}", kind="unavailable")
        return sealer

    def _is_own_key(self, key: SubjectKeyMade) -> bool:
        return key.key_id in self._open or key.wrapped_by in self._wrapping.keys

    def _is_newer_key(self, key: SubjectKeyMade) -> NewerInstallationKey:
        return NewerInstallationKey(
            f"the key {key.key_id} is wrapped by {key.wrapped_by}, which this process was not started with: restart it "
            "with the new LOOMLOG_ENCRYPTION_KEY",
            kind="unavailable",
        )

    def decrypt_if_encrypted(self, tenant: str, subject: str, sealer: ContentCipher) -> ContentEncryptor:
        """Return an encryptor for texts that are not encrypted for the subject already."""

        def seal(text: str, untrusted: bool) -> str:
            if self._is_encrypted(text, tenant, subject, untrusted=untrusted):
                return text
            return sealer.untrusted_text(text) if untrusted else sealer.text(text)

        return seal

    async def is_encrypted(
        self, text: str, tenant: str, subject: str | None = None, *, untrusted: bool = False
    ) -> bool:
        """Whether a text is one token of the tenant, of the subject if one is named, and of that form. Raises
        Transient.
        """
        if not is_token(text, untrusted=untrusted):
            return False
        await self.wait_for_keys(text)
        (key_id,) = key_ids_in(text)
        key = self.table.key(key_id)
        if key is None:
            return self.table.is_erased(key_id, tenant)
        return key.tenant == tenant and subject in (None, key.subject)

    def _is_encrypted(self, text: str, tenant: str, subject: str, *, untrusted: bool) -> bool:
        if not is_token(text, untrusted=untrusted):
            return False
        (key_id,) = key_ids_in(text)
        key = self.table.key(key_id)
        return self.table.is_erased(key_id, tenant) if key is None else (key.tenant, key.subject) == (tenant, subject)

    async def _make_key(self, tenant: str, subject: str) -> None:
        key = generate_data_key(tenant, subject, os.urandom)
        try:
            await self._appender.append(self.topic, PARTITION, [self._record_of(key, self._clock_ms())])
        except UnknownOutcome as error:
            log.warning("the outcome of a new key is unknown, the log tells: %s", error)
        await self.catch_up()

    def _record_of(self, key: DataKey, at_ms: int) -> ProducerRecord:
        record = SubjectKeyMade(
            tenant=key.tenant,
            subject=key.subject,
            key_id=key.key_id,
            wrapped=self._wrapping.wrap(key, os.urandom),
            wrapped_by=self._wrapping.current,
            at_ms=at_ms,
        )
        return ProducerRecord(key=key.key_id.encode(), value=self._codec.encode(record))

    # --- decryption --------------------------------------------------------------------------------------------------

    def can_open(self, key_id: str) -> bool:
        """Whether this process can decrypt content of that key."""
        key = self.table.key(key_id)
        return key is not None and self._is_own_key(key)

    def is_erased(self, key_id: str) -> bool:
        """Whether the key is erased."""
        return self.table.key(key_id) is None and self.table.is_known(key_id)

    async def wait_for_keys(self, *texts: str) -> None:
        """Read the topic to its end if a text has a token of an unknown key. Raises Transient."""
        for text in texts:
            if any(not self.table.is_known(key_id) for key_id in key_ids_in(text)):
                await self.catch_up()
                return

    def decrypt(self, text: str, tenant: str) -> str:
        """Decrypt every token of that tenant in the text, for people."""
        return self._replace_tokens(text, tenant, for_model=False)

    def decrypt_for_model(self, text: str, tenant: str) -> str:
        """As `decrypt`; untrusted text is escaped for its fence.

        Raises Permanent for what is unreadable and not erased, Transient while a newer installation key is needed.
        """
        return self._replace_tokens(text, tenant, for_model=True)

    def _replace_tokens(self, text: str, tenant: str, *, for_model: bool) -> str:
        if not has_tokens(text):
            return text
        parts: list[str] = []
        end = 0
        # One pass: decrypted text is not searched for tokens.
        for match in TOKEN.finditer(text):
            shown = self._placeholder(match[0], match[2], tenant)
            if for_model:
                if shown == UNREADABLE:
                    key = self.table.key(match[2])
                    if key is not None and not self._is_own_key(key):
                        raise self._is_newer_key(key)
                    raise Permanent(f"content sealed by the key {match[2]} cannot be read here", kind="invalid")
                shown = shown.replace("<", "&lt;") if match[1] else shown
            parts += (text[end : match.start()], shown)
            end = match.end()
        return "".join((*parts, text[end:]))

    def _placeholder(self, token: str, key_id: str, tenant: str) -> str:
        if self.table.is_erased(key_id, tenant):
            return ERASED
        key = self.table.key(key_id)
        if key is None or key.tenant != tenant:
            return UNREADABLE
        try:
            return self._data_key(key).decrypt(token)
        except ContentDecryptionError:
            return UNREADABLE

    def _data_key(self, key: SubjectKeyMade) -> DataKey:
        data_key = self._open.get(key.key_id)
        if data_key is None:
            data_key = self._wrapping.unwrap(
                key.wrapped, wrapped_by=key.wrapped_by, key_id=key.key_id, tenant=key.tenant, subject=key.subject
            )
            self._open[key.key_id] = data_key
            if len(self._open) > OPEN_KEYS_MAX:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(key.key_id)
        return data_key

    # --- end of a key ------------------------------------------------------------------------------------------------

    async def erase(self, tenant: str, subject: str, *, erasure_id: str, reason: str, by: str) -> Erasure:
        """Destroy every key of the subject; once it returns this process has none of them. Raises UnknownOutcome."""
        await self.catch_up()
        earlier = {key_id for erasure in self.table.erasures_of(tenant, subject) for key_id in erasure.record.key_ids}
        key_ids = tuple(key.key_id for key in self.table.keys_of(tenant, subject))
        record = SubjectErased(
            erasure_id=erasure_id,
            tenant=tenant,
            subject=subject,
            key_ids=key_ids,
            reason=reason,
            by=by,
            at_ms=self._clock_ms(),
        )
        emptied = [*key_ids, *sorted(earlier & self.table.reappeared_keys)]
        offset = await self._appender.append(
            self.topic,
            PARTITION,
            [
                ProducerRecord(key=erasure_id.encode(), value=self._codec.encode(record)),
                *(ProducerRecord(key=key_id.encode(), value=None) for key_id in emptied),
            ],
        )
        await self.catch_up()
        return Erasure(record=record, offset=offset)

    async def rewrap(self) -> list[int]:
        """Wrap every data key of an earlier installation key with the current one; returns the offsets of the records.

        Raises Transient, also if one of them is wrapped by a newer installation key than this process has; then none is
        wrapped.
        """
        await self.catch_up()
        old = [key for key in self.table.all_keys() if key.wrapped_by != self._wrapping.current]
        if (newer := next((key for key in old if key.wrapped_by not in self._wrapping.keys), None)) is not None:
            raise self._is_newer_key(newer)
        offsets = [
            await self._appender.append(self.topic, PARTITION, [self._record_of(self._data_key(key), key.at_ms)])
            for key in old
        ]
        await self.catch_up()
        return offsets
