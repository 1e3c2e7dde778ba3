"""Spending limits: the rules of the budget family. One aggregate holds all accounts."""
