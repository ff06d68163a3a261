"""The last stage of routers, lm-ste, through the real binary: the language-model loss through the hard mask, head scales, early stop,
resuming. stories260K, a few steps."""

import json
import shutil
import signal
import subprocess
import time

import pytest
import torch
from conftest import ROOT, STORIES, focus_binary
from safetensors.torch import load_file

TEXT = ROOT / "data/tinystories/sample.txt.gz"
WEIGHTS = "adapter/adapter_model.safetensors"
MODEL = ["--model", STORIES, "--data", TEXT, "--threads", 1]
SMALL = ["--context", 128, "--list-windows", 2]
LISTS = ["--window", 16, "--groups", 8, "--groups-per-token", 2, "--rows", 32, "--updates-per-step", 1]
EVAL = ["--eval-data", TEXT, "--eval-every", 2, "--eval-windows", 2]
CHAIN = ["train", *MODEL, *SMALL, *LISTS, *EVAL, "--objective", "output,lists,lm-ste", "--centroid-steps", 4, "--max-steps", 6,
         "--save-every", 3, "--patience", 0]


def done(result):
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def without_time(file):
    return [{key: value for key, value in json.loads(line).items() if key != "tokens_per_s"} for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def chain(focus, tmp_path_factory):
    """All three stages: (folder, lines of standard output)."""
    out = tmp_path_factory.mktemp("chain")
    return out, done(focus(*CHAIN, "--out", out, "--json", "--quiet"))


def last(chain, *flags):
    """The command of the last stage alone, on the lists of the chain."""
    return ["train", *MODEL, *SMALL, "--objective", "lm-ste", "--adapter", chain[0] / "centroids/adapter", "--json", "--quiet", *flags]


def test_the_chain_trains_lists_and_then_both(chain):
    out, (*steps, summary) = chain
    assert [(line.get("stage"), line["step"]) for line in steps] == [
        ("output", 1), ("output", 2), ("lists", 3), ("lists", 4), (None, 0), *[("lm-ste", step) for step in range(1, 7)]]
    lm = steps[4:]
    assert [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()] == lm
    measured = [line for line in lm if "eval_loss" in line]
    assert [line["step"] for line in measured] == [0, 2, 4, 6]
    score = {line["step"]: line["eval_loss"] + line["eval_copy_nll"] / 4 for line in measured}
    assert summary["best_step"] == min(score, key=score.get)
    assert summary["best_eval_loss"] + summary["best_eval_copy_nll"] / 4 == pytest.approx(min(score.values()))
    assert summary["start_eval_loss"] == measured[0]["eval_loss"]
    assert all(1 < line["loss"] < 6 and 0 < line["pairs_kept"] < 1 for line in lm[1:])
    assert summary["leak_max_abs_diff"] == 0
    for key in ("pairs_kept_start", "pairs_kept_trained", "pairs_kept"):
        assert 0.2 < summary[key] < 0.9
    config = json.loads((out / "adapter/adapter_config.json").read_text())
    assert (config["format_version"], config["scaled_layers"], config["query_heads"]) == (3, [0, 1, 2, 3, 4], 8)
    before = load_file(out / "centroids" / WEIGHTS)
    after = load_file(out / WEIGHTS)
    for key, tensor in before.items():
        trained = key.endswith((".codebook", ".potentials"))
        assert summary["best_step"] == 0 or torch.equal(tensor, after[key]) != trained, key
    assert len(after) == len(before) + 10


@pytest.mark.parametrize("cut", ["checkpoint", "interrupt"])
def test_a_resumed_run_is_the_same_run(focus, chain, tmp_path, cut):
    whole = chain[0]
    out = tmp_path / "resumed"
    if cut == "checkpoint":  # as if the run had ended behind its checkpoint at step 3
        for folder in ("checkpoint-3", "centroids"):
            shutil.copytree(whole / folder, out / folder)
        shutil.copy(whole / "metrics.jsonl", out)
    else:
        process = subprocess.Popen([str(focus_binary()), *map(str, CHAIN), "--out", str(out)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        metrics = out / "metrics.jsonl"
        while process.poll() is None and time.monotonic() < deadline and not (metrics.exists() and metrics.read_text().count("\n") > 1):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
        assert process.returncode in (0, 1), stderr  # 0: all steps were done already
    resumed = focus(*CHAIN, "--out", out, "--resume", "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert (out / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    assert without_time(out / "metrics.jsonl") == without_time(whole / "metrics.jsonl")
    measured = focus(*CHAIN, "--eval-windows", 1, "--out", out, "--resume", "--quiet")
    assert measured.returncode == 1 and "eval_data" in measured.stderr.splitlines()[-1], measured.stderr
    other = focus(*CHAIN, "--learning-rate", 0.1, "--out", out, "--resume", "--quiet")
    assert other.returncode == 1 and "learning_rate" in other.stderr, other.stderr


def test_damage_stops_early_and_the_start_is_kept(focus, chain, tmp_path):
    (*steps, summary) = done(focus(*last(chain), *EVAL, "--max-steps", 20, "--learning-rate", 1.0, "--warmup-steps", 0, "--patience", 2,
                                   "--out", tmp_path / "out"))
    assert [line["step"] for line in steps] == [0, 1, 2, 3, 4]
    assert summary["best_step"] == 0
    after = load_file(tmp_path / "out" / WEIGHTS)
    for key, tensor in load_file(chain[0] / "centroids" / WEIGHTS).items():
        assert key.endswith(".potentials") or torch.equal(tensor, after[key]), key
    assert all((after[key] == 1).all() for key in after if key.endswith(("score_factor", "output_gain")))


def test_the_last_stage_alone_trains_what_it_is_told(focus, chain, tmp_path):
    (*steps, summary) = done(focus(*last(chain), "--max-steps", 3, "--lm-trains", "scales", "--groups-per-token", 3,
                                   "--out", tmp_path / "out"))
    assert [line["step"] for line in steps] == [1, 2, 3] and "best_step" not in summary
    assert summary["pairs_kept"] == summary["pairs_kept_start"]
    after = load_file(tmp_path / "out" / WEIGHTS)
    for key, tensor in load_file(chain[0] / "centroids" / WEIGHTS).items():
        assert torch.equal(tensor, after[key]), key
    assert all((after[key] != 1).any() for key in after if key.endswith(("score_factor", "output_gain")))
    assert json.loads((tmp_path / "out/adapter/adapter_config.json").read_text())["groups_per_token"] == 3


EVALUATE = ["eval", *MODEL, "--context", 128, "--max-windows", 3, "--json", "--quiet"]
PROMPT = "Once upon a time there was a little fish who lived in a big blue lake with many other fish. " * 2


def check_every_path(focus, adapter):
    """The leak probe; and one pass, chunks and token by token choose the same words."""
    (result,) = done(focus(*EVALUATE, "--adapter", adapter))
    assert result["leak_max_abs_diff"] == 0
    runs = [done(focus("generate", "--model", STORIES, "--threads", 1, "--json", "--quiet", "--prompt", PROMPT, "-n", 20, "--ignore-eos",
                       "--adapter", adapter, *flags))[0]
            for flags in ([], ["--prefill-chunk", 1], ["--prefill-chunk", 17], ["--no-cache"])]
    assert all(run["ids"] == runs[0]["ids"] for run in runs)
    return result


def test_full_attention_with_the_same_scalars(focus, tmp_path):
    (*steps, summary) = done(focus("train", *MODEL, "--context", 128, "--objective", "lm-ste", "--method", "full", "--max-steps", 8,
                                   "--learning-rate", 0.01, "--repeats", 0, "--out", tmp_path / "out", "--json", "--quiet"))
    assert (summary["method"], len(steps), steps[0]["pairs_kept"]) == ("full", 8, 1)
    adapter = tmp_path / "out/adapter"
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["layers_to_transform"] == [] and config["scaled_layers"] == [0, 1, 2, 3, 4] and "groups" not in config
    (plain,) = done(focus(*EVALUATE))
    scaled = check_every_path(focus, adapter)
    assert (scaled["method"], scaled["pairs_kept"]) == ("full", 1)
    assert 1e-4 < abs(scaled["nll"] - plain["nll"]) < 0.5
    refused = focus(*EVALUATE, "--adapter", adapter, "--method", "focus")
    assert refused.returncode == 2 and "no lists" in refused.stderr
    refused = focus("inspect", *MODEL, "--adapter", adapter)
    assert refused.returncode == 2 and "no lists" in refused.stderr


def test_scaled_lists_on_every_path(focus, chain, tmp_path):
    adapter = tmp_path / "adapter"
    shutil.copytree(chain[0] / "adapter", adapter)
    from safetensors.torch import save_file
    weights = load_file(adapter / "adapter_model.safetensors")
    torch.manual_seed(4)
    save_file({key: torch.rand(8) + 0.5 if key.endswith(("score_factor", "output_gain")) else tensor for key, tensor in weights.items()},
              adapter / "adapter_model.safetensors")
    scaled = check_every_path(focus, adapter)
    assert scaled["method"] == "focus"
    (as_trained,) = done(focus(*EVALUATE, "--adapter", chain[0] / "adapter"))
    assert abs(scaled["nll"] - as_trained["nll"]) > 1e-2
    (full,) = done(focus(*EVALUATE, "--adapter", adapter, "--method", "full"))
    (plain,) = done(focus(*EVALUATE))
    assert abs(full["nll"] - plain["nll"]) > 1e-2
    window = focus(*EVALUATE[:-1], "--adapter", adapter, "--method", "window")
    assert window.returncode == 0 and "head scales are left out" in window.stderr
    lists_alone = focus(*EVALUATE, "--adapter", chain[0] / "centroids/adapter", "--method", "full")
    assert lists_alone.returncode == 2 and "no head scales" in lists_alone.stderr


@pytest.mark.parametrize(("flags", "words"), [
    (["--objective", "lm-ste"], ["--objective lm-ste", "--adapter"]),
    (["--objective", "lists,lm-ste"], ["--objective lists,lm-ste", "output,lists,lm-ste"]),
    (["--objective", "lm-ste", "--method", "window"], ["--method window"]),
    (["--objective", "lm-ste", "--method", "full", "--groups", "8"], ["--groups", "--method full"]),
    (["--objective", "lm-ste", "--method", "full", "--lm-trains", "codebook"], ["--lm-trains", "--method full"]),
    (["--objective", "lm-ste", "--method", "full", "--rows", "8"], ["--rows", "lm-ste"]),
    (["--objective", "lm-ste", "--method", "full", "--patience", "2"], ["--patience", "--eval-data"]),
    (["--objective", "lm-ste", "--method", "full", "--centroid-steps", "2"], ["--centroid-steps", "lm-ste"]),
    (["--objective", "output,lists,lm-ste", "--method", "full"], ["--method", "centroids"]),
    (["--objective", "output,lists,lm-ste", "--symmetric"], ["--symmetric", "lm-gate"]),
    (["--objective", "output,lists", "--patience", "2"], ["--patience", "lm-ste"]),
    (["--objective", "output,lists", "--eval-data", TEXT], ["--eval-data", "lm-ste"]),
    (["--train", "all", "--lm-trains", "scales"], ["--lm-trains", "lm-ste"]),
])
def test_settings_without_meaning_are_refused(focus, tmp_path, flags, words):
    result = focus("train", *MODEL, "--out", tmp_path / "out", *flags)
    assert result.returncode == 2
    assert all(word in result.stderr for word in words), result.stderr
    assert not (tmp_path / "out").exists()
