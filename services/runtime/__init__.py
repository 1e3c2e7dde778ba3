"""The process that owns partitions: it folds events, decides commands, calls models and tools, and appends."""
