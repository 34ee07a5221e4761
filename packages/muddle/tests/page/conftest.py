"""Small tables, models fitted to them once, and a parser of pages."""

import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from muddle import MLRClassifier, MuddleClassifier, MuddleRegressor


@pytest.fixture(scope="session")
def tiny():
    """Parameters of nets that train within milliseconds."""
    return {"width": 16, "max_iter": 5, "random_state": 0}


@pytest.fixture(scope="session")
def homes():
    """90 rows: numbers with gaps, text, dates, booleans, an identifier, and the price."""
    rng = np.random.default_rng(0)
    n_rows = 90
    table = pd.DataFrame(
        {
            "area": np.where(rng.random(n_rows) < 0.1, np.nan, rng.normal(90, 25, n_rows)),
            "kind": rng.choice(["flat", "house", "loft"], n_rows),
            "sold": pd.date_range("2024-01-01", periods=n_rows, freq="2D"),
            "lift": rng.random(n_rows) < 0.4,
            "key": [f"H{i:04}" for i in range(n_rows)],
        }
    )
    loft = 30 * (table["kind"] == "loft")
    price = table["area"].fillna(90) + loft + rng.normal(0, 5, n_rows)
    return table, price.rename("price")


@pytest.fixture(scope="session")
def trees():
    """75 rows of three named classes."""
    rng = np.random.default_rng(1)
    codes = np.arange(75) % 3
    table = pd.DataFrame(rng.normal(size=(75, 3)) + 2 * np.eye(3)[codes], columns=list("abc"))
    return table, pd.Series(np.array(["ash", "birch", "cedar"])[codes], name="tree")


@pytest.fixture(scope="session")
def regressor(homes):
    with warnings.catch_warnings(action="ignore"):  # the identifier
        return MuddleRegressor(preset="fast", random_state=0).fit(*homes)


@pytest.fixture(scope="session")
def classifier(trees):
    return MuddleClassifier(preset="fast", random_state=0).fit(*trees)


@pytest.fixture(scope="session")
def net(trees, tiny):
    """A model whose page is drawn quickly."""
    return MLRClassifier(**tiny).fit(*trees)


class Page(HTMLParser):
    """Tags, texts and tables of a page; a tag that is not closed is an error."""

    VOID = frozenset({"meta"})

    def __init__(self, text):
        super().__init__()
        self.html = text
        self.open, self.tags, self.attributes, self.ids = [], [], [], []
        self.tables = {}  # id: rows of texts, the head first
        self.sections = {}  # id: all its text
        self.text = ""
        self._table = self._section = ""
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        attributes = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "section":
            self._section = attributes["id"]
            self.sections[self._section] = ""
        if tag == "table":
            self._table = attributes["id"]
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("td", "th"):
            self.tables[self._table][-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        if not self.open or self.open[-1] in ("style", "script"):
            return
        self.text += data
        if self._section:
            self.sections[self._section] += data
        if {"td", "th"} & set(self.open):
            self.tables[self._table][-1][-1] += data

    def column(self, table, name):
        """Texts of the cells below a heading."""
        rows = [[text.strip() for text in row] for row in self.tables[table]]
        head = next(i for i, row in enumerate(rows) if name in row)
        place = rows[head].index(name)
        return [row[place] for row in rows[head + 1 :]]


@pytest.fixture(scope="session")
def write_page(tmp_path_factory):
    """Writes the report of a model and parses it."""

    def write(model, X=None, y=None, **options):
        path = tmp_path_factory.mktemp("page") / "report.html"
        assert model.report(path, X, y, **options) == path
        return Page(path.read_text(encoding="utf-8"))

    return write


@pytest.fixture(scope="session")
def homes_page(write_page, regressor, homes):
    return write_page(regressor, *homes)


@pytest.fixture(scope="session")
def trees_page(write_page, classifier, trees):
    return write_page(classifier, *trees)
