"""The process that owns partitions: it folds, decides, calls models and tools, and appends."""
