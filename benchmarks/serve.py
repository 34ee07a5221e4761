"""Load on the web service of examples/service.py, on this machine alone (127.0.0.1).

    OMP_NUM_THREADS=1 python benchmarks/serve.py --out results/serve_cpu.csv
    python benchmarks/serve.py --quick

One uvicorn process serves a model of a made-up table of 500 rows, six numbers and four columns of
levels, with muddle_runtime alone. Clients are threads of this process, each with a connection that
it keeps, and ask one after the other; each case ends after a number of requests or of seconds,
whichever is first. Every answer is compared with that of the model asked directly, and rows that
are refused must be refused with status 422 and the message of the model. server_cpu_ms is processor
time of the service by request; latencies and requests_per_s depend on what else the cores do.
"""

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
from speed import name_hardware, read_commit

import muddle
import muddle_runtime

HOST = "127.0.0.1"
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
STARTED_WITHIN = 60.0  # seconds
REFUSED = 422


@dataclass(frozen=True)
class Case:
    """What is asked at once, and by how many."""

    rows: int
    clients: int
    refused: bool = False


CASES = (Case(1, 1), Case(1, 4), Case(1, 16), Case(100, 4), Case(1, 4, refused=True))


@dataclass(frozen=True)
class Effort:
    """How much is fitted and asked."""

    n_rows: int = 500
    n_requests: int = 2_000  # of a case
    seconds: float = 20.0  # of a case
    models: tuple[tuple[str, dict[str, Any]], ...] = (
        ("default", {}),
        ("compact", {"preset": "compact"}),
    )


QUICK = Effort(n_rows=60, n_requests=20, seconds=5.0, models=(("fast", {"preset": "fast"}),))


@dataclass(frozen=True)
class Answer:
    """What a client got: the status and the content of an answer, and the time it took."""

    asked: int
    status: int
    content: dict[str, Any]
    seconds: float


def make_table(n_rows: int) -> tuple[pd.DataFrame, pd.Series]:
    """Six numbers with gaps, and four columns of four levels."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(n_rows, 6))
    target = numbers[:, 0] - 2 * np.tanh(numbers[:, 1])
    table = pd.DataFrame(
        np.where(rng.random(numbers.shape) < 0.05, np.nan, numbers),
        columns=[f"number {i}" for i in range(6)],
    )
    for i in range(4):
        table[f"level {i}"] = rng.choice(["a", "b", "c", "d"], n_rows)
    return table, pd.Series(target + (table["level 0"] == "a") + 0.1 * rng.normal(size=n_rows))


def to_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them."""
    records: list[dict[str, Any]] = json.loads(table.to_json(orient="records"))
    return records


@contextmanager
def serving(model: Path) -> Iterator[tuple[int, psutil.Process]]:
    """The service of a model file on a free port: the port, and its process."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "service:app", "--app-dir", str(EXAMPLES)]
    command += ["--host", HOST, "--port", str(port), "--log-level", "error", "--no-access-log"]
    service = subprocess.Popen(command, env=os.environ | {"MODEL": str(model)})
    try:
        wait_for(port, service)
        yield port, psutil.Process(service.pid)
    finally:
        service.terminate()
        service.wait()


def wait_for(port: int, service: subprocess.Popen[bytes]) -> None:
    """Until the service answers."""
    began = time.perf_counter()
    while True:
        try:
            with closing(http.client.HTTPConnection(HOST, port, timeout=5)) as connection:
                ask(connection, "GET", "/")
            return
        except OSError as error:
            if service.poll() is not None or time.perf_counter() - began > STARTED_WITHIN:
                raise RuntimeError("the service did not start: see its message above.") from error
            time.sleep(0.05)


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, content: Any = None
) -> tuple[int, Any]:
    """Status and content of an answer."""
    body = None if content is None else json.dumps(content)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def load(port: int, questions: Sequence[Any], n_clients: int, effort: Effort) -> list[Answer]:
    """Answers to so many clients that ask question after question."""
    answers: list[Answer] = []
    end = time.perf_counter() + effort.seconds
    turn = iter(range(effort.n_requests))
    lock = threading.Lock()

    def be_client() -> None:
        with closing(http.client.HTTPConnection(HOST, port, timeout=60)) as connection:
            while time.perf_counter() < end:
                with lock:
                    place = next(turn, None)
                if place is None:
                    break
                asked = place % len(questions)
                began = time.perf_counter()
                status, content = ask(connection, "POST", "/predict", questions[asked])
                answers.append(Answer(asked, status, content, time.perf_counter() - began))

    clients = [threading.Thread(target=be_client) for _ in range(n_clients)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return answers


def measure_case(
    case: Case,
    port: int,
    service: psutil.Process,
    table: pd.DataFrame,
    model: Any,
    effort: Effort,
) -> dict[str, Any]:
    """One row of the results; an answer that is wrong is an error."""
    rows = to_records(table)
    if case.refused:
        rows = [row | {"number 1": "big"} for row in rows]
    questions, expected = [], []
    for start in range(0, len(rows) - case.rows + 1, case.rows):
        own = rows[start : start + case.rows]
        questions.append({"rows": own})
        try:
            expected.append(model.predict(own).tolist())
        except ValueError as error:
            expected.append(str(error))
    load(port, questions, case.clients, QUICK)  # threads of the service begin
    began, before = time.perf_counter(), sum(service.cpu_times()[:2])
    answers = load(port, questions, case.clients, effort)
    seconds, used = time.perf_counter() - began, sum(service.cpu_times()[:2]) - before
    status, key = (REFUSED, "detail") if case.refused else (200, "predictions")
    for one in answers:
        if one.status != status or one.content[key] != expected[one.asked]:
            raise AssertionError(f"status {one.status} for question {one.asked}: {one.content}")
    took = 1000 * np.array([one.seconds for one in answers])
    return {
        "rows": case.rows,
        "clients": case.clients,
        "status": status,
        "requests": len(answers),
        "server_cpu_ms": round(1000 * used / len(answers), 3),
        "median_ms": round(float(np.median(took)), 2),
        "p99_ms": round(float(np.quantile(took, 0.99)), 2),
        "requests_per_s": round(len(answers) / seconds, 1),
        "server_mb": round(service.memory_info().rss / 2**20),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few requests to a small model")
    parser.add_argument("--out", type=Path, help="CSV to write")
    parser.add_argument("--commit", default=None, help="commit to note; default: the current one")
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else Effort()
    table, target = make_table(effort.n_rows)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, parameters in effort.models:
            fitted = muddle.MuddleRegressor(random_state=0, **parameters).fit(table, target)
            path = fitted.save(Path(folder) / f"{name}.muddle")
            model = muddle_runtime.load_model(path)
            with serving(path) as (port, service):
                for case in CASES:
                    if case.rows <= len(table):
                        own = measure_case(case, port, service, table, model, effort)
                        found.append({"model": name} | own)
                        print(found[-1])
    about = {
        "hardware": name_hardware("cpu"),
        "numpy": np.__version__,
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        "commit": options.commit or read_commit(),
    }
    if options.out is not None:
        pd.DataFrame([row | about for row in found]).to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
