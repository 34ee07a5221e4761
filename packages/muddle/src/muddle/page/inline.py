"""Figures of matplotlib as a part of a page."""

import io
import re
from html import escape
from typing import TYPE_CHECKING

from muddle.page.palette import INK, LINE, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

IMAGE_WIDTH = 640  # pixels
# What the page says in its own colours, in dark mode as well.
PAGE_COLORS = {INK: "currentColor", PAPER: "var(--page)", LINE: "var(--line)"}


def inline_svg(figure: "Drawing", name: str, label: str) -> str:
    """A figure as a part of the page: text stays text, in the page's colours, its names its own."""
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = stream.getvalue()
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box, "matplotlib writes a viewBox"
    # Rules and metadata would be the whole page's; names must be unique on it.
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    body = body.replace("url(#", f"url(#{name}-")
    for color, replacement in PAGE_COLORS.items():
        body = body.replace(f": {color}", f": {replacement}")
    style = f"width:{IMAGE_WIDTH}px;min-width:30rem;stroke-linejoin:round;stroke-linecap:butt"
    return (
        f'<svg class="plot" role="img" viewBox="{box[1]}" style="{style}" '
        f'aria-label="{escape(label)}">{body}</svg>'
    )
