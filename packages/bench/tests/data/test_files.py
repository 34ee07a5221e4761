"""Data files: found, verified, downloaded whole or not at all. The only server is a local one."""

import gzip
import hashlib
import os
import re
import stat
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from muddle.errors import DataFormatError, MissingDataError, MissingPackageError
from muddle_bench.data import files
from muddle_bench.data.catalogue import Entry
from muddle_bench.errors import ChecksumError, DownloadError, UnknownDatasetError

LINES = [f"{i},{i * i % 7}" for i in range(40_000)]  # several chunks
CONTENT = "\n".join(["x,y", *LINES]).encode() + b"\n"
HASH = hashlib.sha256("\n".join(LINES).encode()).hexdigest()
HALF = len(CONTENT) // 2


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT the way the server's `mode` says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.ranges.append(asked)
        server.encodings.append(self.headers.get("Accept-Encoding"))
        if server.barrier is not None:
            server.barrier.wait(timeout=10)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if server.mode == "silent":
            server.released.wait(timeout=10)
            self.close_connection = True
            return
        if server.mode.isdigit():
            self.answer(int(server.mode), b"sorry")
        elif server.mode == "cut":
            self.answer(200, CONTENT, send=HALF)
        elif server.mode == "damaged":
            self.answer(200, CONTENT.replace(b"7,0", b"7,9", 1))
        elif server.mode == "whole" or not asked:
            self.answer(200, CONTENT)
        elif server.mode == "elsewhere":
            self.answer(206, CONTENT[5:], position=5)
        elif start >= len(CONTENT):
            self.answer(416, b"")
        elif server.mode == "cut the rest":
            self.answer(206, CONTENT[start:], position=start, send=HALF)
        else:
            self.answer(206, CONTENT[start:], position=start)

    def answer(self, status, body, *, send=None, position=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if position is not None:
            last = position + len(body) - 1
            self.send_header("Content-Range", f"bytes {position}-{last}/{len(CONTENT)}")
        self.end_headers()
        self.wfile.write(body[:send])
        if send is not None:
            self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.mode, server.ranges, server.encodings, server.barrier = "ranges", [], [], None
    server.released = threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}/tiny.csv"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def entry(server):
    return Entry(
        id="tiny",
        file="tiny/tiny.csv",
        target="y",
        page="https://example.org/tiny",
        url=server.url,
        sha256=("0" * 64, HASH),
    )


def put(home, content, name="tiny.csv"):
    path = home / "raw" / "tiny" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names_in(home):
    return sorted(path.name for path in home.rglob("*") if path.is_file())


# Checksums


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,2\n3,4",
        b"a,b\n1,2\n3,4\n\n \n",
        b"a,b\r\n1,2\r\n3,4\r\n",
        b"a,b\r1,2\r3,4\r",
        b"\xef\xbb\xbfa,b\n1,2\n3,4\n",
        b"A;B\n1,2  \n3,4\t\n",
        b"\n\na,b\n1,2\n\n3,4\n",
        gzip.compress(b"a,b\r\n1,2\r\n3,4\r\n"),
    ],
    ids=["plain", "blank last", "CRLF", "CR", "BOM", "header", "blank lines", "gzip"],
)
def test_copies_with_the_same_data_lines_have_the_same_checksum(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    expected = hashlib.sha256(b"1,2\n3,4").hexdigest()
    assert files.content_sha256(path, header=True) == expected


def test_without_a_header_the_first_line_counts(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbf1,2\n3,4\n")
    assert files.content_sha256(path, header=False) == hashlib.sha256(b"1,2\n3,4").hexdigest()
    assert files.content_sha256(path, header=True) == hashlib.sha256(b"3,4").hexdigest()


def test_a_byte_order_mark_never_counts(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbf1,2\n3,4\n")
    expected = hashlib.sha256(b"1,2\n3,4").hexdigest()
    assert files.content_sha256(path, header=False, encoding="utf-8") == expected


@pytest.mark.parametrize("content", [b"a\n1,2\n3,5", b"a\n3,4\n1,2", b"a\n1,23,4", b"a\n 1,2\n3,4"])
def test_other_data_lines_have_another_checksum(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert files.content_sha256(path, header=True) != hashlib.sha256(b"1,2\n3,4").hexdigest()


def test_the_checksum_is_of_the_text_not_of_its_encoding(tmp_path):
    path = tmp_path / "file"
    path.write_bytes("25°\n".encode("latin-1"))
    expected = hashlib.sha256("25°".encode()).hexdigest()
    assert files.content_sha256(path, header=False, encoding="latin-1") == expected


def test_bytes_that_cannot_be_decoded_have_a_checksum_of_their_own(tmp_path):
    hashes = set()
    for content in (b"\xff\xfe", b"\xff\xfd", b"?"):
        path = tmp_path / "file"
        path.write_bytes(content)
        hashes.add(files.content_sha256(path, header=False))
    assert len(hashes) == 3


# Where files lie


def test_data_home_is_the_argument_then_the_variables_then_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MUDDLE_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert files.data_home() == tmp_path / ".cache" / "muddle"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert files.data_home() == tmp_path / "cache" / "muddle"
    monkeypatch.setenv("MUDDLE_DATA", "~/tables")
    assert files.data_home() == tmp_path / "tables"
    assert files.data_home("~/other") == tmp_path / "other"
    monkeypatch.chdir(tmp_path)
    assert files.data_home("here") == tmp_path / "here"


def test_an_empty_variable_counts_as_unset(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MUDDLE_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert files.data_home() == tmp_path / ".cache" / "muddle"


def test_a_file_as_data_home_is_an_error(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(ValueError, match=r"must be a folder, got the file .*set MUDDLE_DATA"):
        files.data_home(path)


def test_a_file_is_found_plain_or_gzipped(tmp_path, entry):
    assert files.locate(entry, tmp_path) is None
    zipped = put(tmp_path, gzip.compress(CONTENT), "tiny.csv.gz")
    assert files.locate(entry, tmp_path) == zipped
    assert files.require(entry, tmp_path) == zipped
    plain = put(tmp_path, CONTENT)
    assert files.locate(entry, tmp_path) == plain


def test_a_folder_of_the_files_name_is_not_the_file(tmp_path, entry):
    (tmp_path / "raw" / "tiny" / "tiny.csv").mkdir(parents=True)
    assert files.locate(entry, tmp_path) is None


# Files that are there


def test_a_present_file_needs_no_server_no_package_and_writes_nothing(
    tmp_path, entry, server, monkeypatch
):
    put(tmp_path, CONTENT)
    for name in ("pooch", "requests"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(os, "replace", None)
    assert files.require(entry, tmp_path) == tmp_path / "raw" / "tiny" / "tiny.csv"
    assert names_in(tmp_path) == ["tiny.csv"]
    assert server.ranges == []


def test_a_changed_file_is_an_error_that_names_it_and_stays(tmp_path, entry):
    path = put(tmp_path, CONTENT.replace(b"9,4", b"9,5", 1))
    found = files.content_sha256(path, header=True)
    with pytest.raises(ChecksumError) as caught:
        files.require(entry, tmp_path)
    for part in (str(path), found, HASH, "Move it away", "`muddle datasets fetch tiny`"):
        assert part in str(caught.value)
    assert path.exists()


def test_a_changed_file_without_an_address_says_where_to_get_it_by_hand(tmp_path, entry):
    path = put(tmp_path, b"x,y\n1,2\n")
    by_hand = f"open https://example.org/tiny, download tiny.csv and save it as {path}"
    with pytest.raises(ChecksumError, match=re.escape(by_hand)):
        files.require(replace(entry, url=None), tmp_path)


def test_a_damaged_gzip_file_is_an_error_that_names_it(tmp_path, entry):
    path = put(tmp_path, gzip.compress(CONTENT)[:-50], "tiny.csv.gz")
    with pytest.raises(ChecksumError, match=rf"{re.escape(str(path))}.*cannot be unzipped"):
        files.require(entry, tmp_path)


def test_bytes_in_place_of_an_optional_header_are_an_error_that_names_the_file(tmp_path, entry):
    path = put(tmp_path, b"\xff\xfe\x00\x01")
    with pytest.raises(ChecksumError, match=rf"{re.escape(str(path))}.*cannot be read as text"):
        files.require(replace(entry, header="optional"), tmp_path)


def test_an_unknown_encoding_is_an_error_that_names_the_data_set(tmp_path, entry):
    put(tmp_path, CONTENT)
    with pytest.raises(DataFormatError, match=r"\[tiny\] encoding must be one .*utf-nine"):
        files.require(replace(entry, encoding="utf-nine"), tmp_path)


def test_without_a_checksum_any_content_is_accepted(tmp_path, entry):
    path = put(tmp_path, b"anything")
    assert files.require(replace(entry, sha256=()), tmp_path) == path


@pytest.mark.parametrize("content", [CONTENT, CONTENT.partition(b"\n")[2]], ids=["with", "without"])
def test_an_optional_header_does_not_change_the_checksum(tmp_path, entry, content):
    path = put(tmp_path, content)
    assert files.require(replace(entry, header="optional"), tmp_path) == path


def test_an_absent_file_without_an_address_says_exactly_what_to_do(tmp_path, entry):
    target = tmp_path / "raw" / "tiny" / "tiny.csv"
    by_hand = f"open https://example.org/tiny, download tiny.csv and save it as {target}."
    with pytest.raises(MissingDataError, match=re.escape(by_hand)):
        files.require(replace(entry, url=None), tmp_path)
    with pytest.raises(MissingDataError, match=re.escape(f"hand: save the file as {target}.")):
        files.require(replace(entry, url=None, page=""), tmp_path)


def test_download_false_does_not_ask_the_server(tmp_path, entry, server):
    with pytest.raises(MissingDataError, match="Run `muddle datasets fetch tiny`, or by hand"):
        files.require(entry, tmp_path, download=False)
    assert server.ranges == []


# Downloads


def test_an_absent_file_is_downloaded_once_and_nothing_else_stays(tmp_path, entry, server):
    path = files.require(entry, tmp_path)
    assert path.read_bytes() == CONTENT
    assert files.require(entry, tmp_path) == path
    assert server.ranges == [None]
    assert server.encodings == ["identity"]  # positions in a zipped stream would be others
    assert names_in(tmp_path) == ["tiny.csv"]


def test_a_downloaded_file_has_ordinary_permissions(tmp_path, entry):
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    path = files.require(entry, tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


def test_a_damaged_download_leaves_nothing_and_says_what_to_do(tmp_path, entry, server):
    server.mode = "damaged"
    with pytest.raises(ChecksumError) as caught:
        files.require(entry, tmp_path)
    for part in (server.url, "tiny.csv", HASH, "Nothing was saved", "try again", "by hand: open"):
        assert part in str(caught.value)
    assert names_in(tmp_path) == []


def test_a_broken_transfer_is_kept_and_the_next_fetch_asks_for_the_rest(tmp_path, entry, server):
    server.mode = "cut"
    with pytest.raises(DownloadError, match=r"broke off.*what came is kept"):
        files.require(entry, tmp_path)
    assert names_in(tmp_path) == ["tiny.csv.partial"]
    kept = (tmp_path / "raw" / "tiny" / "tiny.csv.partial").stat().st_size
    assert 0 < kept <= HALF
    server.mode = "ranges"
    assert files.require(entry, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={kept}-"]
    assert names_in(tmp_path) == ["tiny.csv"]


def test_a_transfer_that_breaks_twice_keeps_both_parts(tmp_path, entry, server):
    partial = put(tmp_path, CONTENT[:100], "tiny.csv.partial")
    server.mode = "cut the rest"
    with pytest.raises(DownloadError, match="broke off"):
        files.require(entry, tmp_path)
    kept = partial.read_bytes()
    assert len(kept) >= files.CHUNK
    assert kept == CONTENT[: len(kept)]


@pytest.mark.parametrize("mode", ["whole", "elsewhere", "ranges"])
@pytest.mark.parametrize(
    "rest",
    [CONTENT[:HALF], CONTENT, CONTENT + b"1,1\n", b"an older file"],
    ids=["half", "all", "more", "other"],
)
def test_whatever_a_broken_transfer_left_the_file_is_right(tmp_path, entry, server, mode, rest):
    put(tmp_path, rest, "tiny.csv.partial")
    server.mode = mode
    assert files.require(entry, tmp_path).read_bytes() == CONTENT
    assert names_in(tmp_path) == ["tiny.csv"]
    assert server.ranges[0] == f"bytes={len(rest)}-"


def test_without_a_checksum_no_transfer_is_continued(tmp_path, entry, server):
    entry = replace(entry, sha256=())
    server.mode = "cut"
    with pytest.raises(DownloadError, match="broke off"):
        files.require(entry, tmp_path)
    assert names_in(tmp_path) == []
    put(tmp_path, b"an older file", "tiny.csv.partial")
    server.mode = "ranges"
    assert files.require(entry, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, None]
    assert names_in(tmp_path) == ["tiny.csv"]


def test_a_transfer_that_ends_early_without_a_word_is_an_error(tmp_path, entry, monkeypatch):
    monkeypatch.setattr(requests.Response, "iter_content", lambda self, size: [CONTENT[:size]])
    with pytest.raises(DownloadError, match="broke off"):
        files.require(replace(entry, sha256=()), tmp_path)
    assert names_in(tmp_path) == []


def test_ctrl_c_keeps_what_came(tmp_path, entry, monkeypatch):
    def interrupt(self, size):
        yield CONTENT[:size]
        raise KeyboardInterrupt

    monkeypatch.setattr(requests.Response, "iter_content", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.require(entry, tmp_path)
    assert names_in(tmp_path) == ["tiny.csv.partial"]
    assert (tmp_path / "raw" / "tiny" / "tiny.csv.partial").read_bytes() == CONTENT[: files.CHUNK]


@pytest.mark.parametrize(
    ("mode", "reason"), [("404", "answered 404 Not Found"), ("503", "answered 503")]
)
def test_an_answer_that_is_no_file_names_address_page_and_place(
    tmp_path, entry, server, mode, reason
):
    server.mode = mode
    put(tmp_path, CONTENT[:HALF], "tiny.csv.partial")
    target = tmp_path / "raw" / "tiny" / "tiny.csv"
    with pytest.raises(DownloadError) as caught:
        files.require(entry, tmp_path)
    for part in (server.url, reason, f"open {entry.page}", f"save it as {target}"):
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, requests.HTTPError)
    assert names_in(tmp_path) == ["tiny.csv.partial"]


def test_a_server_that_is_not_there(tmp_path, entry, server):
    gone = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{gone.server_port}/tiny.csv"
    gone.server_close()
    with pytest.raises(DownloadError, match=rf"{re.escape(url)}: the connection failed.*by hand"):
        files.require(replace(entry, url=url), tmp_path)
    assert names_in(tmp_path) == []


def test_a_server_that_is_silent(tmp_path, entry, server, monkeypatch):
    monkeypatch.setattr(files, "TIMEOUT", (1.0, 0.2))
    server.mode = "silent"
    with pytest.raises(DownloadError, match="did not answer in time"):
        files.require(entry, tmp_path)


def test_an_address_that_is_none(tmp_path, entry):
    with pytest.raises(DownloadError, match=r"from gopher://hole/tiny.csv: No connection adapters"):
        files.require(replace(entry, url="gopher://hole/tiny.csv"), tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path, entry, server):
    (tmp_path / "raw").touch()
    with pytest.raises(DownloadError, match=r"could not write .*tiny\.csv: .*set MUDDLE_DATA"):
        files.require(entry, tmp_path)
    assert server.ranges == []


@pytest.mark.parametrize("package", ["pooch", "requests"])
def test_without_pooch_the_extra_is_named(tmp_path, entry, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=r"'tiny'.*pip install 'muddle\[datasets\]'"):
        files.require(entry, tmp_path)


@pytest.mark.parametrize("rest", [b"", CONTENT[:HALF]], ids=["from nothing", "from a half"])
def test_two_fetches_at_once_both_get_the_right_file(tmp_path, entry, server, rest):
    if rest:
        put(tmp_path, rest, "tiny.csv.partial")
    server.barrier = threading.Barrier(2)  # neither is answered before both have asked
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(files.require(entry, tmp_path)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() for path in found] == [CONTENT, CONTENT]
    assert names_in(tmp_path) == ["tiny.csv"]
    # Only one may continue the rest: the other would write into the same file.
    assert sorted(server.ranges, key=str) == [None, f"bytes={HALF}-" if rest else None]


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_shown_where_asked_for(tmp_path, entry, progress, monkeypatch):
    import pooch
    import tqdm.auto

    bars, steps, logged = [], [], []
    monkeypatch.setattr(pooch.get_logger(), "callHandlers", logged.append)

    class Bar(tqdm.auto.tqdm):
        def __init__(self, **options):
            bars.append(options)
            super().__init__(**options)

        def update(self, n):
            steps.append(n)
            super().update(n)

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    put(tmp_path, CONTENT[:HALF], "tiny.csv.partial")
    files.require(entry, tmp_path, progress=progress)
    if not progress:
        assert bars == logged == []
        return
    (options,) = bars
    assert (options["desc"], options["initial"]) == ("tiny.csv", HALF)
    assert options["total"] == len(CONTENT)
    assert options["disable"] is None  # nothing but a terminal gets a bar
    assert sum(steps) == len(CONTENT) - HALF
    assert "tiny/tiny.csv" in logged[0].getMessage()


def test_progress_without_tqdm_is_no_error(tmp_path, entry, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert files.require(entry, tmp_path, progress=True).read_bytes() == CONTENT


def test_a_quiet_download_does_not_silence_pooch_for_others(tmp_path, entry, monkeypatch):
    import pooch

    logged = []
    monkeypatch.setattr(pooch.get_logger(), "callHandlers", logged.append)
    files.require(entry, tmp_path)
    pooch.get_logger().info("from elsewhere")
    assert [record.getMessage() for record in logged] == ["from elsewhere"]


# Several at once


@pytest.fixture
def home(tmp_path, server):
    """A data folder with three tables of its own: from a server, broken, and by hand."""
    (tmp_path / "catalogue.toml").write_text(
        f"""
        [tiny]
        file = "tiny/tiny.csv"
        target = "y"
        url = "{server.url}"
        sha256 = ["{HASH}"]
        [wrong]
        file = "wrong.csv"
        target = "y"
        url = "{server.url}"
        sha256 = ["{"f" * 64}"]
        [handmade]
        file = "handmade.csv"
        target = "y"
        page = "https://example.org/handmade"
        """
    )
    return tmp_path


def test_fetch_goes_on_after_a_failure_and_reports_all_together(home):
    with pytest.raises(DownloadError, match=r"2 of 3 data sets could not be fetched") as caught:
        files.fetch(["wrong", "handmade", "tiny"], home, progress=False)
    message = str(caught.value)
    assert "f" * 64 in message
    assert "https://example.org/handmade" in message
    group = caught.value.__cause__
    assert [type(error) for error in group.exceptions] == [ChecksumError, MissingDataError]
    assert names_in(home) == ["catalogue.toml", "tiny.csv"]


def test_fetch_of_one_raises_its_own_error(home):
    with pytest.raises(ChecksumError):
        files.fetch(["wrong"], home, progress=False)
    with pytest.raises(MissingDataError):
        files.fetch("handmade", home, progress=False)


def test_fetch_gives_one_path_per_name(home, server):
    path = home / "raw" / "tiny" / "tiny.csv"
    assert files.fetch("tiny", home, progress=False) == [path]
    assert files.fetch(["tiny", "tiny"], str(home), progress=False) == [path]
    assert server.ranges == [None]


def test_fetch_of_an_unknown_name_starts_nothing(home, server):
    with pytest.raises(UnknownDatasetError, match="Did you mean 'tiny'"):
        files.fetch(["tiny", "tinny"], home, progress=False)
    assert server.ranges == []


def test_without_names_all_are_meant_the_own_ones_too(home):
    ids = [entry.id for entry in files.find_entries(None, home)]
    assert len(ids) > 33
    assert {"tiny", "wrong", "handmade", "servo"} <= set(ids)


def test_each_outcome_says_what_happened(home):
    def states():
        entries = files.find_entries(["tiny", "wrong", "handmade"], home)
        return [outcome.state for outcome in files.fetch_each(entries, home, progress=False)]

    assert states() == ["fetched", "failed", "by hand"]
    assert states() == ["present", "failed", "by hand"]


def test_without_pooch_a_fetch_of_several_stops_at_once(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingPackageError):
        files.fetch(["tiny", "wrong"], home, progress=False)
