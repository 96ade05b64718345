"""Starting of runs and sweeps: configurations, methods, progress, errors and interrupts."""
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import types

import numpy
import pytest

import promptfed
from promptfed import _program
from conftest import REPOSITORY

METHOD = REPOSITORY / "federation/methods/fromfile/example.onnx"
IMAGE = REPOSITORY / "models/preprocess/testdata/bit.png"


def same(a, b):
    """Whether two runs learned the same, to the last bit."""
    return (a.folder / "prompts.safetensors").read_bytes() == (b.folder / "prompts.safetensors").read_bytes()


def test_files_dicts_and_overrides_agree(config, finished, tmp_path):
    file = tmp_path / "named.yaml"
    file.write_text("name: small\nmethod: promptfl\noptions: {tokens: 4}\nbackbones: [tiny-vit-b16]\n"
                    "data: {set: synthetic, generator: {train: 8, test: 4}}\npartition: {clients: 2}\n"
                    "train: {lr: 0.9}\neval: {every: 2}\n")
    run = promptfed.run(file, out=tmp_path / "a", progress=False, train__rounds=numpy.int64(3), train__lr=0.05,
                        backbones=("tiny-vit-b32",), data__generator__domains=["neon"],
                        **{"data.generator.classes": numpy.array(["circle", "square", "star", "house"])})
    assert same(run, finished) and run.settings == finished.settings
    text = promptfed.run(config, out=tmp_path / "b", progress=False, name="1.0", data__template="no {}, yes")
    assert text.summary["name"] == "1.0" and text.settings["data.template"] == "no {}, yes"


def test_methods(config, tmp_path):
    class Exported:
        def export(self, path):
            shutil.copy(METHOD, path)

    runs = [promptfed.run(config, method, out=tmp_path / str(i), progress=False)
            for i, method in enumerate([Exported(), METHOD, str(METHOD), "coop"])]
    assert [r.method for r in runs] == ["Exported", "example", "example", "coop"]
    assert runs[0].name == "small" and runs[0].summary["method"] == "Exported"
    assert set(promptfed.compare(runs[0], runs[1], runs[3]).table()["run"]) == {
        "small, method=Exported", "small, method=example", "small, method=coop"}
    assert same(runs[0], runs[1]) and same(runs[0], runs[2]) and not same(runs[0], runs[3])
    assert runs[0].prompts["shared/ctx"].shape[0] == 4  # the configuration's tokens
    sweep = promptfed.sweep(config, {"method": ["coop", Exported()]}, seeds=[1], out=tmp_path / "sweep", progress=False)
    assert sweep.table()["method"].tolist() == ["coop", "Exported"]
    assert same(sweep.runs[0], runs[3]) and same(sweep.runs[1], runs[0])
    again = promptfed.sweep(tmp_path / "sweep/sweep.yaml", out=tmp_path / "again", progress=False)
    assert same(again.runs[1], runs[0])  # the file is in the sweep


def test_sweep_of_a_file_with_axes(config, tmp_path):
    config["sweep"] = {"seeds": [7], "axes": [{"name": "method", "points": [
        {"label": "A", "set": {"method": "promptfl"}}, {"label": "B", "set": {"method": "coop"}}]}]}
    (tmp_path / "sweep.yaml").write_text(json.dumps(config))
    sweep = promptfed.sweep(tmp_path / "sweep.yaml", {"train__rounds": [1, 2]}, keep={"method": ["B"]}, jobs=1,
                            out=tmp_path / "out", progress=False)
    assert [(r.method, len(r.records), r.seed) for r in sweep] == [("coop", 1, 7), ("coop", 2, 7)]
    with pytest.raises(promptfed.Error, match="has 4 runs: use promptfed.sweep"):
        promptfed.run(tmp_path / "sweep.yaml", out=tmp_path / "more", progress=False, flags=["--seeds", "1,2"],
                      train__rounds=1)


def test_errors_are_the_programs_lines(config, tmp_path):
    with pytest.raises(promptfed.Error, match="^--set train.round=3: unknown key train.round: did you"):
        promptfed.run(config, train__round=3)
    with pytest.raises(promptfed.Error, match="^open gone.yaml: no such file or directory$"):
        promptfed.run("gone.yaml")
    with pytest.raises(TypeError, match="object .* is no value of a configuration"):
        promptfed.run(config, train__rounds=object())
    with pytest.raises(ValueError):
        promptfed.run(config, train__lr=float("nan"))
    promptfed.run(config, out=tmp_path / "a", progress=False)
    with pytest.raises(promptfed.Error, match="already holds a run; use --resume"):
        promptfed.run(config, out=tmp_path / "a", progress=False)
    promptfed.run(config, out=tmp_path / "a", progress=False, force=True)


def test_a_failed_cell(config, tmp_path):
    for name in ("good", "bad"):
        for image in ("train/a/1", "train/a/2", "train/b/1", "train/b/2", "test/a/3", "test/b/3"):
            (tmp_path / name / image).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(IMAGE, tmp_path / name / (image + ".png"))
    (tmp_path / "bad/train/a/1.png").write_bytes(b"no image")
    config.update(data={"set": "folder"}, partition={"clients": 1})
    with pytest.raises(promptfed.Error, match="^[^\n]*1 of 2 cells failed[^\n]*$"):
        promptfed.sweep(config, {"data.root": [str(tmp_path / "good"), str(tmp_path / "bad")]}, out=tmp_path / "out",
                        progress=False)
    sweep = promptfed.load(tmp_path / "out")
    assert len(sweep) == 1 and "1.png" in "".join(sweep.failed.values())


def test_the_program_is_missing(monkeypatch):
    def missing(name):
        raise _program.importlib.metadata.PackageNotFoundError(name)

    here = promptfed.program()
    assert pathlib.Path(here).parent == pathlib.Path(sys.executable).parent
    monkeypatch.setattr(_program.importlib.metadata, "files", missing)
    monkeypatch.setenv("PATH", str(pathlib.Path(here).parent))
    assert promptfed.program() == here
    monkeypatch.setenv("PATH", "")
    with pytest.raises(promptfed.Error, match="promptfed was not found: install the wheel"):
        promptfed.program()


def test_version():
    assert "commit" in promptfed.version()


def test_progress_elsewhere(config, tmp_path, capfd):
    promptfed.run(config, out=tmp_path / "a")
    lines = capfd.readouterr().err.splitlines()
    assert sum("small, seed 1: round " in line for line in lines) == 3 and not any("\r" in line for line in lines)
    promptfed.run(config, out=tmp_path / "b", progress=False)
    assert capfd.readouterr().err == ""


def test_notes(config, tmp_path, capfd):
    """Dropped options of a file and advice are shown; the run and the sweep keep what the report says."""
    run = promptfed.run(config, out=tmp_path / "a", train__rounds=1, train__lr=100)
    said = capfd.readouterr().err
    assert [n for n in run.notes if "below zero-shot" in n and "options.tokens" in n]
    assert all(f"promptfed: note: {n}\n" in said for n in run.notes)
    assert promptfed.load(tmp_path).notes == run.notes
    promptfed.run(config, "fedpha", out=tmp_path / "b", train__rounds=1, progress=False)
    assert capfd.readouterr().err == 'promptfed: note: --set method="fedpha" drops the options of promptfl: tokens\n'


def test_progress_in_a_terminal(config, tmp_path, monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    promptfed.run(config, out=tmp_path / "a")
    kept = [line.rsplit("\r\x1b[K", 1)[1] for line in screen.getvalue().split("\n")]
    assert len(kept) == 2 and "note: backbone tiny-vit-b32 is a toy" in kept[0] and kept[1] == ""
    assert "\r\x1b[Ksmall, seed 1: round 3/3, loss" in screen.getvalue()


def test_progress_in_a_notebook(config, tmp_path, monkeypatch, capsys):
    shown = []

    class Handle:
        def update(self, data, raw):
            assert raw
            shown.append(data)

    def display(data, raw, display_id):
        assert raw and display_id
        shown.append(data)
        return Handle()

    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython, module.display = lambda: types.SimpleNamespace(kernel=1), display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    promptfed.run(config, out=tmp_path / "a", name="a<b")
    assert shown[-1]["text/plain"].startswith("a<b, seed 1: round 3/3, loss")
    assert shown[-1]["text/html"].startswith('<progress value="3" max="3"></progress> a&lt;b, seed 1: round 3/3')
    assert "note:" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to one process")
def test_interrupt_and_resume(config, tmp_path):
    for planned in 150, 1500, 15000:  # a short run may end before the signal comes
        config["train"]["rounds"], out = planned, tmp_path / str(planned)
        code = f"import promptfed; promptfed.run({config!r}, out={str(out)!r})"
        p = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, encoding="utf-8",
                             start_new_session=True)
        rounds = out / "rounds.jsonl"
        while p.poll() is None and (not rounds.exists() or len(rounds.read_bytes().splitlines()) < 3):
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)  # as a notebook does: the program does not get it
        said = p.communicate()[1]
        if p.returncode:
            break
    assert said.splitlines()[-1].startswith("KeyboardInterrupt") and p.returncode != 0
    stopped = promptfed.load(out)
    assert stopped.status()["state"] == "stopped" and stopped.status()["last_sign"]
    assert not stopped.finished and 3 <= len(stopped.records) < planned
    with pytest.raises(ProcessLookupError):  # nothing of the group is left
        os.killpg(p.pid, 0)
    resumed = promptfed.run(config, out=out, resume=True, progress=False)
    assert len(resumed.records) == planned
    assert same(resumed, promptfed.run(config, out=tmp_path / "whole", progress=False))
