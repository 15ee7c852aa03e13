"""The README's Python examples run and print what they show."""

import doctest
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_the_readme_prints_what_it_shows():
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    result = doctest.testfile(str(README), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 5
    assert result.failed == 0
