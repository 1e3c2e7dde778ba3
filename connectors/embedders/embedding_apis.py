"""Requests and answers of the embedding APIs, as values.

An answer may be anything: `vectors` returns what stands where the vectors should be, and http_embedder.py checks it.

Before: http_embedder.py, catalog.py. After: connectors/models/untrusted_json.py; it is pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from loomlog.connectors.models import gemini, ollama
from loomlog.connectors.models.gemini_request import bare_name
from loomlog.connectors.models.openai_request import OPENAI as OPENAI_CHAT
from loomlog.connectors.models.provider_client import bearer_headers
from loomlog.connectors.models.untrusted_json import count, fields, items

OLLAMA_TEXTS_MAX = 2_048
"""Texts of a request; Ollama has no limit of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingApi:
    """One API.

    `body(model, texts, dimensions)` returns the request; `dimensions` 0 leaves the number to the model.
    `vectors(reply)` returns the unchecked vectors in the order of the texts.
    """

    base_url: str
    key_env: str
    """Variable of the vendor's key."""
    texts_max: int
    """Texts of one request."""
    dimensions: Mapping[str, int]
    """Dimensions of the known models; the first model is the default."""
    headers: Callable[[str], Mapping[str, str]]
    path: Callable[[str], str]
    body: Callable[[str, Sequence[str], int], dict[str, object]]
    vectors: Callable[[object], list[Any]]


def _openai_body(model: str, texts: Sequence[str], dimensions: int) -> dict[str, object]:
    return {"model": model, "input": list(texts)} | ({"dimensions": dimensions} if dimensions else {})


def _voyage_body(model: str, texts: Sequence[str], dimensions: int) -> dict[str, object]:
    return {"model": model, "input": list(texts)} | ({"output_dimension": dimensions} if dimensions else {})


def _openai_vectors(reply: object) -> list[Any]:
    """Return the vectors by their indexes, or as they stand where some server counts in another way."""
    entries = [fields(entry) for entry in items(fields(reply).get("data"))]
    indexes = [count(entry.get("index")) for entry in entries]
    if sorted(indexes) == list(range(len(entries))):
        entries.sort(key=lambda entry: count(entry.get("index")))
    return [entry.get("embedding") for entry in entries]


def _gemini_path(model: str) -> str:
    return f"/models/{quote(bare_name(model), safe='')}:batchEmbedContents"


def _gemini_body(model: str, texts: Sequence[str], dimensions: int) -> dict[str, object]:
    common: dict[str, object] = {"model": f"models/{bare_name(model)}"}
    if dimensions:
        common["outputDimensionality"] = dimensions
    return {"requests": [{**common, "content": {"parts": [{"text": text}]}} for text in texts]}


def _gemini_vectors(reply: object) -> list[Any]:
    return [fields(entry).get("values") for entry in items(fields(reply).get("embeddings"))]


def _ollama_vectors(reply: object) -> list[Any]:
    return items(fields(reply).get("embeddings"))


OPENAI_EMBEDDINGS = EmbeddingApi(
    base_url=OPENAI_CHAT.base_url,
    key_env="OPENAI_API_KEY",
    texts_max=2_048,
    dimensions={"text-embedding-3-small": 1_536, "text-embedding-3-large": 3_072, "text-embedding-ada-002": 1_536},
    headers=bearer_headers,
    path=lambda model: "/embeddings",
    body=_openai_body,
    vectors=_openai_vectors,
)
VOYAGE_EMBEDDINGS = EmbeddingApi(
    base_url="https://api.voyageai.com/v1",
    key_env="VOYAGE_API_KEY",
    texts_max=1_000,
    dimensions={
        "voyage-3.5": 1_024,
        "voyage-3.5-lite": 1_024,
        "voyage-3-large": 1_024,
        "voyage-3": 1_024,
        "voyage-3-lite": 512,
        "voyage-code-3": 1_024,
        "voyage-finance-2": 1_024,
        "voyage-law-2": 1_024,
        "voyage-multilingual-2": 1_024,
        "voyage-code-2": 1_536,
    },
    headers=bearer_headers,
    path=lambda model: "/embeddings",
    body=_voyage_body,
    vectors=_openai_vectors,
)
GEMINI_EMBEDDINGS = EmbeddingApi(
    base_url=gemini.BASE_URL,
    key_env="GEMINI_API_KEY",
    texts_max=100,
    dimensions={"gemini-embedding-001": 3_072, "text-embedding-004": 768},
    headers=gemini.key_headers,
    path=_gemini_path,
    body=_gemini_body,
    vectors=_gemini_vectors,
)
OLLAMA_EMBEDDINGS = EmbeddingApi(
    base_url=ollama.BASE_URL,
    key_env="OLLAMA_API_KEY",
    texts_max=OLLAMA_TEXTS_MAX,
    dimensions={},
    headers=bearer_headers,
    path=lambda model: "/api/embed",
    body=_openai_body,
    vectors=_ollama_vectors,
)
