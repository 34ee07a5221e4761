"""Commands that join `muddle` through its entry point `muddle.commands`."""

import typer

from muddle.cli.app import OPTIONS
from muddle_bench.cli import benchmark, datasets, methods, ranking, study


def add_commands(app: typer.Typer) -> None:
    """Called by muddle's command line."""
    app.add_typer(make_datasets(), name="datasets")
    app.command("methods")(methods.list_methods)
    app.add_typer(make_benchmark(), name="benchmark")
    app.add_typer(make_study(), name="study")
    app.command("report")(ranking.write_page)


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
