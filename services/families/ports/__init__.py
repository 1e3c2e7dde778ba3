"""What processes need of families, and families of processes, named after what is wanted and not after who gives it.

A module for each need: a protocol, or a record of functions. A family gives its implementation when it is opened
(FamilyContext.provide_as), or as a field of FamilyServices where several families each give one. What a family needs of
its process, the process provides under the port's type before families are opened.

Before: services/families/opening.py. After: services/api, services/application, services/runtime.
"""
