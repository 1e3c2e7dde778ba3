"""Tamper evidence of the log: the rules of signing and of verifying; see verify.py."""
