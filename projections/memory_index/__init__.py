"""Index of the entries of memory: which ones have the words of a query, and which ones mean the same.

    tokens.py      a text becomes lexemes, in the same way for entries and queries; lexemes become numbers
    texts.py       the text of an entry
    tables.py      schemas and tables
    entries.py     events become rows, in the transaction of the cursors
    vectors.py     sets of embeddings, their cache, the queue of entries that wait for a vector, HNSW indexes
    embedding.py   entries get their vectors
    reads.py       what a search asks
    scoring.py     which terms are looked up, and what each weighs

Before: services/projector/memory_indexer.py writes. After: services/families/memory/search.py reads.
"""
