"""What every test may use: small data sets, and a browser for pages."""

import html
import json
import re
import resource
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

BROWSER_FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--allow-file-access-from-files",
    "--window-size=1280,900", "--virtual-time-budget=10000", "--dump-dom",
]  # fmt: skip

# What a test's script calls with what it saw: it is left in the document, which Chromium prints.
LEAVE = """<script>
const leave = (seen) => {
  const text = JSON.stringify(seen);
  if (parent !== window) parent.postMessage(text, "*");
  const left = document.createElement("pre");
  left.id = "seen";
  left.textContent = text;
  document.body.append(left);
};
</script>"""

# Chromium's windows have a least width, frames have none; the styles go by the frame's width.
PHONE = """<!doctype html><title>phone</title>
<iframe src="copy.html" style="width:390px;height:844px;border:0"></iframe>
<script>
addEventListener("message", (event) => {
  const seen = document.createElement("pre");
  seen.id = "seen";
  seen.textContent = event.data;
  document.body.append(seen);
});
</script>"""


@pytest.fixture
def numbers() -> tuple[np.ndarray, np.ndarray]:
    """80 rows, 4 features, a smooth target with a little noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=80)


@pytest.fixture
def classes() -> tuple[np.ndarray, np.ndarray]:
    """90 rows, 3 features, three named classes that overlap a little."""
    rng = np.random.default_rng(1)
    codes = np.arange(90) % 3
    X = rng.normal(size=(90, 3)) + 2.5 * np.eye(3)[codes]
    return X, np.array(["ash", "birch", "cedar"])[codes]


@pytest.fixture
def file_limit():
    """A context in which no file may grow beyond so many bytes, as on a disk that is full."""

    @contextmanager
    def limit(n_bytes):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limit


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The paper's raw files and the authors' matrices, which lie beside the checkout where there
    are any."""
    folder = Path(__file__).resolve().parents[1] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the data in ../shared/data, which is not here")
    return folder


@pytest.fixture(scope="session")
def reference_matrices(data_folder) -> Path:
    """The authors' preprocessed matrices."""
    return data_folder / "reference_matrices"


@pytest.fixture(scope="session")
def browse(tmp_path_factory):
    """Opens a copy of a page with a script at its end, in a window and on a phone: for each, what
    the script gave to `leave`, and what the console said."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs chromium, which is not here")

    def look(path, profile):
        command = [chromium, *BROWSER_FLAGS, f"--user-data-dir={profile}", path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, flags=re.DOTALL)
        assert found, done.stderr[-2000:]
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return json.loads(html.unescape(found[1])), said

    def open_page(page, script):
        folder = tmp_path_factory.mktemp("browser")
        copy = page.replace("</body>", f"{LEAVE}{script}</body>")
        (folder / "copy.html").write_text(copy, encoding="utf-8")
        (folder / "phone.html").write_text(PHONE, encoding="utf-8")
        return [look(folder / name, folder / "profile") for name in ("copy.html", "phone.html")]

    return open_page
