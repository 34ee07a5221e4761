"""All commands of `muddle`. A new one is a function in a module beside this and a line below."""

from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from muddle import __version__
from muddle.cli.models import evaluate, explain, fit, info, predict
from muddle.errors import MissingPackageError, MuddleError

OPTIONS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "markdown",
}


INTERRUPTED = 130  # what a shell expects after Ctrl-C
# Commands of other packages: each entry point is a function that adds its commands to the app.
PLUGINS = "muddle.commands"
BENCH_COMMANDS = ("datasets", "methods", "benchmark", "study", "report")


class OneLineErrors(TyperGroup):
    """Shows errors a user can act on as one line; with --debug they pass."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # e.g. `muddle datasets | head`, which typer ends quietly
            raise
        except (MuddleError, ValueError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"Error: {' '.join(str(error).splitlines())}", err=True)
            raise typer.Exit(1) from error


def make_app() -> typer.Typer:
    app = typer.Typer(cls=OneLineErrors, no_args_is_help=True, **OPTIONS)
    app.callback()(read_global_options)
    app.command("fit")(fit.fit_model)
    app.command("predict")(predict.predict_rows)
    app.command("evaluate")(evaluate.evaluate_model)
    app.command("explain")(explain.explain_model)
    app.command("info")(info.show_model)
    add_plugins(app)
    return app


def add_plugins(app: typer.Typer) -> None:
    """Commands of other packages; those of muddle-bench say how to get it if it is missing."""
    for plugin in entry_points(group=PLUGINS):
        plugin.load()(app)
    known = {command.name for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    for name in BENCH_COMMANDS:
        if name not in known:
            settings = {"ignore_unknown_options": True, "allow_extra_args": True}
            app.command(name, hidden=True, context_settings=settings)(ask_for_bench)


def ask_for_bench(ctx: typer.Context) -> None:
    raise MissingPackageError(
        f"`muddle {ctx.info_name}` needs the package muddle-bench: pip install muddle-bench."
    )


def print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"muddle {__version__}")
        raise typer.Exit()


def read_global_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, help="Print the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Learn from small tables: fit and use models, and see which methods are better."""
