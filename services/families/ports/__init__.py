"""What shells need of families, and families of shells: protocols and values, named after what is needed.

A family provides what it has under the type of the port (FamilyContext.provide_as), and so does a process what it has;
neither names the other.

Before: services/families/opening.py. After: the modules that ask for them.
"""
