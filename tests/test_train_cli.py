"""Training that is cut short: Ctrl-C saves and resumes bit for bit, a full disk leaves nothing half-written."""

import json
import resource
import signal
import subprocess
import time

import pytest
from conftest import STORIES, focus_binary

TEXT = "One day, a little fish named Fin was swimming near the shore. He saw a big crab and wanted to be friends.\n" * 300


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(TEXT)
    return file


def command(text, out, steps, *arguments):
    return ["train", "--train", "centroids", "--model", STORIES, "--data", text, "--out", out, "--context", "128", "--window", "16",
            "--groups", "4", "--groups-per-token", "2", "--max-steps", str(steps), "--updates-per-step", "1", "--list-windows", "2",
            "--rows", "16", "--threads", "1", *arguments]


def steps_logged(run):
    file = run / "metrics.jsonl"
    return [json.loads(line)["step"] for line in file.read_text().splitlines()] if file.exists() else []


def adapter_bytes(run):
    return (run / "adapter" / "adapter_model.safetensors").read_bytes()


def test_interrupt_saves_and_resume_continues_bit_for_bit(focus, text, tmp_path):
    steps = 60
    whole = focus(*command(text, tmp_path / "whole", steps))
    assert whole.returncode == 0, whole.stderr

    cut = tmp_path / "cut"
    process = subprocess.Popen([str(focus_binary()), *map(str, command(text, cut, steps))], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while process.poll() is None and len(steps_logged(cut)) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1, stderr
    assert list(cut.glob("checkpoint-*")), stderr
    assert len(steps_logged(cut)) < steps

    resumed = focus(*command(text, cut, steps, "--resume"))
    assert resumed.returncode == 0, resumed.stderr
    assert steps_logged(cut) == steps_logged(tmp_path / "whole")
    assert adapter_bytes(cut) == adapter_bytes(tmp_path / "whole")


def test_full_disk(focus, text, tmp_path):
    """A limit on the size of files stands in for a full disk: a write comes back short and then fails."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    run = tmp_path / "run"
    result = focus(*command(text, run, 3), preexec_fn=limit)
    assert result.returncode == 1, result.stderr
    assert result.stderr.splitlines()[-1].startswith("focus: error: "), result.stderr
    assert not list(run.rglob("*.safetensors"))
