"""Trainings beside the default one, through the real binary: the paper's form under the language-model loss (and what
its own routing leaks), shared lists, and a global group. stories260K, a few steps."""

import json
import shutil

import pytest
from conftest import ROOT, STORIES

TEXT = ROOT / "data/tinystories/sample.txt.gz"
MODEL = ["--model", STORIES, "--data", TEXT, "--threads", 1]
GATE = ["train", *MODEL, "--symmetric", "--objective", "lm-gate", "--context", 256, "--window", 32, "--list-windows", 4]


def lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def done(result):
    assert result.returncode == 0, result.stderr
    return lines(result)


@pytest.fixture(scope="module")
def trained(focus, tmp_path_factory):
    """Six steps of the paper's form: (folder, lines of standard output)."""
    out = tmp_path_factory.mktemp("gate")
    return out, done(focus(*GATE, "--max-steps", 6, "--save-every", 3, "--out", out, "--json", "--quiet"))


def test_training_reports_steps_and_a_balanced_adapter(trained):
    out, (*steps, summary) = trained
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert metrics == steps
    for line in steps:
        assert line["stage"] == "lm-gate"
        assert 1 < line["loss"] < 6
        assert 1 / 8 <= line["dominance"] < 1
        assert 0.2 < line["pairs_kept"] < 0.6
        assert line["tokens"] == 256 * line["step"]
    assert summary["leak_max_abs_diff"] == 0
    # K = 8 lists by default, even ones after calibration.
    assert 1 / 8 <= summary["dominance"] < 0.2
    config = json.loads((out / "adapter/adapter_config.json").read_text())
    assert (config["symmetric"], config["groups"], config["groups_per_token"]) == (True, 8, 1)


def test_a_resumed_run_is_the_same_run(focus, trained, tmp_path):
    whole, _ = trained
    # The same run, cut off behind its checkpoint at step 3.
    out = tmp_path / "resumed"
    shutil.copytree(whole / "checkpoint-3", out / "checkpoint-3")
    (out / "metrics.jsonl").write_text((whole / "metrics.jsonl").read_text())
    resumed = done(focus(*GATE, "--max-steps", 6, "--save-every", 3, "--out", out, "--resume", "--json", "--quiet"))
    assert [line.get("step") for line in resumed[:-1]] == [4, 5, 6]
    weights = "adapter/adapter_model.safetensors"
    assert (out / weights).read_bytes() == (whole / weights).read_bytes()
    timed = ("tokens_per_s",)
    for a, b in zip((out / "metrics.jsonl").open(), (whole / "metrics.jsonl").open(), strict=True):
        assert {k: v for k, v in json.loads(a).items() if k not in timed} == {
            k: v for k, v in json.loads(b).items() if k not in timed
        }
    other = focus(*GATE, "--max-steps", 6, "--gate-sharpness", 2, "--out", out, "--resume", "--quiet")
    assert other.returncode == 1
    assert "gate_sharpness" in other.stderr


def evaluate(focus, adapter, *flags):
    return focus(
        "eval", *MODEL, "--adapter", adapter, "--context", 256, "--max-windows", 4, "--json", "--quiet", *flags
    )


@pytest.mark.parametrize(("groups", "least", "most"), [(1, 0.3, 0.5), (2, 0.45, 0.8)])
def test_causal_routing_does_not_leak(focus, trained, groups, least, most):
    (result,) = done(evaluate(focus, trained[0] / "adapter", "--routing", "causal", "--groups-per-token", groups))
    assert result["leak_max_abs_diff"] == 0
    assert 1 < result["perplexity"] < 20
    assert max(result["dominance"]) < 0.3
    assert least < result["pairs_kept"] < most


def test_the_papers_routing_leaks_and_says_so(focus, trained):
    refused = evaluate(focus, trained[0] / "adapter", "--routing", "paper")
    assert refused.returncode == 1
    assert "--allow-leak" in refused.stderr
    assert refused.stdout == ""
    (result,) = done(evaluate(focus, trained[0] / "adapter", "--routing", "paper", "--allow-leak"))
    assert result["leaks"] is True
    assert result["leak_max_abs_diff"] > 1e-3
    assert result["perplexity"] > 1


def test_the_gate_of_training_can_be_scored(focus, trained):
    adapter = trained[0] / "adapter"
    assert "--allow-leak" in evaluate(focus, adapter, "--soft-gate", 5).stderr
    (soft,) = done(evaluate(focus, adapter, "--soft-gate", 5, "--allow-leak"))
    (sharper,) = done(evaluate(focus, adapter, "--soft-gate", 50, "--allow-leak"))
    (hard,) = done(evaluate(focus, adapter, "--routing", "paper", "--allow-leak"))
    assert soft["method"] == "soft-gate" and soft["leaks"] is True and soft["pairs_kept"] == 1
    assert len({round(result["perplexity"], 4) for result in (soft, sharper, hard)}) == 3
    # All of the window's pairs weigh as in full attention, so it is no worse a model by far.
    assert soft["perplexity"] < 1.2 * hard["perplexity"]
    for flags in (["--method", "window"], ["--routing", "paper"]):
        refused = evaluate(focus, adapter, "--soft-gate", 5, "--allow-leak", *flags)
        assert refused.returncode == 2 and "--soft-gate" in refused.stderr
    assert "--adapter" in focus("eval", *MODEL, "--soft-gate", 5).stderr


def test_the_papers_routing_cannot_generate(focus, trained):
    result = focus(
        "generate", "--model", STORIES, "--adapter", trained[0] / "adapter", "--routing", "paper", "--prompt", "Once"
    )
    assert result.returncode == 2
    assert "cannot generate" in result.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--symmetric"], ["--symmetric", "lm-gate"]),
        (["--objective", "lm-gate"], ["lm-gate", "--symmetric"]),
        (["--objective", "lm-gate,lists", "--symmetric"], ["--objective lm-gate,lists"]),
        (["--objective", "lm-gate", "--symmetric", "--rows", "5"], ["--rows", "lm-gate"]),
        (["--objective", "lm-gate", "--symmetric", "--repeats", "0.5"], ["--repeats", "lm-gate"]),
        (["--objective", "lm-gate", "--symmetric", "--global-group"], ["--global-group"]),
        (["--gate-sharpness", "3"], ["--gate-sharpness", "output,lists"]),
        (["--sinkhorn-iters", "5"], ["--sinkhorn-iters", "output,lists"]),
        (["--objective", "output", "--lists-share", "0.5"], ["--lists-share", "output"]),
        (["--objective", "lm-gate", "--symmetric", "--routing", "paper"], ["--routing"]),
    ],
)
def test_settings_without_meaning_are_refused(focus, tmp_path, flags, words):
    result = focus("train", *MODEL, "--out", tmp_path / "out", *flags)
    assert result.returncode == 2
    assert all(word in result.stderr for word in words), result.stderr
    assert not (tmp_path / "out").exists()


def test_the_saved_record_repeats_the_run(focus, trained, tmp_path):
    whole, _ = trained
    done(focus("train", "--config", whole / "run.toml", "--out", tmp_path / "again", "--json", "--quiet"))
    weights = "adapter/adapter_model.safetensors"
    assert (tmp_path / "again" / weights).read_bytes() == (whole / weights).read_bytes()


def test_windows_without_far_pairs_are_refused(focus, tmp_path):
    result = focus(*GATE, "--window", 300, "--max-steps", 1, "--out", tmp_path / "out", "--quiet")
    assert result.returncode == 1
    assert "256" in result.stderr and "--window 300" in result.stderr


@pytest.mark.parametrize(("flags", "sets"), [(["--shared"], 1), (["--global-group"], 4)])
def test_shared_lists_and_a_global_group_train_and_evaluate(focus, tmp_path, flags, sets):
    out = tmp_path / "out"
    small = ["--groups", 8, "--groups-per-token", 2, "--context", 256, "--window", 32]
    (*steps, summary) = done(
        focus(
            "train", *MODEL, *small, *flags, "--max-steps", 4, "--list-windows", 3, "--out", out, "--json", "--quiet"
        )
    )
    assert {line["stage"] for line in steps} == {"output", "lists"}
    assert summary["leak_max_abs_diff"] == 0
    config = json.loads((out / "adapter/adapter_config.json").read_text())
    assert config["list_sets"] == sets
    assert config[flags[0].removeprefix("--").replace("-", "_")] is True
    (result,) = done(evaluate(focus, out / "adapter"))
    assert result["leak_max_abs_diff"] == 0
    assert 1 < result["perplexity"] < 20
    assert 0.25 < result["pairs_kept"] < 0.9
