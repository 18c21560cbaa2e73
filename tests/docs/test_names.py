"""What the documents name is there: tests, files, options."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "ops" / "README.md"]


def functions_of(file):
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_test_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "testing.md").read_text())
    assert len(named) > 80
    known = {file: functions_of(file) for file, _ in named}
    assert [f"{file}::{name}" for file, name in named if name not in known[file]] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_named_exists(document):
    text = document.read_text()
    named = set(re.findall(r"[`(]((?:docs|ops|tests|tfadaptcp|examples|benchmarks|tools)/[\w./]+?\.(?:py|md|h|cc))[`:)]", text))
    links = {target.split("#")[0] for target in re.findall(r"\]\(([\w./#-]+)\)", text)}
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [link for link in links if link and not (document.parent / link).exists()]
    assert missing == []


def test_every_module_has_its_place_in_the_architecture():
    text = (ROOT / "docs" / "architecture.md").read_text()
    modules = {path.name for path in (ROOT / "tfadaptcp").glob("*.py") if not path.name.startswith("_")}
    modules |= {path.name for folder in ("checkpoint", "embeddings") for path in (ROOT / "tfadaptcp" / folder).glob("*.py")
                if not path.name.startswith("_")}
    assert sorted(name for name in modules if f"`{name}`" not in text) == []
