"""The experiments: programs that measure, and two that plot and report what was measured.

Run all of them with ``make experiments``, or one with ``python -m experiments.NAME``.
"""

import os

# torch and JAX share the GPU, where there is one: JAX must not take most of its memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
