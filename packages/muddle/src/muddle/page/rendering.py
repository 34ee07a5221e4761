"""A template filled, with style and scripts inside: one file that needs no other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muddle.errors import MissingPackageError

HERE = Path(__file__).parent


def render_page(
    template: Path, *, scripts: Sequence[Path], styles: Sequence[Path] = (), **content: Any
) -> str:
    """The template with its content; every text is escaped, whatever it holds.

    Templates may import those that lie here. styles: beside style.css, which all pages have.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingPackageError(
            "a report needs the package jinja2: pip install 'muddle[report]'."
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, HERE]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    page = environment.get_template(template.name).render(
        style=_join([HERE / "style.css", *styles]), script=_join(scripts), **content
    )
    return page.lstrip()


def _join(paths: Sequence[Path]) -> str:
    return "\n".join(path.read_text(encoding="utf-8").rstrip("\n") for path in paths)
