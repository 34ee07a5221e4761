"""Without the package of the partner."""

import importlib
import sys

import pytest

from muddle.errors import MissingPackageError


@pytest.mark.parametrize(
    ("module", "package", "advice"),
    [
        ("autogluon", "autogluon.core", "pip install autogluon.tabular"),
        ("mlflow", "mlflow", "pip install mlflow"),
    ],
    ids=["autogluon", "mlflow"],
)
def test_a_missing_package_is_named_with_the_way_to_install_it(
    module, package, advice, monkeypatch
):
    name = f"muddle.integrations.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    if package != module:
        monkeypatch.setitem(sys.modules, f"{package}.models", None)
    with pytest.raises(MissingPackageError, match=f"{name} needs the package .*: {advice}"):
        importlib.import_module(name)
