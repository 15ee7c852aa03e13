"""The examples in README and docs run and print what they show, to a user: without our settings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
RUN = """
import doctest, sys
result = doctest.testfile(sys.argv[1], module_relative=False, optionflags=doctest.ELLIPSIS)
print(result.attempted)
sys.exit(result.failed)
"""
SETTINGS = ("JAX_", "XLA_", "OMP_", "TORCH")  # what the suite sets, float64 in JAX among them


@pytest.mark.parametrize("page", PAGES)
def test_the_page_prints_what_it_shows(page, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(SETTINGS)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(ROOT / page)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 5
