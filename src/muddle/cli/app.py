"""All commands of `muddle`. A new one is a function in a module beside this and a line below."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from muddle import __version__
from muddle.cli import benchmark, datasets, methods, ranking, study
from muddle.cli.models import evaluate, explain, fit, info, predict
from muddle.cli.run_options import INTERRUPTED
from muddle.errors import MuddleError

OPTIONS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "markdown",
}


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
    app.add_typer(make_datasets(), name="datasets")
    app.command("methods")(methods.list_methods)
    app.add_typer(make_benchmark(), name="benchmark")
    app.add_typer(make_study(), name="study")
    app.command("report")(ranking.write_page)
    return app


def make_datasets() -> typer.Typer:
    group = typer.Typer(**OPTIONS)
    group.callback(invoke_without_command=True)(datasets.list_datasets)
    group.command("fetch")(datasets.fetch_datasets)
    group.command("show")(datasets.show_dataset)
    return group


def make_benchmark() -> typer.Typer:
    group = typer.Typer(
        help="Compare methods on the same splits of the same data sets.",
        no_args_is_help=True,
        **OPTIONS,
    )
    group.command("run")(benchmark.run_cells)
    group.command("status")(benchmark.show_status)
    group.command("export")(benchmark.export_records)
    group.command("import")(benchmark.import_records)
    group.command("rank")(ranking.rank_records)
    return group


def make_study() -> typer.Typer:
    group = typer.Typer(
        help="Ask what each part and each setting of MLR is worth.",
        no_args_is_help=True,
        **OPTIONS,
    )
    group.command("ablation")(study.run_ablation)
    group.command("dependence")(study.run_dependence)
    group.command("all")(study.run_all)
    group.command("list")(study.list_studies)
    group.command("table")(study.write_study_tables)
    group.command("record")(study.write_history)
    group.command("figures")(study.write_study_figures)
    return group


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
