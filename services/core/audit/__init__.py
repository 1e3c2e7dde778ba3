"""Is the log what was written? The rules of signing and of verifying; see verify.py."""
