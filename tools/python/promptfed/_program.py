"""Finds and starts the program promptfed."""
from __future__ import annotations

import html
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterable, List


class Error(Exception):
    """A failure of the program, with its line as the message; or a folder that this package cannot read."""


def program() -> str:
    """Returns the path of the program: of the installed wheel, otherwise the one on the PATH."""
    try:
        installed = importlib.metadata.files("promptfed") or []
    except importlib.metadata.PackageNotFoundError:
        installed = []
    for file in installed:
        if file.stem == "promptfed" and file.suffix in ("", ".exe") and Path(file.locate()).is_file():
            return str(Path(file.locate()).resolve())
    found = shutil.which("promptfed")
    if not found:
        raise Error("the program promptfed was not found: install the wheel of this platform, or put the program on "
                    "the PATH")
    return found


def version() -> str:
    """Returns the version of the program, as `promptfed --version` prints it."""
    return _output(["--version"]).split(None, 1)[1].strip()


def ask(arguments: Iterable[Any]) -> List[Any]:
    """Runs a command with --json and returns its lines of JSON, decoded."""
    return [json.loads(line) for line in _output([*arguments, "--json"]).splitlines() if line.strip()]


def _output(arguments: Iterable[Any]) -> str:
    p = subprocess.run([program(), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                       encoding="utf-8")
    if p.returncode:
        raise Error(_reason(p.stderr.splitlines(), p.returncode))
    return p.stdout


def _reason(lines: List[str], code: int) -> str:
    """Returns the program's last line, which is its error."""
    lines = [line for line in lines if line.strip()]
    return re.sub("^promptfed: ", "", lines[-1]) if lines else f"promptfed ended with exit code {code}"


def start(arguments: Iterable[Any], progress: bool) -> Any:
    """Runs a command that trains, shows its progress and the notes of its report, and returns its JSON. An interrupt
    stops the command after its last finished round."""
    command = [program(), *map(str, arguments), "--json", *([] if progress else ["--quiet"])]
    line, show = "", _Progress()
    with tempfile.TemporaryFile() as result, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=result, stderr=subprocess.PIPE, encoding="utf-8") as p:
        assert p.stderr
        try:
            for line in p.stderr:
                if not line.startswith("promptfed: ") or line.startswith("promptfed: note: "):
                    show(line.rstrip("\n"))
        except BaseException:  # an interrupt, or an error of the display
            if os.name == "posix":
                p.send_signal(signal.SIGINT)  # on Windows a console has sent it to both
            else:
                p.terminate()
            p.stderr.read()
            p.wait()
            raise
        finally:
            show.end()
        code = p.wait()
        result.seek(0)
        if code:
            raise Error(_reason([line.strip()], code))
        out = json.loads(result.read())
        for note in out["report"]["notes"] if progress and out["report"] else ():
            show(f"promptfed: note: {note}")
        return out


class _Progress:
    """Shows lines of the program: in a terminal or a notebook as one line that changes, with warnings, notes and
    failures above it; elsewhere line by line."""

    _kept = re.compile(r": (?:warning|note): | failed: ")
    _share = re.compile(r"\b(\d+)(?:/| of )(\d+)\b")

    def __init__(self) -> None:
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        self.notebook = hasattr(shell, "kernel")
        self.terminal = not self.notebook and sys.stderr.isatty()
        self.handle: Any = None

    def __call__(self, line: str) -> None:
        if self._kept.search(line) or not (self.notebook or self.terminal):
            self.end()
            print(line, file=sys.stderr, flush=True)
        elif self.terminal:
            width = shutil.get_terminal_size().columns - 1
            print("\r\x1b[K" + line[:width], end="", file=sys.stderr, flush=True)
        else:
            from IPython.display import display

            share = self._share.search(line)
            bar = '<progress value="%s" max="%s"></progress> ' % share.groups() if share else ""
            data = {"text/plain": line, "text/html": bar + html.escape(line)}
            if self.handle:
                self.handle.update(data, raw=True)
            else:
                self.handle = display(data, raw=True, display_id=True)

    def end(self) -> None:
        """Removes the changing line of a terminal."""
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
