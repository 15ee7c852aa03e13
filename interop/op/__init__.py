"""What an op is: definition, signature, static parameters, promises, and how its rules are run.

Nothing here knows a framework, a binder or external code.  Users have `define`, `Op`,
`Signature`, `Host` and `unknown` from `twingrad.interop`; everything else is for the binders.
"""
