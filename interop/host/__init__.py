"""External code as ops: functions and Jacobians, linear functions, caches, numeric derivatives.

Each makes an `Op` of `interop.op` by its public ways, and knows no framework.  Users have all of
it from `twingrad.interop`; ops may use `host.cache` too.
"""
