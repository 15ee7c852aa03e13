"""The experiments: each file here asks one question; run all of them with ``make experiments``.

One alone: ``python -m experiments.NAME``.  Measuring is in `measure`, what several of them
measure in `problems`, the pictures and the report in `report`, the figures in results/.
"""

import os

# torch and JAX share the GPU, where there is one: JAX must not take most of its memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
