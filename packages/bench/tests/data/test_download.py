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

from muddle.errors import DataFormatError, MissingDataError
from muddle_bench.data import download
from muddle_bench.data.catalogue import Entry
from muddle_bench.data.download import content_sha256, fetch, find_data_home, locate, require
from muddle_bench.errors import ChecksumError, DownloadError, UnknownDatasetError

LINES = [f"{i},{i * i % 7}" for i in range(40_000)]  # as the server's
CONTENT = "\n".join(["x,y", *LINES]).encode() + b"\n"
HASH = hashlib.sha256("\n".join(LINES).encode()).hexdigest()


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


def hash_content(folder, content, **options):
    path = folder / "file"
    path.write_bytes(content)
    return content_sha256(path, **{"header": True} | options)


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
    assert hash_content(tmp_path, content) == hashlib.sha256(b"1,2\n3,4").hexdigest()


@pytest.mark.parametrize("content", [b"a\n1,2\n3,5", b"a\n3,4\n1,2", b"a\n1,23,4", b"a\n 1,2\n3,4"])
def test_other_data_lines_have_another_checksum(tmp_path, content):
    assert hash_content(tmp_path, content) != hashlib.sha256(b"1,2\n3,4").hexdigest()
    marked = b"\xef\xbb\xbf1,2\n3,4\n"  # a byte order mark never counts, the first line may
    for encoding in ("utf-8-sig", "utf-8"):
        found = hash_content(tmp_path, marked, header=False, encoding=encoding)
        assert found == hashlib.sha256(b"1,2\n3,4").hexdigest()


def test_the_checksum_is_of_the_text_and_undecodable_bytes_have_their_own(tmp_path):
    found = hash_content(tmp_path, "25°\n".encode("latin-1"), header=False, encoding="latin-1")
    assert found == hashlib.sha256("25°".encode()).hexdigest()
    contents = (b"\xff\xfe", b"\xff\xfd", b"?")
    assert len({hash_content(tmp_path, content, header=False) for content in contents}) == 3


def test_data_home_is_the_argument_then_the_variables_then_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MUDDLE_DATA", "")  # counts as unset
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert find_data_home() == tmp_path / ".cache" / "muddle"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert find_data_home() == tmp_path / "cache" / "muddle"
    monkeypatch.setenv("MUDDLE_DATA", "~/tables")
    assert find_data_home() == tmp_path / "tables"
    assert find_data_home("~/other") == tmp_path / "other"
    monkeypatch.chdir(tmp_path)
    assert find_data_home("here") == tmp_path / "here"
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"must be a folder, got the file .*set MUDDLE_DATA"):
        find_data_home(tmp_path / "file")


def test_a_file_is_found_plain_or_gzipped(tmp_path, entry):
    (tmp_path / "raw" / "tiny" / "tiny.csv").mkdir(parents=True)
    assert locate(entry, tmp_path) is None  # a folder is not the file
    (tmp_path / "raw" / "tiny" / "tiny.csv").rmdir()
    zipped = put(tmp_path, gzip.compress(CONTENT), "tiny.csv.gz")
    assert locate(entry, tmp_path) == require(entry, tmp_path) == zipped
    plain = put(tmp_path, CONTENT)
    assert locate(entry, tmp_path) == plain


def test_a_present_file_needs_no_server_and_writes_nothing(tmp_path, entry, server, monkeypatch):
    put(tmp_path, CONTENT)
    for name in ("pooch", "requests"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(os, "replace", None)
    assert require(entry, tmp_path) == tmp_path / "raw" / "tiny" / "tiny.csv"
    assert names_in(tmp_path) == ["tiny.csv"]
    assert server.n_requests == 0


def test_a_changed_file_is_an_error_that_names_it_and_stays(tmp_path, entry):
    path = put(tmp_path, CONTENT.replace(b"9,4", b"9,5", 1))
    found = content_sha256(path, header=True)
    with pytest.raises(ChecksumError) as caught:
        require(entry, tmp_path)
    for part in (str(path), found, HASH, "Move it away", "`muddle datasets fetch tiny`"):
        assert part in str(caught.value)
    assert path.exists()
    by_hand = f"open https://example.org/tiny, download tiny.csv and save it as {path}"
    with pytest.raises(ChecksumError, match=re.escape(by_hand)):
        require(replace(entry, url=None), tmp_path)


@pytest.mark.parametrize(
    ("content", "name", "change", "error", "message"),
    [
        (gzip.compress(CONTENT)[:-50], "tiny.csv.gz", {}, ChecksumError, "cannot be unzipped"),
        (b"\xff\xfe\x00\x01", "tiny.csv", {"header": "optional"}, ChecksumError, "read as text"),
        (
            CONTENT,
            "tiny.csv",
            {"encoding": "utf-nine"},
            DataFormatError,
            r"\[tiny\] encoding must be one .*utf-nine",
        ),
    ],
)
def test_an_unreadable_file_is_an_error(tmp_path, entry, content, name, change, error, message):
    put(tmp_path, content, name)
    with pytest.raises(error, match=message):
        require(replace(entry, **change), tmp_path)


@pytest.mark.parametrize("content", [CONTENT, CONTENT.partition(b"\n")[2]], ids=["with", "without"])
def test_an_optional_header_does_not_change_the_checksum(tmp_path, entry, content):
    path = put(tmp_path, content)
    assert require(replace(entry, header="optional"), tmp_path) == path


def test_an_absent_file_without_a_download_says_exactly_what_to_do(tmp_path, entry, server):
    target = tmp_path / "raw" / "tiny" / "tiny.csv"
    by_hand = f"open https://example.org/tiny, download tiny.csv and save it as {target}."
    with pytest.raises(MissingDataError, match=re.escape(by_hand)):
        require(replace(entry, url=None), tmp_path)
    with pytest.raises(MissingDataError, match=re.escape(f"hand: save the file as {target}.")):
        require(replace(entry, url=None, page=""), tmp_path)
    assert server.n_requests == 0


def test_an_absent_file_is_downloaded_once_and_nothing_else_stays(tmp_path, entry, server):
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    path = require(entry, tmp_path)
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)
    assert require(entry, tmp_path) == path
    assert server.n_requests == 1
    assert names_in(tmp_path) == ["ordinary", "tiny.csv"]


def test_a_damaged_download_leaves_nothing_and_says_what_to_do(tmp_path, entry, server):
    server.mode = "damaged"
    with pytest.raises(ChecksumError) as caught:
        require(entry, tmp_path)
    for part in (server.url, "tiny.csv", HASH, "Nothing was saved", "try again", "by hand: open"):
        assert part in str(caught.value)
    assert names_in(tmp_path) == []


def test_a_file_has_its_name_only_after_its_checksum_was_verified(tmp_path, entry, monkeypatch):
    seen = []

    def find_fault(entry, path):
        seen.append((path.name, path.read_bytes() == CONTENT, names_in(tmp_path)))

    monkeypatch.setattr(download, "_find_fault", find_fault)
    require(entry, tmp_path)
    ((name, is_whole, names),) = seen
    assert is_whole
    assert names == [name] != ["tiny.csv"]


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("404", "answered 404 Not Found"),
        ("503", "answered 503"),
        ("cut", "broke off"),
        ("silent", "did not answer in time"),
    ],
)
def test_a_failed_download_leaves_nothing(tmp_path, entry, server, monkeypatch, mode, reason):
    monkeypatch.setattr(download, "TIMEOUT", (1.0, 0.2))
    server.mode = mode
    target = tmp_path / "raw" / "tiny" / "tiny.csv"
    with pytest.raises(DownloadError) as caught:
        require(entry, tmp_path)
    for part in (server.url, reason, f"open {entry.page}", f"save it as {target}"):
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, requests.RequestException)
    assert names_in(tmp_path) == []


def test_an_address_without_a_server_is_named(tmp_path, entry):
    gone = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    url = f"http://127.0.0.1:{gone.server_port}/tiny.csv"
    gone.server_close()
    with pytest.raises(DownloadError, match=rf"{re.escape(url)}: the connection failed.*by hand"):
        require(replace(entry, url=url), tmp_path)
    with pytest.raises(DownloadError, match=r"from gopher://hole/tiny.csv: No connection adapters"):
        require(replace(entry, url="gopher://hole/tiny.csv"), tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path, entry, server):
    (tmp_path / "raw").touch()
    with pytest.raises(DownloadError, match=r"could not write .*tiny\.csv: .*set MUDDLE_DATA"):
        require(entry, tmp_path)
    assert server.n_requests == 0


def test_two_fetches_at_once_both_get_the_right_file(tmp_path, entry, server):
    server.barrier = threading.Barrier(2)  # neither is answered before both have asked
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(require(entry, tmp_path))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() for path in found] == [CONTENT, CONTENT]
    assert names_in(tmp_path) == ["tiny.csv"]


@pytest.fixture
def home(tmp_path, server):
    """A data folder with three tables of its own: from a server, broken, and by hand."""
    (tmp_path / "catalogue.toml").write_text(
        f"""
        tiny = {{ file = "tiny/tiny.csv", target = "y", url = "{server.url}", sha256 = ["{HASH}"] }}
        wrong = {{ file = "bad.csv", target = "y", url = "{server.url}", sha256 = ["{"f" * 64}"] }}
        handmade = {{ file = "handmade.csv", target = "y", page = "https://example.org/handmade" }}
        """
    )
    return tmp_path


def test_fetch_goes_on_after_a_failure_and_raises_the_error_of_one_alone(home, server):
    with pytest.raises(DownloadError, match=r"2 of 3 data sets could not be fetched") as caught:
        fetch(["wrong", "handmade", "tiny"], home, progress=False)
    message = str(caught.value)
    assert "f" * 64 in message
    assert "https://example.org/handmade" in message
    group = caught.value.__cause__
    assert [type(error) for error in group.exceptions] == [ChecksumError, MissingDataError]
    assert names_in(home) == ["catalogue.toml", "tiny.csv"]
    with pytest.raises(ChecksumError):
        fetch(["wrong"], home, progress=False)
    with pytest.raises(MissingDataError):
        fetch("handmade", home, progress=False)
    path = home / "raw" / "tiny" / "tiny.csv"
    assert fetch(["tiny", "tiny"], str(home), progress=False) == [path]
    server.n_requests = 0
    with pytest.raises(UnknownDatasetError, match="Did you mean 'tiny'"):
        fetch(["tiny", "tinny"], home, progress=False)
    assert server.n_requests == 0
