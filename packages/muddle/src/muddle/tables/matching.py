"""The columns of `fit` in a table of new rows: by name, or by position without names."""

import warnings
from collections.abc import Collection, Sequence

from muddle.tables.checks import list_columns
from muddle_runtime.parameters import suggest


def check_columns(
    names: Sequence[str],
    named: bool,
    *,
    fitted: Sequence[str],
    fitted_named: bool,
    used: Collection[str],
    owner: str,
    caller: int,
) -> bool:
    """Whether columns go by position, and are to take the names of `fit`; an error where they
    cannot be told.

    caller: stack levels from the function that calls this one to the line of the user's own code.
    """
    if named and fitted_named:
        _check_names(names, fitted, used, caller + 2)
        return False
    if len(names) != len(fitted):
        raise ValueError(
            f"X has {len(names)} features, but {owner} is expecting "
            f"{len(fitted)} features as input."
        )
    if named != fitted_named:
        warnings.warn(
            f"X has feature names, but {owner} was fitted without feature names"
            if named
            else f"X does not have valid feature names, but {owner} was fitted with feature names",
            UserWarning,
            stacklevel=caller + 1,
        )
    return True


def _check_names(
    names: Sequence[str], fitted: Sequence[str], used: Collection[str], caller: int
) -> None:
    """An error for a column that is needed and not there, a warning for one too many."""
    present = set(names)
    missing = [name for name in used if name not in present]
    if missing:
        raise ValueError(
            f"X must have the columns of fit, but lacks {list_columns(missing)}."
            f"{suggest(missing[0], present - set(fitted))}"
        )
    known = set(fitted)
    extra = [name for name in names if name not in known]
    if extra:
        warnings.warn(
            f"{list_columns(extra)} of X {'were' if len(extra) > 1 else 'was'} not there in "
            "fit and will be ignored.",
            UserWarning,
            stacklevel=caller,
        )
