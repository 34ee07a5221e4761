"""A made-up exported table: both tasks, a dozen methods, cells that failed, timed out or were
skipped."""

import hashlib
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muddle_bench.ranking import COLUMNS
from muddle_bench.report import beside_paper, rank_figures, write_report

DATASETS = {
    "regression": "concrete-slump-test-1 computer-hardware insurance qsar-aquatic-toxicity servo "
    "yacht-hydrodynamics",
    "classification": "breast-cancer-coimbra credit-approval heart-failure-clinical-records "
    "ionosphere qsar-biodegradation tic-tac-toe-endgame",
}
BOTH = ("regression", "classification")
# method: family, how good it is from 0 to 1, seconds of a fit, tasks
METHODS = {
    "ens-mlr-released": ("MLR", 0.95, 20.0, BOTH),
    "bag-mlr-1-released": ("MLR", 0.90, 20.0, BOTH),
    "mlr-1-released": ("MLR", 0.80, 20.0, BOTH),
    "mlr-3-released": ("MLR", 0.78, 6.0, BOTH),
    "ens-mlr-paper": ("MLR-paper", 0.92, 21.0, BOTH),
    "catboost": ("GBDT", 0.91, 1.5, BOTH),
    "xgboost": ("GBDT", 0.80, 0.2, BOTH),
    "random-forest": ("RF", 0.82, 0.3, BOTH),
    "nu-svm": ("SVM", 0.70, 0.02, BOTH),
    "mlp": ("NN", 0.60, 0.8, BOTH),
    "realmlp-5": ("NN-today", 0.93, 9.0, BOTH),
    "ridge": ("GLM", 0.55, 0.01, ("regression",)),
    "logistic-l2": ("GLM", 0.60, 0.1, ("classification",)),
    "ridge-classifier": ("GLM", 0.58, 0.01, ("classification",)),
    "mars": ("MARS", 0.60, 0.7, ("regression",)),
    "cart": ("TREE", 0.40, 0.005, BOTH),
    "qda": ("QDA", 0.30, 0.004, ("classification",)),
    "baseline": ("Baseline", 0.0, 0.001, BOTH),
}
FLAGSHIP = {
    "muddle": ("Flagship", 0.97, 3.0, BOTH),
    "muddle-compact": ("Flagship", 0.94, 5.0, BOTH),
}
SMALL = ("ens-mlr-released", "catboost", "baseline")
SHARED = {"ens-mlr-released", "bag-mlr-1-released", "mlr-1-released"}
WITHOUT_PROBABILITIES = {"ridge-classifier"}


def draw_scores(task: str, level: float, skill: float, noise: float) -> dict[str, float]:
    """Scores of one cell; `level` is what the best method reaches on the data set."""
    if task == "regression":
        r2 = level * skill**0.3 + noise if skill else -0.02 + noise / 10
        return {"r2": r2, "rmse": float(np.sqrt(max(1 - r2, 0.01))), "mae": 0.8 * abs(1 - r2)}
    quality = min(0.5 + (level - 0.5) * skill**0.3 + noise, 1.0) if skill else 0.6 + noise / 10
    auc = min(quality + 0.04, 1.0) if skill else 0.5
    return {
        "accuracy": quality,
        "auc": auc,
        "log_loss": 1.2 * (1.05 - quality),
        "brier": 0.6 * (1.05 - quality),
        "ece": 0.2 * (1.05 - quality) if skill else 0.01,
    }


def make_record(recipe: str, task: str, dataset: str, method: str, split: int) -> dict[str, object]:
    known = METHODS | FLAGSHIP
    family, skill, seconds, _ = known.get(method, ("Own", 0.7, 0.5, BOTH))
    digest = hashlib.sha256(f"{dataset} {method} {split}".encode()).digest()
    rng = np.random.default_rng(list(digest))
    shift = np.random.default_rng(list(hashlib.sha256(f"{dataset} {split}".encode()).digest()))
    level = 0.70 + 0.25 * (hashlib.sha256(dataset.encode()).digest()[0] / 255)
    scores = draw_scores(
        task, level, skill, 0.03 * float(rng.normal()) + 0.02 * float(shift.normal())
    )
    if method in WITHOUT_PROBABILITIES:
        scores = {name: scores[name] for name in ("accuracy", "auc") if name in scores}
    return {
        **{"recipe": recipe, "task": task, "dataset": dataset, "method": method, "split": split},
        **{"family": family, "status": "ok", "reason": "", **scores, "predict_seconds": 0.01},
        "fit_seconds": seconds * float(np.exp(0.2 * rng.normal())),
        "shared_fit": "ens-mlr-released" if method in SHARED else "",
        **{"peak_mb": 120.5, "n_train": 80, "n_test": 20, "n_features": 8, "threads": 1},
        "rows_hash": hashlib.sha256(f"{dataset} {split} rows".encode()).hexdigest()[:12],
        "fingerprint": hashlib.sha256(method.encode()).hexdigest()[:12],
        **{"device": "cpu", "machine": "Some CPU, 2 cores, 24 GiB"},
        "versions": "earth 5.3 (R 4.2 Patched); muddle 0.5.0; python 3.11.7",
        "finished": f"2026-11-15T{8 + split:02}:{len(method):02}:00+00:00",
    }


def break_cell(record: dict[str, object], status: str, reason: str) -> None:
    record |= {"status": status, "reason": reason}
    for score in ("r2", "rmse", "mae", "accuracy", "auc", "log_loss", "brier", "ece"):
        record.pop(score, None)


@pytest.fixture(scope="session")
def make_table() -> Callable[..., pd.DataFrame]:
    """Builds an exported table; `whole=True` leaves out the cells that went wrong."""

    def make(
        *,
        recipe: str = "published",
        tasks: Sequence[str] = BOTH,
        methods: Sequence[str] = tuple(METHODS),
        n_datasets: int = 6,
        n_splits: int = 5,
        whole: bool = False,
        rename: dict[str, str] | None = None,
    ) -> pd.DataFrame:
        records = [
            make_record(recipe, task, dataset, method, split)
            for task in tasks
            for dataset in DATASETS[task].split()[:n_datasets]
            for method in methods
            if task in METHODS.get(method, ("", 0, 0, BOTH))[3]
            for split in range(n_splits)
        ]
        for record in [] if whole else records:
            method, dataset, split = record["method"], record["dataset"], record["split"]
            if (method, dataset) == ("qda", "ionosphere") and split < 2:
                break_cell(record, "failed", "LinAlgError: covariance <not> of full rank & more")
            elif (method, dataset, split) == ("mlp", "insurance", 1):
                break_cell(record, "timeout", "stopped after 60 s")
            elif (method, dataset) == ("xgboost", "servo"):
                break_cell(record, "skipped", "needs xgboost: pip install 'muddle[benchmark]'")
        frame = pd.DataFrame(records).reindex(columns=COLUMNS)
        frame = frame.sort_values(COLUMNS[:5], ignore_index=True)
        return frame.replace({"dataset": rename, "method": rename}) if rename else frame

    return make


@pytest.fixture(scope="session")
def table(make_table) -> pd.DataFrame:
    """Two tasks, six data sets each, five splits, some cells broken."""
    return make_table()


class Page(HTMLParser):
    """A page taken apart; a tag that is not closed where it should be is an error."""

    VOID = frozenset({"meta", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, dict[str, str]]] = []
        self.headings: list[tuple[str, str]] = []
        self.tables: dict[str, list[list[str]]] = {}  # id: rows of texts, the head first
        self.cells: dict[str, list[list[dict[str, str]]]] = {}  # their attributes
        self._texts: list[list[str]] = []
        self._table = ""
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        attributes = {name: value or "" for name, value in attrs}
        self.attributes.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "table":
            self._table = attributes["id"]
            self.tables[self._table], self.cells[self._table] = [], []
        if tag == "tr":
            self.tables[self._table].append([])
            self.cells[self._table].append([])
        if tag in ("td", "th"):
            self.cells[self._table][-1].append(attributes)
        if tag in ("td", "th", "h1", "h2", "h3", "h4"):
            self._texts.append([])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"
        if tag in ("td", "th"):
            self.tables[self._table][-1].append("".join(self._texts.pop()).strip())
        elif tag in ("h1", "h2", "h3", "h4"):
            self.headings.append((tag, "".join(self._texts.pop()).strip()))

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data
            for texts in self._texts:
                texts.append(data)

    def column(self, table: str, name: str) -> list[str]:
        """Texts below a head, by the name of the head."""
        rows = self.tables[table]
        place = rows[0].index(name)
        return [row[place] for row in rows[1:]]

    def values(self, table: str, name: str) -> list[float]:
        """The numbers a column is sorted by."""
        place = self.tables[table][0].index(name)
        pairs = zip(self.tables[table][1:], self.cells[table][1:], strict=True)
        return [
            float("nan") if "missing" in cells[place].get("class", "")
            else float(cells[place].get("data-v", row[place]))
            for row, cells in pairs
        ]  # fmt: skip


@pytest.fixture(scope="session")
def read_page() -> Callable[[Path], Page]:
    return lambda path: Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def report(table, tmp_path_factory) -> Path:
    """The report of the whole made-up table."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(table, out, commands=["muddle benchmark run --suite all"])


@pytest.fixture(scope="session")
def page(report, read_page) -> Page:
    return read_page(report)


@pytest.fixture
def no_figures(monkeypatch) -> None:
    """Reports without drawings, which take most of the time."""
    drawing = '<svg role="img" aria-label="a figure"></svg>'
    for name in ("draw_critical_difference", "draw_score_against_time"):
        monkeypatch.setattr(rank_figures, name, lambda *_: drawing)
    monkeypatch.setattr(beside_paper, "inline_svg", lambda *_: drawing)
    for name in ("draw_study", "draw_record"):
        monkeypatch.setattr(beside_paper, name, lambda *_: None)


@pytest.fixture
def small(make_table) -> pd.DataFrame:
    """Three methods on two regression data sets with two splits."""
    return make_table(tasks=["regression"], methods=SMALL, n_datasets=2, n_splits=2)
