"""Whether contents are those of a model, so that prediction never meets what it cannot handle."""

from muddle.errors import ModelFileError
from muddle.model_file.array_check import check_arrays
from muddle.model_file.contents import Contents, check_format
from muddle.model_file.header_check import check_header
from muddle.tables.summary_checks import check_summary


def check_contents(contents: Contents) -> None:
    """A ModelFileError that names the field, for whatever does not fit the format."""
    check_format(contents.header)
    check_header(contents.header)
    check_arrays(contents)
    if contents.header["training"]["table"] is not None:
        _check_table(contents)


def _check_table(contents: Contents) -> None:
    """The summary of the training table, which reports and the search for drift rely on."""
    target, table = contents.header["target"], contents.header["training"]["table"]
    try:
        if "classes" in target:
            check_summary(table, n_classes=len(target["classes"]))
        else:
            check_summary(table, n_outputs=len(contents.arrays["target.mean"]))
    except ValueError as error:
        raise ModelFileError(f"training.table must be a summary of the table: {error}") from error
