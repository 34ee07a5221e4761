"""muddle predict: a model and new rows in, predictions out, chunk by chunk."""

from typing import Annotated

import typer

from muddle.cli.models.options import (
    Data,
    Decimal,
    DeviceName,
    Encoding,
    Model,
    ModelRuntime,
    NoHeader,
    Quiet,
    Runtime,
    Separator,
    read_text_options,
    refuse_overwriting,
)
from muddle.cli.output import AsJson, make_console, print_json

CHUNK_ROWS = 10_000


def predict_rows(
    model: Model,
    data: Data,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="CSV, TSV, Parquet or Feather, by its name. Default: '-', the standard output.",
        ),
    ] = "-",
    proba: Annotated[
        bool, typer.Option("--proba", help="Also the probability of each class.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval", metavar="COVERAGE", help="Also lower and upper bounds, e.g. 0.9."
        ),
    ] = None,
    quantile: Annotated[
        list[float] | None,
        typer.Option("--quantile", metavar="LEVEL", help="Also this quantile. Repeatable."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="COLUMN", help="Of DATA, in front. Repeatable."),
    ] = None,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="All columns of DATA in front.")
    ] = False,
    chunk_rows: Annotated[
        int,
        typer.Option("--chunk-rows", metavar="N", min=1, help="Rows in memory at a time."),
    ] = CHUNK_ROWS,
    runtime: Runtime = ModelRuntime.torch,
    device: DeviceName = "auto",
    separator: Separator = None,
    encoding: Encoding = "utf-8",
    decimal: Decimal = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a table, also of one that is larger than memory."""
    options = read_text_options(separator, encoding, decimal, no_header)
    from muddle.cli.models.answers import Wanted, check_wanted, load_model
    from muddle.cli.models.notes import Notes
    from muddle.cli.models.predict_writing import Prediction
    from muddle.table_files.sources import check_source
    from muddle.table_files.writing import check_output

    if keep and keep_all:
        raise ValueError("--keep and --keep-all exclude each other: take one of them.")
    check_source(data)
    check_output(output)
    refuse_overwriting(output, [data, model])
    notes = Notes(quiet)
    with notes.take_warnings():
        loaded = load_model(model, runtime=runtime.value, device=device)
    wanted = Wanted(proba=proba, interval=interval, quantiles=tuple(quantile or ()))
    check_wanted(wanted, loaded)
    kept = None if keep_all else list(keep or ())
    prediction = Prediction(loaded, wanted, kept, notes)
    n_rows = prediction.write(data, options, chunk_rows, output, as_json=as_json)
    if output == "-":
        return
    if as_json:
        print_json({"output": output, "rows": n_rows, "notes": notes.said})
    elif not quiet:
        make_console().print(f"Wrote {output}: {n_rows:,} rows", soft_wrap=True)
