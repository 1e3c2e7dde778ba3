"""Embedders: texts to vectors, one embedder for an installation.

    embedder        the protocol `Embedder`, and the limit of dimensions
    errors          what building and calling one raises
    options         the configuration as values: `EmbedderOptions`
    catalog         an embedder from it: `build_embedder`
    health          outcomes of the calls, for administrators: `HealthTrackingEmbedder`
    http_embedder   batches, retries and checks of every provider
    embedding_apis  requests and answers of OpenAI, Gemini, Voyage and Ollama
    stub            hashed words, without a network

The connections are those of model providers (connectors/models/provider_client.py). A call retries by itself, unlike a
model's: an embedding is no step of a run, and the log has nothing to say about its attempts.

Before: the memory index, search, SQL memory, the embeddings route. After: connectors/models, httpx.
"""
