"""The app around the commands: start, errors, exit codes, plugins, completion."""

import subprocess
import sys
from typing import get_type_hints

import pytest
import typer
from typer.models import OptionInfo
from typer.testing import CliRunner

import muddle
from muddle import cli
from muddle.cli import app as app_module
from muddle.errors import DataFormatError


@pytest.fixture
def run(monkeypatch):
    """Runs `muddle` without the commands of other packages, and with a command that fails."""
    monkeypatch.setattr(app_module, "entry_points", lambda group: ())
    app = app_module.make_app()

    @app.command("break")
    def fail(text: str) -> None:
        raise DataFormatError(text)

    return lambda *arguments: CliRunner().invoke(app, arguments)


def call(*arguments, code=None, **options):
    command = ["-c", code] if code else ["-m", "muddle"]
    return subprocess.run(
        [sys.executable, *command, *arguments], capture_output=True, text=True, **options
    )


def test_version_in_a_process_of_its_own():
    assert call("--version").stdout == f"muddle {muddle.__version__}\n"


def test_an_error_is_one_line_and_code_1_or_raised_for_debugging(run):
    result = run("break", "first\nsecond")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: first second\n"
    assert isinstance(run("--debug", "break", "x").exception, DataFormatError)


@pytest.mark.parametrize(
    "arguments",
    [["fitt"], ["info", "m", "--jsn"], ["info"], ["predict", "m", "t", "--chunk-rows=0"]],
)
def test_wrong_usage_ends_with_2(run, arguments):
    assert run(*arguments).exit_code == 2


def test_commands_of_the_benchmark_say_how_to_install_it(run):
    result = run("datasets", "show", "servo", "--json")
    assert result.exit_code == 1
    assert "needs the package muddle-bench: pip install muddle-bench." in result.stderr
    assert "datasets" not in run("--help").stdout


def test_report_of_a_model_needs_no_other_package(shell, run):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    page = shell.folder / "page.html"
    result = run("report", str(shell.folder / "price.muddle"), "-o", str(page))
    assert result.stdout.startswith(f"Wrote {page}: the model alone. `muddle fit --report` adds")
    assert "<title>price of homes.csv</title>" in page.read_text(encoding="utf-8")
    for source in ("homes.csv", "none.muddle"):
        result = run("report", str(shell.folder / source), "--recipe", "clean")
        assert "`muddle report` needs the package muddle-bench" in result.stderr


def test_commands_of_other_packages_join(monkeypatch):
    class Plugin:
        def load(self):
            return lambda app: app.command("methods")(lambda: typer.echo("joined"))

    monkeypatch.setattr(app_module, "entry_points", lambda group: [Plugin()])
    assert CliRunner().invoke(app_module.make_app(), ["methods"]).stdout == "joined\n"


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_its_packages_the_command_says_what_to_install(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == (
        f"Error: muddle needs the package {package}: pip install 'muddle[cli]'."
    )


def list_commands(app):
    yield from app.registered_commands
    for group in app.registered_groups:
        yield from list_commands(group.typer_instance)


def test_no_option_is_named_by_its_metavar():
    """typer 0.27 makes `--SPLITS` of an unnamed option `splits` with the metavar SPLITS."""
    options = [
        (name, extra)
        for command in list_commands(app_module.make_app())
        for name, hint in get_type_hints(command.callback, include_extras=True).items()
        for extra in getattr(hint, "__metadata__", ())
        if isinstance(extra, OptionInfo)
    ]
    assert len(options) > 20
    # In an Annotated hint the first name stands where otherwise the default does.
    assert not [
        name
        for name, option in options
        if (option.metavar or "").lower() == name and option.default is ...
    ]


def list_paths(app, *above):
    yield above
    for command in app.registered_commands:
        yield (*above, command.name or command.callback.__name__.replace("_", "-"))
    for group in app.registered_groups:
        yield from list_paths(group.typer_instance, *above, group.name)


def test_help_shows_no_value_beside_a_flag():
    app = app_module.make_app()
    paths = list(list_paths(app))
    assert ("fit",) in paths
    for path in paths:
        result = CliRunner().invoke(app, [*path, "--help"])
        assert "--help" in result.stdout
        assert "bool" not in result.stdout.lower(), path


def test_help_waits_for_nothing():
    code = (
        "import sys; from muddle.cli.app import make_app; make_app()\n"
        "slow = {'torch', 'pandas', 'numpy', 'sklearn', 'pyarrow', 'matplotlib'}\n"
        "sys.exit(repr(slow & set(sys.modules)) if slow & set(sys.modules) else 0)\n"
    )
    ended = call(code=code)
    assert ended.returncode == 0, ended.stderr


def test_shell_completion_completes_options(tmp_path):
    environment = {
        "COMP_WORDS": "muddle predict --int",
        "COMP_CWORD": "2",
        "_MUDDLE_COMPLETE": "complete_bash",
        "HOME": str(tmp_path),
        "PYTHONPATH": ":".join(sys.path),
    }
    assert call(env=environment).stdout.split() == ["--interval"]
