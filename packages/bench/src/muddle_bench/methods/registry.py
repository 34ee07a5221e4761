"""The registry: every method of the benchmark, look-up with suggestions, plugins."""

import importlib
import importlib.util
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from muddle.errors import MissingDataError
from muddle_bench.errors import UnknownMethodError
from muddle_bench.methods.method import Method, find_weights
from muddle_bench.methods.ours import OUR_METHODS
from muddle_bench.methods.peers import PEERS
from muddle_runtime.parameters import suggest

if TYPE_CHECKING:
    from muddle_runtime.fitted import Task


def by_name(methods: Iterable[Method]) -> dict[str, Method]:
    """Methods by their names; each name must occur once, and each fit have one `make`."""
    registry: dict[str, Method] = {}
    fits: dict[str, Method] = {}
    for method in methods:
        if method.name in registry:
            raise ValueError(
                f"two methods are named {method.name!r}. Names stand in tables and file names: "
                "give one of the two another."
            )
        first = fits.setdefault(method.fit_name, method)
        if (first.make, first.input) != (method.make, method.input):
            raise ValueError(
                f"methods {first.name!r} and {method.name!r} share fit_name={method.fit_name!r}, "
                "so they must have the same make and input. Share them, or set another fit_name."
            )
        registry[method.name] = method
    return registry


METHODS = by_name([*OUR_METHODS, *PEERS])


def find_method(name: str, methods: Mapping[str, Method] = METHODS) -> Method:
    """The method of that name."""
    if name not in methods:
        raise _explain_unknown("method", name, methods, len(methods))
    return methods[name]


def _explain_unknown(
    kind: str, name: str, known: Iterable[str], n_methods: int
) -> UnknownMethodError:
    return UnknownMethodError(
        f"no {kind} named {name!r}.{suggest(name, known)} `muddle methods` lists all {n_methods}."
    )


def select_methods(
    wanted: Iterable[str] | str | None,
    task: "Task | None" = None,
    methods: Mapping[str, Method] = METHODS,
) -> list[Method]:
    """Methods by name or family without repetitions, in the order of the registry; None: all.

    With a task, methods that cannot do it are left out.
    """
    names = {wanted} if isinstance(wanted, str) else set(methods if wanted is None else wanted)
    families = {method.family for method in methods.values()}
    unknown = sorted(names - set(methods) - families)
    if unknown:
        known = [*methods, *sorted(families)]
        raise _explain_unknown("method or family", unknown[0], known, len(methods))
    chosen = [method for method in methods.values() if {method.name, method.family} & names]
    return [method for method in chosen if task is None or task in method.tasks]


def missing_package(method: Method, task: "Task | None" = None) -> str | None:
    """The package or file of weights that the method lacks here and the remedy, or None; imports
    nothing. Without a task, weights for one of its tasks are enough."""
    for package in method.packages:
        if not _is_installed(package):
            needed = package.replace("R:", "R with the package ")
            return f"needs {needed}: {method.install}" if method.install else f"needs {needed}"
    if not method.weights:
        return None
    reason = None
    for one in method.tasks if task is None else (task,):
        try:
            find_weights(method.weights, one)
        except MissingDataError as error:
            reason = reason or str(error)
        else:
            return None
    return reason


@cache
def _is_installed(package: str) -> bool:
    kind, _, name = package.rpartition(":")
    if kind != "R":
        try:
            return importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:  # of a package within another that is not there
            return False
    if shutil.which("Rscript") is None:
        return False
    question = f"quit(status = !nzchar(system.file(package = '{name}')))"
    return subprocess.run(["Rscript", "-e", question], capture_output=True).returncode == 0


_loading = threading.Lock()


@cache
def known_methods(plugins: tuple[str, ...] = ()) -> Mapping[str, Method]:
    """The registry together with the methods of plugins."""
    # Threads of a Dask worker call this at the same time; a plugin must be loaded whole, and once.
    with _loading:
        added = [method for source in plugins for method in load_plugin(source)]
    return by_name([*METHODS.values(), *added]) if added else METHODS


def name_plugins(sources: Iterable[str | Path]) -> tuple[str, ...]:
    """Plugins as a worker finds them: files by their absolute path, modules by their name."""
    paths = [Path(source).expanduser() for source in sources]
    return tuple(str(path.resolve()) if path.is_file() else str(path) for path in paths)


def load_plugin(source: str | Path) -> list[Method]:
    """The methods of a file or module that defines METHODS, a list of Method."""
    path = Path(source).expanduser()
    if path.suffix == ".py" and not path.is_file():
        raise FileNotFoundError(f"there is no file {path}. A plugin is a .py file or a module.")
    try:
        module = _import_file(path) if path.is_file() else importlib.import_module(str(source))
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"the plugin {source} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    listed: Any = getattr(module, "METHODS", None)
    methods: list[Method] = list(listed) if isinstance(listed, Iterable) else [listed]
    for method in methods:
        if not isinstance(method, Method):
            found = "no METHODS" if method is None else type(method).__name__
            raise ValueError(
                "a plugin must define METHODS, a list of muddle_bench.methods.method.Method, got "
                f"{found} in {source}."
            )
    by_name([*METHODS.values(), *methods])  # names must be new
    return methods


def _import_file(path: Path) -> ModuleType:
    # Without the folder, so that records of one file agree between machines.
    name = f"muddle_plugin_{path.stem}"
    known = sys.modules.get(name)
    if known is not None:
        if Path(str(known.__file__)) != path.resolve():
            raise ValueError(
                f"two plugins have the file name {path.name}: {known.__file__} and "
                f"{path.resolve()}. Rename one."
            )
        return known
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
