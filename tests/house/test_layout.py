"""The shape of the package: optional frameworks, one file per op, and what a wheel installs.

The rules that import-linter checks (see pyproject.toml) are not repeated here.
"""

import ast
import importlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.op_table import SHIPPED
from twingrad.interop import Op

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("interop", "ops", "tests", "experiments")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SIDES = {"numpy", "torch", "jax"}
OP_NAMES = sorted(
    path.stem
    for path in (ROOT / "ops").glob("*.py")
    if not path.stem.startswith("_") and path.stem not in SIDES
)


def run_python(code: str, cwd: Path | None = None) -> str:
    """Run `code` in a fresh interpreter; its standard output."""
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_modules(path: Path) -> set[str]:
    """Every dotted name that `path` imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def named_for(framework: str, path: Path) -> bool:
    """Whether the file, or a folder of ours that holds it, has the framework in its name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return any(framework in part.split("_") for part in parts)


@pytest.mark.parametrize("side", sorted(SIDES))
def test_one_side_imports_no_other_framework(side, tmp_path):
    pytest.importorskip(side)
    others = {"torch", "jax", "jaxlib"} - {side, side + "lib"}
    code = (
        f"import sys, twingrad.ops.{side}\n"
        f"print(sorted({others!r} & set(sys.modules)), callable(twingrad.ops.{side}.{OP_NAMES[0]}))"
    )
    assert run_python(code, tmp_path).strip() == "[] True"


@pytest.mark.parametrize("package", ["twingrad.ops", "twingrad.interop"])
def test_definitions_import_no_framework(package, tmp_path):
    code = f"import sys, {package}\nprint(sorted({{'torch', 'jax', 'jaxlib'}} & set(sys.modules)))"
    assert run_python(code, tmp_path).strip() == "[]"


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("folder", ["interop", "ops"])
def test_frameworks_are_imported_only_in_files_named_for_them(folder, framework):
    guilty = [
        f"{relative(path)} imports {name}"
        for path in (ROOT / folder).rglob("*.py")
        if not named_for(framework, path)
        for name in sorted(imported_modules(path))
        if any(part.split("_")[0] == framework for part in name.split("."))
    ]
    assert not guilty


def test_no_folder_of_interop_is_crowded():
    folders = {path.parent for path in (ROOT / "interop").rglob("*.py")}
    sizes = {relative(folder): len(list(folder.glob("*.py"))) for folder in folders}
    assert {name: size for name, size in sizes.items() if size > 12} == {}
    assert [name for name in sizes if not (ROOT / name / "__init__.py").exists()] == []


def test_every_file_is_short_and_says_what_it_is_for():
    lengths = {relative(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length >= 300} == {}
    bare = [relative(path) for path in FILES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert bare == []


def test_there_are_op_files():
    assert OP_NAMES


@pytest.mark.parametrize("name", OP_NAMES)
def test_op_file_defines_exports_and_tables_its_op(name):
    op = getattr(importlib.import_module("twingrad.ops"), name, None)
    assert isinstance(op, Op), f"ops/{name}.py: `{name}` is not an Op exported by ops/__init__.py"
    assert op.name == name
    assert any(row.op is op for row in SHIPPED), f"tests/op_table.py has no row for {name}"


def test_the_wheel_installs_only_twingrad(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    source = tmp_path / "source"
    junk = shutil.ignore_patterns("__pycache__")
    for folder in ("interop", "ops"):
        shutil.copytree(ROOT / folder, source / folder, ignore=junk)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    run_python(f"from setuptools import build_meta as b; b.build_wheel({str(tmp_path)!r})", source)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {name for name in names if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in files} == {"twingrad"}
    expected = {
        f"twingrad/{relative(path)}"
        for folder in ("interop", "ops")
        for path in [*(ROOT / folder).rglob("*.py"), ROOT / folder / "py.typed"]
    }
    assert files == expected
