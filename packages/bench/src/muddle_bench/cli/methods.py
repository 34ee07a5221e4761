"""muddle methods: what the benchmark can compare."""

from typing import Annotated

import typer

from muddle.cli.output import AsJson, Task, print_json, print_table
from muddle_bench.cli.choices import Plugins


def list_methods(
    task: Annotated[Task | None, typer.Option(help="Only those that can do it.")] = None,
    plugins: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List the methods of the benchmark, and what those need that cannot run here."""
    from muddle_bench.methods.registry import missing_package
    from muddle_bench.run.cells import known_methods, name_plugins

    rows = []
    for method in known_methods(name_plugins(plugins or ())).values():
        if task is not None and task not in method.tasks:
            continue
        missing = missing_package(method)
        rows.append(
            {
                "method": method.name,
                "family": method.family,
                "tasks": "both" if len(method.tasks) == 2 else method.tasks[0],
                "state": "ready" if missing is None else f"skipped: {missing}",
                "what_it_is": method.title,
            }
        )
    if as_json:
        print_json(rows)
        return
    for row in rows:
        said = [row["what_it_is"], "" if row["state"] == "ready" else row["state"]]
        row["what it is"] = "; ".join(filter(None, said))
    print_table(["method", "family", "tasks", "what it is"], rows, wrap=["what it is"])
    n_skipped = sum(row["state"] != "ready" for row in rows)
    typer.echo(f"\n{len(rows)} methods, {len(rows) - n_skipped} of them ready")
