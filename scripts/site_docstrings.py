"""Docstrings for the site's reference; mkdocs.yml names this file.

Docstrings follow scikit-learn's conventions. The site's parser takes the first of `{"a", "b"}` for
the default, whatever default follows, and does not know Sphinx's roles.
"""

import re
from typing import Any

import griffe

CHOICES = re.compile(r"^(?P<name>\s*[\w, ]+ : )\{(?P<choices>[^}]+)\}", flags=re.MULTILINE)
# A sentence behind the parameters, which would be taken for one more of them.
ATTRIBUTES = re.compile(r"^(?=Attributes as in )", flags=re.MULTILINE)
ROLE = re.compile(r":\w+:`(?P<text>[^`]+)`")


class PlainDocstrings(griffe.Extension):
    """Choices become alternatives, roles become code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = simplify(obj.docstring.value)


def simplify(text: str) -> str:
    """`kind : {"a", "b"}, default="b"` -> `kind : "a" | "b", default="b"`"""
    text = CHOICES.sub(lambda found: found["name"] + found["choices"].replace(", ", " | "), text)
    text = ATTRIBUTES.sub("Notes\n-----\n", text)
    return ROLE.sub(r"`\g<text>`", text)
