"""Bounds of definitions; the sizes are those of the reference (runtime 4.6, 5.7)."""

DESCRIPTION_BYTES_MAX = 8_192
INLINE_BYTES_MAX = 16_384
"""A longer content lies in the blob store, and the event and the state have its hash."""
KEPT_BYTES_MAX = 65_536
"""Content of inactive versions that a state keeps, the newest first; others are in the read model."""
VERSIONS_MAX = 2_000
"""Versions of a line: the state is some 200 bytes for each."""
LINES_PER_TENANT_MAX = 20_000
LINES_MAX = 100_000
PREVIOUS_MAX = 32
"""Earlier active versions that a line remembers: how often a rollback can follow a rollback."""
OBSERVERS_MAX = 32
"""Processes whose files a line remembers."""
OBSERVED_FOR_MS = 24 * 3_600_000
"""How long an observation counts; a process that has ended is forgotten then."""
OBSERVED_AGAIN_MS = OBSERVED_FOR_MS // 2
"""How long a repetition of an observation changes nothing."""
BATCHES_MAX = 4
"""Batches in a row that a line remembers, with the contents they replaced; processes have read older ones."""
BATCH_BYTES_MAX = 500_000
"""Longest command that applies several definitions: it is one record, and its first event repeats it."""
JUDGEMENT_BYTES_MAX = 32_768
RATIONALE_BYTES_MAX = 8_192
DIMENSIONS_MAX = 64
DIMENSION_NAME_BYTES_MAX = 128
"""It is a key of the read model, where sums are made for each name."""
JUDGEMENT_ID_BYTES_MAX = 256
"""With the name of a dimension it is the id of a row (services/core/families.py::NAME_BYTES_MAX)."""
CIPHERTEXT_GROWTH = 2
"""A text is at most this many times as long once it is encrypted."""
NAME_CHARACTERS_MAX = 128
TOOLS_CHARACTERS_MAX = 16_384
"""Names of the tools of a version, together."""
