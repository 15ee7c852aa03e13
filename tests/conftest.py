"""Settings that every test shares: float64 in JAX, and one thread for each test process."""

import os

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
