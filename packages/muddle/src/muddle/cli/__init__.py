"""The command line `muddle`."""

import sys


def main() -> None:
    """Entry point of the command `muddle`."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        name = (error.name or "typer").partition(".")[0]
        sys.exit(f"Error: muddle needs the package {name}: pip install 'muddle[cli]'.")
    from muddle.cli.app import make_app

    make_app()(prog_name="muddle")
