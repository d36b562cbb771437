#!/usr/bin/env python3
"""site.py [OUT]: the documentation as a site of static files, in OUT (dist/site).

mdBook makes the pages that docs/SUMMARY.md lists, with search. Files of the repository that pages link to are
copied as text. The playground is built into OUT/playground: `<!-- try: NAME -->` in a page becomes a link
that opens the example NAME there, `<!-- try -->` a link to the playground itself.

mdBook comes from crates.io, once, into target/site. SITE_REPOSITORY is the address of the repository, for a
link on each page, SITE_PATH the path of the site on its server, if that is not /.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target/site"
MDBOOK = "0.5.4"
# Its features: search, and neither a server nor a watch for changes.
FEATURES = ["--no-default-features", "--features", "search"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
DECISION = re.compile(r"\[([^]]+)\]\((decisions/[^)]+)\)")
TRY = re.compile(r"^<!-- try(?:: (\S+))? -->$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# What browsers show as it is; other files of the repository get the extension of a text.
SHOWN = {".svg", ".png"}


def mdbook():
    """The program, installed if it is not there yet."""
    program = WORK / "tools/bin/mdbook"
    said = ""
    if program.exists():
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if said.strip() != f"mdbook v{MDBOOK}":
        print(f"site: compiling mdBook {MDBOOK}, once", file=sys.stderr)
        subprocess.run(
            [os.environ.get("CARGO", "cargo"), "install", "mdbook", "--version", MDBOOK, "--locked",
             "--quiet", *FEATURES, "--root", WORK / "tools", "--target-dir", WORK / "build"],
            check=True, cwd=ROOT,
        )
        shutil.rmtree(WORK / "build")
    return program


class Pages:
    """The pages of docs/SUMMARY.md, in a folder with the layout of the repository: links stay right."""

    def __init__(self, folder):
        self.folder = folder
        summary = self.with_decisions((ROOT / "docs/SUMMARY.md").read_text())
        self.chapters = {self.path("docs/SUMMARY.md", target) for target in LINK.findall(summary)}
        summary = LINK.sub(lambda link: f"]({self.path('docs/SUMMARY.md', link[1])})", summary)
        self.write("SUMMARY.md", summary)
        for chapter in sorted(self.chapters):
            self.write(chapter, self.page(chapter))

    @staticmethod
    def with_decisions(summary):
        """The list with a page for each decision below their index: docs/design/decisions.md lists them."""
        index = "design/decisions.md"
        pages = DECISION.findall((ROOT / "docs" / index).read_text())
        below = "".join(f"  - [{title}](design/{page})\n" for title, page in pages)
        first, line, rest = summary.partition(f"]({index})\n")
        if not (pages and line):
            sys.exit(f"site: docs/SUMMARY.md does not list {index}, or it lists no decision")
        return first + line + below + rest

    @staticmethod
    def path(page, target):
        """A link's file, seen from the root of the repository."""
        return os.path.normpath(PurePosixPath(page).parent / target)

    def write(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def page(self, chapter):
        """A page with the links of the site. Blocks of code stay as they are."""
        text = (ROOT / chapter).read_text()
        depth = chapter.count("/")
        done, end = "", 0
        for block in [*CODE.finditer(text), None]:
            prose = text[end:block.start() if block else None]
            prose = LINK.sub(lambda link: f"]({self.target(chapter, link[1])})", prose)
            done += TRY.sub(lambda mark: self.playground(depth, mark[1]), prose)
            if block:
                done, end = done + block[0], block.end()
        return done

    @staticmethod
    def playground(depth, example):
        words = f"Try it in the browser: {example}" if example else "Open the playground"
        mark = f"#{example}" if example else ""
        return f'<p class="try"><a href="{"../" * depth}playground/index.html{mark}">{words}</a></p>'

    def target(self, chapter, link):
        """What a link of a page leads to in the site; what is no page is copied."""
        file, mark, fragment = link.partition("#")
        if not file or "://" in link or link.startswith("mailto:"):
            return link
        path = self.path(chapter, file)
        if path in self.chapters:
            return re.sub(r"README\.md$", "index.md", file) + mark + fragment
        source = ROOT / path
        if source.is_dir():
            inside = (one for one in source.rglob("*") if one.is_file())
            names = sorted(str(one.relative_to(ROOT)) for one in inside)
            text = "\n".join(names) + "\n"
        elif not source.is_file():
            sys.exit(f"site: {chapter} links to {link}, and there is no {path}")
        elif source.suffix in SHOWN:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, self.folder / path)
            return file
        else:
            text = source.read_text()
        # mdBook takes what has `.md` in its name for a page.
        self.write(f"{path.replace('.md', '-md')}.txt", text)
        return f"{file.rstrip('/').replace('.md', '-md')}.txt"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", nargs="?", default=ROOT / "dist/site", type=Path)
    out = arguments.parse_args().out.resolve()
    program = mdbook()
    book = WORK / "book"
    shutil.rmtree(book, ignore_errors=True)
    (book / "src").mkdir(parents=True)
    pages = Pages(book / "src")
    settings = (ROOT / "docs/site/book.toml").read_text()
    html = "[output.html]\n"
    for variable, field in [("SITE_REPOSITORY", "git-repository-url"), ("SITE_PATH", "site-url")]:
        if os.environ.get(variable):
            html += f'{field} = "{os.environ[variable]}"\n'
    (book / "book.toml").write_text(settings.replace("[output.html]\n", html, 1))
    shutil.copyfile(ROOT / "docs/site/site.css", book / "site.css")
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([program, "build", book, "--dest-dir", out], check=True)
    subprocess.run([ROOT / "scripts/playground.sh", out / "playground"], check=True)
    # GitHub's servers would leave out files whose names begin with a line.
    (out / ".nojekyll").touch()
    print(f"{out}: {len(pages.chapters)} pages; serve them with 'python3 -m http.server --directory {out}'")


if __name__ == "__main__":
    main()
