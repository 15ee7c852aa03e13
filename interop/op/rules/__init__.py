"""Rules: which of their arrays they read, and those that are made, not written.

Every rule here has the form that `Op.def_vjp` and `Op.def_jvp` take.  For `op`, `host` and the
binders; users have none of it.
"""
