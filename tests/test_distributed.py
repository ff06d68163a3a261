"""Training in several processes on this machine: the same losses as in one, and every failure names its rank."""

import json
import os
import signal
import socket
import subprocess
import time

import pytest
import torch
from conftest import ROOT, STORIES, focus_binary
from test_train_weights import CONTEXT, TEXT, lines, tiny

TORCHRUN = ROOT / ".venv/bin/torchrun"


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Documents of uneven length, so that windows hold several and predict different numbers of tokens."""
    file = tmp_path_factory.mktemp("text") / "story.jsonl"
    words = TEXT.split(" ")
    documents = [" ".join(words[(3 * i + k) % len(words)] for k in range(7 + 29 * i % 120)) for i in range(150)]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return file


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def train(data, out, steps, *arguments, model=STORIES):
    return ["train", "--model", model, "--data", data, "--out", out, "--context", CONTEXT, "--max-steps", steps, "--threads", 1,
            "--learning-rate", 1e-3, *arguments]


def environment(rank, size, port, **more):
    return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}


def start(commands, environments=None):
    """One process for each command line, with the variables that torchrun would set."""
    port = free_port()
    return [subprocess.Popen([str(focus_binary()), *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True,
                             env=environments[rank] if environments else environment(rank, len(commands), port))
            for rank, command in enumerate(commands)]


def finish(processes, timeout=120):
    """(return code, standard output, last line of standard error) of each."""
    results = []
    for process in processes:
        stdout, stderr = process.communicate(timeout=timeout)
        results.append((process.returncode, stdout, (stderr.splitlines() or [""])[-1]))
    return results


def wait_for_steps(out, count, processes):
    deadline = time.monotonic() + 60
    while not (out / "metrics.jsonl").exists() or len(lines(out)) < count:
        assert all(p.poll() is None for p in processes) and time.monotonic() < deadline
        time.sleep(0.02)


def losses(out):
    return [line["loss"] for line in lines(out)]


@pytest.fixture(scope="module")
def alone(focus, story, tmp_path_factory):
    """Eight steps of twelve windows in one process."""
    out = tmp_path_factory.mktemp("alone")
    run = focus(*train(story, out / "run", 8, "--train", "all", "--batch-size", 12, "--eval-data", story, "--eval-windows", 5))
    assert run.returncode == 0, run.stderr
    return out / "run"


@pytest.mark.parametrize("size, batch, passes", [(2, 6, 1), (3, 2, 2)])
def test_several_processes_give_the_losses_of_one(focus, alone, story, tmp_path, size, batch, passes):
    command = train(story, tmp_path / "run", 8, "--train", "all", "--batch-size", batch, "--gradient-accumulation-steps", passes,
                    "--eval-data", story, "--eval-windows", 5, "--json")
    results = finish(start([command] * size))
    assert [code for code, _, _ in results] == [0] * size, results
    ours, theirs = lines(tmp_path / "run"), lines(alone)
    assert [line["loss"] for line in ours] == pytest.approx([line["loss"] for line in theirs], abs=1e-5)
    assert [line["grad_norm"] for line in ours] == pytest.approx([line["grad_norm"] for line in theirs], rel=1e-4)
    assert [line["tokens"] for line in ours] == [line["tokens"] for line in theirs]
    assert ours[-1]["eval_loss"] == pytest.approx(theirs[-1]["eval_loss"], abs=1e-4)
    # Rank 0 alone reports and writes.
    assert json.loads(results[0][1].splitlines()[-1])["steps"] == 8 and all(stdout == "" for _, stdout, _ in results[1:])
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["best", "metrics.jsonl", "model", "run.toml"]
    assert focus("eval", "--model", tmp_path / "run/model", "--data", story, "--context", CONTEXT, "--max-windows", 1).returncode == 0


def test_torchrun_starts_it_and_a_run_goes_on(focus, alone, story, tmp_path):
    """Four steps in two processes, then the rest in one: the settings are those of twelve windows a step."""
    out = tmp_path / "run"

    def torchrun(*arguments):
        return subprocess.run([str(TORCHRUN), "--standalone", "--no-python", "--nproc-per-node", "2", str(focus_binary()),
                               *map(str, train(story, out, 8, "--train", "all", "--batch-size", 6, *arguments))],
                              capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)

    first = torchrun("--save-every", 4)
    assert first.returncode == 0, first.stderr
    assert losses(out) == pytest.approx(losses(alone), abs=1e-5)
    assert (out / "checkpoint-4").is_dir()
    rest = losses(out)[4:]
    again = torchrun("--resume")
    assert again.returncode == 0, again.stderr
    assert losses(out)[4:] == rest
    one = focus(*train(story, out, 8, "--train", "all", "--batch-size", 12, "--resume"))
    assert one.returncode == 0, one.stderr
    assert losses(out)[4:] == pytest.approx(rest, abs=1e-5)
    other = focus(*train(story, out, 8, "--train", "all", "--batch-size", 6, "--resume"))
    assert other.returncode == 1 and "batch_size = 12" in other.stderr.splitlines()[-1]


@pytest.mark.parametrize("variables", [
    lambda rank, port: {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2", "MASTER_PORT": str(port)},
    lambda rank, port: {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "MASTER_PORT": str(port)},
])
def test_other_starters_and_low_rank_updates(story, tmp_path, variables):
    port = free_port()
    command = train(story, tmp_path / "run", 3, "--train", "lora")
    results = finish(start([command] * 2, [{**os.environ, **variables(rank, port)} for rank in range(2)]))
    assert [code for code, _, _ in results] == [0, 0], results
    assert (tmp_path / "run/adapter/adapter_model.safetensors").exists()


def test_scratch_under_focus_in_two_processes(focus, story, tmp_path):
    folder = tmp_path / "config"
    tiny("llama", folder)
    command = ["--train", "scratch", "--method", "focus", "--window", 8, "--groups", 8, "--groups-per-token", 2, "--centroid-steps", 3,
               "--list-windows", 2, "--rows", 8, "--refit-every", 100]
    alone = focus(*train(story, tmp_path / "alone", 6, *command, "--batch-size", 2, model=folder))
    assert alone.returncode == 0, alone.stderr
    results = finish(start([train(story, tmp_path / "run", 6, *command, "--batch-size", 1, model=folder)] * 2))
    assert [code for code, _, _ in results] == [0, 0], results
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "alone"), abs=1e-4)
    assert [line["pairs_kept"] for line in lines(tmp_path / "run")] == pytest.approx(
        [line["pairs_kept"] for line in lines(tmp_path / "alone")], abs=1e-3)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_process_ends_all_and_is_named(story, tmp_path, victim):
    processes = start([train(story, tmp_path / "run", 100_000, "--train", "all", "--dist-timeout", 30)] * 3)
    wait_for_steps(tmp_path / "run", 2, processes)
    processes[victim].send_signal(signal.SIGKILL)
    began = time.monotonic()
    results = finish(processes, timeout=60)
    assert time.monotonic() - began < 20
    for rank, (code, _, line) in enumerate(results):
        if rank != victim:
            assert code == 1 and f"rank {rank}: " in line and f"rank {victim} is gone" in line, line


def test_a_stopped_process_is_named_within_the_timeout(story, tmp_path):
    processes = start([train(story, tmp_path / "run", 100_000, "--train", "all", "--dist-timeout", 2)] * 3)
    wait_for_steps(tmp_path / "run", 2, processes)
    processes[1].send_signal(signal.SIGSTOP)
    began = time.monotonic()
    others = finish([processes[0], processes[2]], timeout=60)
    assert time.monotonic() - began < 15
    for code, _, line in others:
        assert code == 1 and "rank 1 did not answer within 2 s" in line, line
    processes[1].send_signal(signal.SIGCONT)
    (code, _, line), = finish([processes[1]])
    assert code == 1 and "rank 1: " in line, line


def test_a_process_that_never_comes_is_named(story, tmp_path):
    process, = start([train(story, tmp_path / "run", 5, "--train", "all", "--dist-timeout", 1)], [environment(0, 2, free_port())])
    (code, _, line), = finish([process])
    assert code == 1 and "rank 1 of 2 processes did not start within 1 s" in line, line


def test_other_data_on_one_rank_ends_all(story, tmp_path):
    less = tmp_path / "less.jsonl"
    less.write_text("".join(story.read_text().splitlines(keepends=True)[:100]))
    results = finish(start([train(data, tmp_path / "run", 5, "--train", "all") for data in (story, story, less)]))
    for code, _, line in results:
        assert code == 1 and "rank 2 differs from rank 0 in the data's" in line, line
    results = finish(start([train(story, tmp_path / "run", 5, "--train", "all", "--warmup-steps", steps) for steps in (0, 3)]))
    for code, _, line in results:
        assert code == 1 and "rank 1 differs from rank 0 in warmup_steps: 3, not 0" in line, line


def test_a_loss_that_is_not_finite_on_one_rank_ends_all(story, tmp_path):
    """Rank 1 reads weights of the same fingerprint with one NaN in a token's row."""
    model = tmp_path / "model"
    tiny("llama", model)
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    broken.mkdir()
    for file in model.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    weights = load_file(model / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"][17, 23] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    assert torch.isnan(weights["model.layers.0.mlp.up_proj.weight"]).sum() == 1
    results = finish(start([train(story, tmp_path / "run", 5, "--train", "all", model=m) for m in (model, broken, model)]))
    for rank, (code, _, line) in enumerate(results):
        assert code == 1 and f"rank {rank}: " in line and "the loss of rank 1 is not finite" in line, line
    assert not (tmp_path / "run/model").exists()


def test_what_fails_on_one_rank_is_told_to_all(story, tmp_path):
    """Rank 0 cannot write its checkpoint: a folder stands where the metrics should go."""
    (tmp_path / "run/metrics.jsonl").mkdir(parents=True)
    results = finish(start([train(story, tmp_path / "run", 5, "--train", "all")] * 2))
    assert results[0][0] == results[1][0] == 1
    assert "rank 0: " in results[0][2] and "metrics.jsonl" in results[0][2]
    assert "rank 1: rank 0 stopped: " in results[1][2] and "metrics.jsonl" in results[1][2], results[1][2]


def test_an_interrupt_to_one_saves_and_ends_all(story, tmp_path):
    command = train(story, tmp_path / "run", 100_000, "--train", "all")
    processes = start([command] * 2)
    wait_for_steps(tmp_path / "run", 2, processes)
    processes[1].send_signal(signal.SIGINT)
    results = finish(processes)
    assert [code for code, _, _ in results] == [1, 1], results
    assert "interrupted at step" in results[0][2]
    checkpoint, = (tmp_path / "run").glob("checkpoint-*")
    assert checkpoint.name == f"checkpoint-{len(lines(tmp_path / 'run'))}"


@pytest.mark.parametrize("arguments, variables, message", [
    (["--train", "centroids"], {"RANK": "0", "WORLD_SIZE": "1"}, "--dist-timeout needs several processes"),
    (["--train", "all"], {"RANK": "0"}, "RANK is set, but WORLD_SIZE is not"),
    (["--train", "all"], {"RANK": "3", "WORLD_SIZE": "2"}, "RANK=3: expected a number from 0 to 1"),
])
def test_nonsense_is_refused(focus, story, tmp_path, arguments, variables, message):
    run = focus(*train(story, tmp_path / "run", 2, "--dist-timeout", 5, *arguments), env={**os.environ, **variables})
    assert run.returncode == 2 and message in run.stderr.splitlines()[-1], run.stderr


def test_routers_alone_are_trained_in_one_process(story, tmp_path):
    for code, _, line in finish(start([train(story, tmp_path / "run", 5, "--train", "centroids")] * 2)):
        assert code == 2 and "--train centroids runs in one process" in line, line
