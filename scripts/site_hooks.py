"""Copy the files of the repository that pages link to; the site needs them besides docs/.

In the repository a page may link to ../results/flagship.txt; the site has nothing outside docs/.
So results, examples and the texts at the root are copied to `repository/`, and links are rewritten.
"""

import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PLACE = "repository"
TEXTS = ("CHANGELOG.md", "CONTRIBUTING.md")
FOLDERS = ("results", "examples")
# Target of a Markdown link that is neither a URL nor an anchor of the page itself.
LINK = re.compile(r"\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that pages link to, but not to the menu."""
    copied = [ROOT / name for name in TEXTS]
    for folder in FOLDERS:
        copied += sorted(path for path in (ROOT / folder).rglob("*") if path.is_file())
    for path in copied:
        files.append(
            File.generated(
                config,
                f"{PLACE}/{path.relative_to(ROOT).as_posix()}",
                abs_src_path=str(path),
                inclusion=InclusionLevel.NOT_IN_NAV,
            )
        )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between files of the site."""
    source = PurePosixPath(page.file.src_uri)
    home = source.relative_to(PLACE) if source.parts[0] == PLACE else PurePosixPath("docs") / source
    return LINK.sub(lambda link: _rewrite(link, home, source), markdown)


def _rewrite(link: re.Match[str], home: PurePosixPath, source: PurePosixPath) -> str:
    """home: where the page lies in the repository; source: where it lies on the site."""
    target = _resolve(home.parent / link["target"])
    inside = target.parts[:1] == ("docs",)
    place = PurePosixPath(*target.parts[1:]) if inside else PLACE / target
    steps = "../" * (len(source.parts) - 1)
    return f"]({steps}{place}{link['anchor'] or ''})"


def _resolve(path: PurePosixPath) -> PurePosixPath:
    """The path without its `..`."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)
