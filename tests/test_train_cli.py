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


def start(*arguments):
    return subprocess.Popen([str(focus_binary()), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            stdin=subprocess.DEVNULL)


def wait_for_steps(process, run, count):
    deadline = time.monotonic() + 120
    while process.poll() is None and len(steps_logged(run)) < count and time.monotonic() < deadline:
        time.sleep(0.005)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_after_the_last_step_loses_nothing(text, tmp_path, number):
    process = start(*command(text, tmp_path / "run", 2))
    wait_for_steps(process, tmp_path / "run", 2)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert adapter_bytes(tmp_path / "run")


def test_training_goes_on_when_nobody_reads_its_output(text, tmp_path):
    process = start(*command(text, tmp_path / "run", 3, "--json"))
    process.stdout.close()
    stderr = process.stderr.read()
    assert process.wait(timeout=120) == 0, stderr
    assert "nobody reads the standard output" in stderr
    assert steps_logged(tmp_path / "run") == [1, 2, 3]
    assert adapter_bytes(tmp_path / "run")


def test_a_new_run_does_not_mix_with_an_earlier_one(focus, text, tmp_path):
    out = tmp_path / "run"
    first = focus(*command(text, out, 6, "--save-every", "2"))
    assert first.returncode == 0, first.stderr
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}

    second = focus(*command(text, out, 6, "--seed", "7"))
    assert second.returncode == 1
    assert "holds a checkpoint of an earlier run (checkpoint-4): go on with --resume, or name another --out" in second.stderr
    narrow = focus(*command(text, out, 6, "--save-every", "2", "--resume", "--dtype", "bfloat16"))
    assert narrow.returncode == 1
    assert 'a run with dtype = "Float", but now it is "BFloat16"' in narrow.stderr
    unusable = focus(*command(text, out, 6, "--resume", "--layers", "99"))
    assert unusable.returncode == 2
    assert before == {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}


def test_a_finished_run_is_not_resumed_and_a_folder_is_for_one_run(focus, text, tmp_path):
    out = tmp_path / "run"
    process = start(*command(text, out, 40))
    wait_for_steps(process, out, 1)
    beside = focus(*command(text, out, 2))
    assert beside.returncode == 1
    assert "another run is writing there" in beside.stderr
    (out / "adapter").mkdir()
    (out / "adapter" / "notes.md").write_text("mine")
    assert process.wait(timeout=120) == 0, process.stderr.read()
    assert (out / "adapter" / "notes.md").read_text() == "mine"

    adapter = adapter_bytes(out)
    again = focus(*command(text, out, 40, "--resume", "--json"))
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["finished_before"]
    assert adapter_bytes(out) == adapter


def test_names_that_are_no_utf8(tmp_path):
    odd = tmp_path / b"t\xe9xt.txt".decode(errors="surrogateescape")
    odd.write_text(TEXT)
    for arguments in (command(odd, tmp_path / "run", 2),
                      ["eval", "--model", STORIES, "--data", odd, "--context", "64", "--max-windows", "1", "--out", tmp_path / "eval"]):
        done = subprocess.run([str(focus_binary()), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert adapter_bytes(tmp_path / "run")
    assert json.loads((tmp_path / "eval" / "eval.json").read_text())["tokens_scored"] == 63
