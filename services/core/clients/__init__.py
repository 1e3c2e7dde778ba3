"""Client tools, which clients execute: the connection protocol, and the table of offered tools.
Values in, values out.
"""
