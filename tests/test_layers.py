"""Which layer may import which, as CONTRIBUTING states."""

import ast
from pathlib import Path

import pytest

import muddle

PACKAGE = Path(__file__).resolve().parents[1] / "packages" / "muddle" / "src" / "muddle"
COMMON = {"errors", "parameters", "shipping", "whole_file"}
ALLOWED = {
    "core": {"core"} | COMMON,
    "training": {"training", "core"} | COMMON,
    "preprocessing": {"preprocessing"} | COMMON,
    "calibration_error": COMMON,
    "palette": set(),
    "powers": set(),
    "whole_file": set(),
    "plots": {"calibration_error", "palette"} | COMMON,
    "table_files": {"table_files", "preprocessing", "whole_file"} | COMMON,
    "datasets": {"datasets", "preprocessing", "table_files"} | COMMON,
    "estimators": {
        *("estimators", "training", "core", "preprocessing", "calibration_error", "plots"),
        *COMMON,
    },
    "flagship": {
        *("flagship", "estimators", "training", "core", "preprocessing", "plots", "powers"),
        *COMMON,
    },
    "model_file": {
        *("model_file", "flagship", "estimators", "core", "preprocessing", "powers", "runtime"),
        *COMMON,
    },
    "runtime": {
        *("runtime", "model_file", "flagship", "estimators", "preprocessing", "powers"),
        *COMMON,
    },
    "onnx_export": {
        *("onnx_export", "model_file", "flagship", "estimators", "preprocessing"),
        *COMMON,
    },
    "benchmark": {
        *("benchmark", "flagship", "estimators", "datasets", "preprocessing", "ranking"),
        *("calibration_error", "table_files"),
        *COMMON,
    },
    "studies": {
        *("studies", "benchmark", "estimators", "training", "core", "preprocessing", "datasets"),
        *("palette",),
        *COMMON,
    },
    "ranking": {"ranking"} | COMMON,
    "report": {"report", "ranking", "studies", "palette"} | COMMON,
    "fit_report": {
        *("fit_report", "report", "flagship", "preprocessing", "plots", "palette"),
        *("calibration_error",),
        *COMMON,
    },
}
WITHOUT_TORCH = {
    *("preprocessing", "datasets", "ranking", "report", "calibration_error", "palette", "plots"),
    *("powers", "table_files", "whole_file", "runtime"),
    "fit_report",
}
# A layer is a folder, or a module beside the folders.
MODULES = [
    path
    for layer in ALLOWED
    for path in sorted((PACKAGE / layer).glob("*.py")) or [PACKAGE / f"{layer}.py"]
]


def imported_by(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "muddle":
            # A public name counts as the module it lives in; the version lives nowhere.
            names = {alias.name for alias in node.names} - {"__version__"}
            yield from (muddle._HOMES.get(name, f"muddle.{name}") for name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_imports_stay_within_the_layers(path):
    layer = path.stem if path.parent == PACKAGE else path.parent.name
    for name in imported_by(path):
        parts = name.split(".")
        if parts[0] == "muddle":
            assert parts[1] in ALLOWED[layer], name
        if layer in WITHOUT_TORCH:
            assert parts[0] != "torch", name


def test_every_module_is_short_enough_to_read():
    for path in MODULES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 450, path
