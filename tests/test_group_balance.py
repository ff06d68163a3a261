"""How groups of the paper's form are kept even, through the real binary: each normaliser and mitigation trains and is
measured, a stateful one resumes bit for bit, all weights are trained after it, and flags without a use are refused."""

import json
import shutil

import pytest
from conftest import ROOT, STORIES

TEXT = ROOT / "data/tinystories/sample.txt.gz"
MODEL = ["--model", STORIES, "--data", TEXT, "--threads", 1]
GATE = ["--symmetric", "--objective", "lm-gate", "--context", 128, "--window", 16, "--list-windows", 2]
EVAL = ["--eval-data", TEXT, "--eval-windows", 2]
PATHS = {"centroid_drift", "representation_bypass", "projection_bypass", "together"}


def done(result):
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    "flags",
    [
        ["--normaliser", "softmax"],
        ["--normaliser", "potentials", "--ema-decay", 0.8],
        ["--normaliser", "softmax", "--mitigation", "entropy-balance", "--balance-weight", 5],
        ["--normaliser", "softmax", "--mitigation", "stop-gradient"],
        ["--normaliser", "softmax", "--mitigation", "ema-centroids", "--freeze-projection"],
        ["--normaliser", "softmax", "--mitigation", "recluster", "--recluster-every", 1],
        ["--normaliser", "sinkhorn", "--sinkhorn-iters", 3],
    ],
)
def test_each_variant_trains_and_is_measured(focus, tmp_path, flags):
    out = tmp_path / "out"
    first, last, summary = done(
        focus("train", *MODEL, *GATE, *EVAL, *flags, "--max-steps", 2, "--eval-every", 1, "--out", out, "--json", "--quiet")
    )
    for line in (first, last):
        assert line["stage"] == "lm-gate"
        assert 1 < line["eval_loss"] < 6
        assert 1 / 8 <= line["eval_dominance_mean"] <= line["eval_dominance"] <= 1
        assert 0 <= line["eval_dead_groups"] < 160  # 5 layers of 4 list sets of 8 groups
        assert 0 < line["eval_stability"] <= 1
        assert ("auxiliary_loss" in line) == ("entropy-balance" in flags)
    groups = summary["groups"]
    assert json.loads((out / "groups.json").read_text()) == groups
    assert groups["soft"]["eval_loss"] == last["eval_loss"]
    assert groups["soft"]["stability"] == last["eval_stability"]
    assert groups["soft"]["groups"] == groups["routed"]["groups"] == 160
    assert 0.1 < groups["routed"]["pairs_kept"] <= 1
    assert groups["full"]["perplexity"] > 1
    assert set(groups["paths"]) == PATHS
    # The weights are frozen: hidden states move by what other layers' groups do only.
    assert groups["paths"]["representation_bypass"]["distance"] < 0.2
    assert (groups["paths"]["projection_bypass"]["distance"] == 0) == ("--freeze-projection" in flags)
    assert (groups["paths"]["projection_bypass"]["changed"] == 0) == ("--freeze-projection" in flags)
    assert groups["paths"]["centroid_drift"]["distance"] > 0
    training = json.loads((out / "adapter/adapter_config.json").read_text())["training"]
    assert training["normaliser"] == flags[1]
    # The gate is scored with the normaliser it was trained with, of which Sinkhorn alone leaks.
    scored = focus("eval", *MODEL, "--context", 128, "--max-windows", 1, "--adapter", out / "adapter", "--soft-gate", 5, "--json", "--quiet")
    if "sinkhorn" in flags:
        assert scored.returncode == 1 and "--allow-leak" in scored.stderr
    else:
        (result,) = done(scored)
        assert result["leaks"] is False and 1 < result["perplexity"] < 200


@pytest.mark.parametrize(
    ("flags", "sets"),
    [
        (["--groups", 4, "--group-dim", 8, "--tau", 0.5, "--sinkhorn-iters", 3, "--layers", "1,3-4"], 4),
        (["--groups", 16, "--groups-per-token", 2, "--tau", 0.05, "--sinks", 0, "--gate-sharpness", 2, "--shared"], 1),
    ],
)
def test_every_setting_of_the_form_can_be_varied(focus, tmp_path, flags, sets):
    out = tmp_path / "out"
    *_, summary = done(focus("train", *MODEL, *GATE, *EVAL, *flags, "--max-steps", 1, "--out", out, "--json", "--quiet"))
    layers = 3 if "--layers" in flags else 5
    assert summary["groups"]["soft"]["groups"] == layers * sets * flags[1]
    config = json.loads((out / "adapter/adapter_config.json").read_text())
    assert (config["list_sets"], config["groups"]) == (sets, flags[1])


TWO_PHASE = [
    *["train", *MODEL, *GATE, *EVAL, "--train", "two-phase", "--normaliser", "potentials"],
    *["--mitigation", "ema-centroids", "--centroid-steps", 4, "--max-steps", 4, "--eval-every", 2, "--save-every", 2],
]


def test_all_weights_after_centroids_and_a_resumed_run(focus, tmp_path):
    whole = tmp_path / "whole"
    *lines, summary = done(focus(*TWO_PHASE, "--out", whole, "--json", "--quiet"))
    assert [(line["stage"], line["step"]) for line in lines] == [
        (stage, step) for stage in ("lm-gate", "all") for step in (1, 2, 3, 4)
    ]
    assert summary["groups_before"] == json.loads((whole / "centroids/groups.json").read_text())
    assert summary["groups"]["paths"]["representation_bypass"]["distance"] > 0
    # The saved model with its router gives the loss that was measured.
    (result,) = done(
        focus("eval", "--model", whole / "model", "--adapter", whole / "model/focus", "--data", TEXT, "--context", 128,
              "--max-windows", 2, "--threads", 1, "--json", "--quiet")
    )
    assert result["leak_max_abs_diff"] == 0
    assert 1 < result["perplexity"] < 20

    # Both phases say how the groups were kept even, which the soft gate takes up.
    for adapter in ("centroids/adapter", "model/focus"):
        training = json.loads((whole / adapter / "adapter_config.json").read_text())["training"]
        assert training["normaliser"] == "potentials", adapter

    # Another first phase, or other text to measure on, is another run.
    for flags, word in [
        (["--centroid-steps", 5], "max_steps = 4"),
        (["--tau", 0.2], "tau"),
        (["--router-learning-rate", 0.1], "learning_rate"),
        (["--eval-windows", 1], "eval_data"),
    ]:
        other = focus(*TWO_PHASE, *flags, "--out", whole, "--resume", "--quiet")
        assert other.returncode == 1 and word in other.stderr.splitlines()[-1], other.stderr

    # The same run, cut off in either phase.
    for phase in ("centroids", "weights"):
        out = tmp_path / phase
        shutil.copytree(whole, out)
        (out / "metrics.jsonl").unlink()
        for folder in {"centroids": ["model", "centroids/adapter", "checkpoint-2"], "weights": ["model"]}[phase]:
            shutil.rmtree(out / folder)
        *_, again = done(focus(*TWO_PHASE, "--out", out, "--resume", "--json", "--quiet"))
        for weights in ("model/model.safetensors", "model/focus/adapter_model.safetensors"):
            assert (out / weights).read_bytes() == (whole / weights).read_bytes(), (phase, weights)
        assert again["groups"] == summary["groups"], phase
        assert again["groups_before"] == summary["groups_before"], phase


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--normaliser", "softmax"], ["--normaliser", "output,lists"]),
        (["--mitigation", "recluster"], ["--mitigation", "output,lists"]),
        ([*GATE, "--mitigation", "entropy-balance"], ["entropy-balance", "--normaliser sinkhorn"]),
        ([*GATE, "--balance-weight", "5"], ["--balance-weight", "entropy-balance"]),
        ([*GATE, "--auxiliary-weight", "1"], ["--auxiliary-weight", "entropy-balance"]),
        ([*GATE, "--ema-decay", "0.5"], ["--ema-decay", "ema-centroids", "potentials"]),
        ([*GATE, "--ema-decay", "1", "--normaliser", "potentials"], ["--ema-decay"]),
        ([*GATE, "--recluster-every", "5"], ["--recluster-every", "recluster"]),
        ([*GATE, "--normaliser", "softmax", "--sinkhorn-iters", "5"], ["--sinkhorn-iters", "softmax"]),
        ([*GATE, "--normaliser", "hard"], ["--normaliser", "softmax", "sinkhorn", "potentials"]),
        ([*GATE, "--eval-every", "5"], ["--eval-every", "--eval-data"]),
        ([*GATE, "--router-learning-rate", "0.1"], ["--router-learning-rate", "centroids"]),
        ([*GATE, "--train", "two-phase", "--batch-size", "2"], ["--batch-size", "lm-gate"]),
        (["--train", "two-phase", "--symmetric"], ["--symmetric", "lm-gate"]),
        (["--eval-data", str(TEXT)], ["--eval-data", "lm-gate"]),
    ],
)
def test_settings_without_meaning_are_refused(focus, tmp_path, flags, words):
    result = focus("train", *MODEL, "--out", tmp_path / "out", *flags)
    assert result.returncode == 2
    assert all(word in result.stderr for word in words), result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
