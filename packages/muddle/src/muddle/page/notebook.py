"""A fitted estimator in a notebook: rows, columns, scores, time, and members with their weights."""

from collections.abc import Sequence
from html import escape
from typing import Any

from muddle.page.fit import Facts, gather_facts, list_facts
from muddle.page.html import clean, count, format_number, format_percent, shorten

MOST_MEMBERS = 8


def show_fit(estimator: Any) -> str:
    """Two small tables in HTML."""
    facts = gather_facts(estimator, None, None)
    numbers = [(fact.label, fact.value, fact.detail) for fact in list_facts(facts)]
    score = f"{'Out-of-fold' if facts.flagship else 'Validation'} {facts.score_name}"
    members = _tabulate(("Member", score, "Weight"), list_members(facts))
    return f"{_tabulate((), numbers)}{members}"


def list_members(facts: Facts) -> list[tuple[str, str, str]]:
    """Name, score and weight of those that predict, the heaviest first; the last may be others."""
    board = facts.board[facts.board["weight"] > 0].sort_values(
        "weight", ascending=False, kind="stable"
    )
    rows = []
    for member in board.head(MOST_MEMBERS).to_dict("records"):
        if facts.flagship:
            nets = f", iteration {member['iteration']}" if member["n_nets"] else ""
            name = f"{member['configuration']}{nets}"
        else:
            name = f"net {member['net']}, depth {member['depth']}"
        weight = format_percent(member["weight"], 1)
        rows.append((shorten(name), format_number(member["score"]), weight))
    others = board["weight"][MOST_MEMBERS:]
    if len(others):
        rows.append((count(len(others), "other"), "", format_percent(others.sum(), 1)))
    return rows


def _tabulate(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{escape(text)}</th>" for text in head)] if head else []
    lines += ["".join(f"<td>{escape(clean(text))}</td>" for text in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
