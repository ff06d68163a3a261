"""Training of weights against transformers, PyTorch's AdamW and PEFT; kills at any moment; bad input."""

import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest
import torch
import transformers
from conftest import STORIES, focus_binary

CONTEXT = 64
TEXT = "One day, a little fish named Fin was swimming near the shore. He saw a big crab and wanted to be friends. "
TOKENIZER = ["tokenizer.json", "tokenizer_config.json"]


def tiny(name, folder):
    """A small random model with the tokenizer of stories260K."""
    torch.manual_seed(3)
    if name == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=512, n_embd=48, n_layer=2, n_head=3, n_positions=128,
                                                                     attn_pdrop=0, embd_pdrop=0, resid_pdrop=0))
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=512, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
            max_position_embeddings=128, tie_word_embeddings=name == "llama_tied"))
    model.save_pretrained(folder)
    for file in TOKENIZER:
        if (STORIES / file).exists():
            shutil.copy(STORIES / file, folder)
    return model


def windows_of(text, count):
    """The first tokens of a text as Focus reads it, in windows."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(STORIES / "tokenizer.json"))
    ids = tokenizer(text)["input_ids"]
    assert count * CONTEXT <= len(ids) < (count + 1) * CONTEXT
    return torch.tensor(ids[:count * CONTEXT]).view(count, CONTEXT)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A text of four windows and a bit."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(STORIES / "tokenizer.json"))
    words, content = TEXT.split(" "), ""
    while len(tokenizer(content)["input_ids"]) < 4 * CONTEXT + 5:
        content += words[len(content) % len(words)] + " "
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(content)
    return file


@pytest.fixture(scope="module")
def long_text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "long.txt"
    file.write_text(TEXT * 200)
    return file


def train(text, model, out, steps, *arguments):
    return ["train", "--model", model, "--data", text, "--out", out, "--context", CONTEXT, "--max-steps", steps, "--threads", "1", *arguments]


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def decayed_and_not(model):
    named = list(model.named_parameters())
    return ([p for _, p in named if p.dim() >= 2], [p for _, p in named if p.dim() < 2])


def pytorch_losses(model, batch, steps, lr, decay, parameters=None):
    """Losses of AdamW with clipping on one batch, and the gradient norms."""
    if parameters is None:
        big, small = decayed_and_not(model)
        parameters = [{"params": big, "weight_decay": decay}, {"params": small, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(parameters, lr=lr)
    everything = [p for group in optimizer.param_groups for p in group["params"]]
    losses, norms = [], []
    for _ in range(steps):
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(everything, 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


@pytest.mark.parametrize("name", ["gpt2", "llama", "llama_tied"])
def test_ten_steps_equal_pytorch(focus, text, tmp_path, name):
    model = tiny(name, tmp_path / "model")
    batch = windows_of(text.read_text(), 4)
    run = focus(*train(text, tmp_path / "model", tmp_path / "run", 10, "--train", "all", "--batch-size", 2, "--gradient-accumulation-steps",
                       2, "--learning-rate", 1e-3, "--lr-scheduler", "constant", "--warmup-steps", 0, "--weight-decay", 0.1))
    assert run.returncode == 0, run.stderr
    losses, norms = pytorch_losses(model, batch, 10, 1e-3, 0.1)
    ours = lines(tmp_path / "run")
    assert [line["loss"] for line in ours] == pytest.approx(losses, abs=1e-4)
    assert [line["grad_norm"] for line in ours] == pytest.approx(norms, rel=1e-3)
    assert losses[-1] < losses[0] - 0.1
    trained = type(model).from_pretrained(tmp_path / "run/model")
    for (key, expected), (same, got) in zip(model.named_parameters(), trained.named_parameters(), strict=True):
        assert key == same
        assert (expected - got).abs().max().item() < 1e-4, key


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_lora_equals_peft(focus, text, tmp_path, name):
    """Training from PEFT's own start gives PEFT's losses, and PEFT reads what is saved."""
    import peft

    model = tiny(name, tmp_path / "model")
    targets = ["c_attn", "mlp.c_proj"] if name == "gpt2" else ["q_proj", "down_proj"]
    run = focus(*train(text, tmp_path / "model", tmp_path / "run", 10, "--train", "lora", "--lora-r", 4, "--lora-alpha", 8,
                       "--target-modules", ",".join(targets), "--batch-size", 4, "--learning-rate", 1e-2, "--lr-scheduler", "constant",
                       "--warmup-steps", 0))
    assert run.returncode == 0, run.stderr
    ours = lines(tmp_path / "run")
    assert ours[-1]["loss"] < ours[0]["loss"] - 0.05

    # The start is drawn by Focus: a run of one step at a rate of nearly nothing shows it.
    start = focus(*train(text, tmp_path / "model", tmp_path / "start", 1, "--train", "lora", "--lora-r", 4, "--lora-alpha", 8,
                         "--target-modules", ",".join(targets), "--learning-rate", 1e-30))
    assert start.returncode == 0, start.stderr
    batch = windows_of(text.read_text(), 4)
    theirs = peft.PeftModel.from_pretrained(model, str(tmp_path / "start/adapter"), is_trainable=True)
    losses, _ = pytorch_losses(theirs, batch, 10, 1e-2, 0.0, [{"params": [p for p in theirs.parameters() if p.requires_grad],
                                                              "weight_decay": 0.0}])
    assert [line["loss"] for line in ours] == pytest.approx(losses, abs=1e-4)

    final = peft.PeftModel.from_pretrained(tiny(name, tmp_path / "again"), str(tmp_path / "run/adapter")).eval()
    with torch.no_grad():
        loss = sum(final(window[None], labels=window[None]).loss.item() for window in batch) / 4
    evaluated = focus("eval", "--model", tmp_path / "model", "--lora", tmp_path / "run/adapter", "--data", text, "--context", CONTEXT,
                      "--max-windows", 4, "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["nll"] == pytest.approx(loss, abs=1e-4)


def test_scratch_starts_without_weights_and_learns(focus, long_text, tmp_path):
    folder = tmp_path / "config"
    tiny("gpt2", folder)
    (folder / "model.safetensors").unlink()
    run = focus(*train(long_text, folder, tmp_path / "run", 40, "--train", "scratch", "--batch-size", 4, "--eval-data", long_text,
                       "--eval-every", 10, "--eval-windows", 2, "--learning-rate", 3e-3, "--json"))
    assert run.returncode == 0, run.stderr
    measured = [line["eval_loss"] for line in lines(tmp_path / "run") if "eval_loss" in line]
    assert len(measured) == 4
    assert lines(tmp_path / "run")[0]["loss"] == pytest.approx(6.24, abs=0.15)  # ln 512: nothing is known yet
    assert measured[-1] < 3
    summary = json.loads(run.stdout.splitlines()[-1])
    assert summary["best_eval_loss"] == min(measured)
    for kept in ("model", "best"):
        assert focus("eval", "--model", tmp_path / "run" / kept, "--data", long_text, "--context", CONTEXT, "--max-windows", 1).returncode == 0


def test_scratch_under_focus_gives_a_model_and_its_adapter(focus, long_text, tmp_path):
    folder = tmp_path / "config"
    tiny("llama", folder)
    run = focus(*train(long_text, folder, tmp_path / "run", 30, "--train", "scratch", "--method", "focus", "--window", 8, "--groups", 8,
                       "--groups-per-token", 2, "--centroid-steps", 6, "--list-windows", 4, "--rows", 16, "--batch-size", 4,
                       "--learning-rate", 3e-3))
    assert run.returncode == 0, run.stderr
    pairs = [line["pairs_kept"] for line in lines(tmp_path / "run")]
    assert pairs[:3] == [1.0] * 3 and max(pairs[3:]) < 0.8
    assert lines(tmp_path / "run")[-1]["loss"] < 4
    evaluated = focus("eval", "--model", tmp_path / "run/model", "--adapter", tmp_path / "run/model/focus", "--data", long_text,
                      "--context", CONTEXT, "--max-windows", 4, "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["pairs_kept"] < 0.8


def test_two_phases_keep_the_groups_balanced(focus, tmp_path):
    data = tmp_path / "stories.txt"
    source = STORIES.parent.parent / "tinystories/sample.txt.gz"
    import gzip

    data.write_bytes(gzip.decompress(source.read_bytes())[:400_000])
    run = focus(*train(data, STORIES, tmp_path / "run", 20, "--train", "two-phase", "--centroid-steps", 8, "--groups", 8,
                       "--groups-per-token", 2, "--window", 8, "--list-windows", 4, "--batch-size", 4, "--learning-rate", 5e-4))
    assert run.returncode == 0, run.stderr
    steps = lines(tmp_path / "run")
    assert all(line["stage"] == "all" and line["pairs_kept"] < 0.9 for line in steps)
    assert steps[-1]["dominance"] < 0.5
    evaluated = focus("eval", "--model", tmp_path / "run/model", "--adapter", tmp_path / "run/model/focus", "--data", data, "--context",
                      CONTEXT, "--max-windows", 8, "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["method"] == "focus"
    # The first phase's adapter is for the weights before.
    other = focus("eval", "--model", tmp_path / "run/model", "--adapter", tmp_path / "run/centroids/adapter", "--data", data)
    assert other.returncode == 1 and "it was trained on stories260K" in other.stderr, other.stderr


def test_kills_lose_nothing_but_steps(focus, long_text, tmp_path):
    """kill -9 at random moments: what is on disk always resumes, and the end is that of a run without kills."""
    steps, model = 250, tmp_path / "model"
    tiny("llama", model)
    arguments = train(long_text, model, tmp_path / "cut", steps, "--train", "all", "--save-every", 1, "--learning-rate", 1e-3)
    straight = focus(*train(long_text, model, tmp_path / "straight", steps, "--train", "all", "--learning-rate", 1e-3))
    assert straight.returncode == 0, straight.stderr
    rng, kills = random.Random(5), int(os.environ.get("FOCUS_KILLS", "50"))
    began = time.monotonic()
    for _ in range(kills):
        process = subprocess.Popen([str(focus_binary()), *map(str, arguments), "--resume", "--quiet"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        seen = set((tmp_path / "cut").glob("checkpoint-*"))
        while process.poll() is None and set((tmp_path / "cut").glob("checkpoint-*")) == seen and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.03)
        process.send_signal(signal.SIGKILL)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, stderr
    print(f"{kills} kills in {time.monotonic() - began:.0f} s")
    end = focus(*arguments, "--resume")
    assert end.returncode == 0, end.stderr
    assert (tmp_path / "cut/model/model.safetensors").read_bytes() == (tmp_path / "straight/model/model.safetensors").read_bytes()
    assert [line["loss"] for line in lines(tmp_path / "cut")] == [line["loss"] for line in lines(tmp_path / "straight")]
    # Nothing that a kill left half-way stays.
    left = sorted(path.name for path in (tmp_path / "cut").iterdir())
    assert left == [f"checkpoint-{steps - 2}", f"checkpoint-{steps - 1}", "metrics.jsonl", "model", "run.toml"]


@pytest.mark.parametrize("arguments, message", [
    (["--train", "all", "--rows", "5"], "--rows has no meaning with --train all"),
    (["--train", "all", "--lora-r", "5"], "--lora-r has no meaning with --train all"),
    (["--train", "centroids", "--batch-size", "5"], "--batch-size has no meaning with --train centroids"),
    (["--train", "centroids", "--method", "full"], "--method has no meaning with --train centroids"),
    (["--train", "all", "--method", "focus"], "--method focus needs --adapter"),
    (["--train", "all", "--refit-every", "3"], "--refit-every is for --train scratch --method focus"),
    (["--train", "scratch", "--method", "focus", "--symmetric"], "--train scratch trains its routers by output,lists"),
    (["--train", "scratch", "--rows", "5"], "--rows has no meaning with --train scratch"),
    (["--train", "lora", "--target-modules", "z_proj"], "no module 'z_proj'"),
    (["--train", "all", "--optimizer", "sgd", "--weight-decay", "0.1"], "--weight-decay has no meaning with --optimizer sgd"),
    (["--train", "all", "--eval-every", "3"], "--eval-every needs --eval-data"),
    (["--train", "all", "--batch-size", "0"], "--batch-size"),
    (["--train", "everything"], "--train"),
])
def test_flags_without_a_meaning_are_refused(focus, text, tmp_path, arguments, message):
    run = focus(*train(text, STORIES, tmp_path / "run", 2, *arguments))
    assert run.returncode == 2, run.stderr
    assert message in run.stderr.splitlines()[-1]


def test_low_precision_and_other_settings_are_refused(focus, text, tmp_path):
    low = focus(*train(text, STORIES, tmp_path / "low", 2, "--train", "all", "--dtype", "bfloat16"))
    assert low.returncode == 1 and "train in float32" in low.stderr.splitlines()[-1]
    assert not (tmp_path / "low/model").exists()
    first = focus(*train(text, STORIES, tmp_path / "run", 4, "--train", "all", "--save-every", 2))
    assert first.returncode == 0, first.stderr
    again = focus(*train(text, STORIES, tmp_path / "run", 4, "--train", "all", "--resume", "--learning-rate", 0.5))
    assert again.returncode == 1 and "learning_rate" in again.stderr.splitlines()[-1], again.stderr


def test_resuming_needs_the_same_attention(focus, long_text, tmp_path):
    def refused_with(command, *flags):
        again = focus(*command, *flags, "--resume")
        assert again.returncode == 1, again.stderr
        return again.stderr.splitlines()[-1]

    window = [*train(long_text, STORIES, tmp_path / "window", 3, "--train", "lora", "--method", "window", "--save-every", 2), "--window", 16]
    assert focus(*window).returncode == 0
    assert "window = 16, but now it is 8" in refused_with(window, "--window", 8)
    # Seconds of all calls count.
    state = tmp_path / "window/checkpoint-2/trainer_state.json"
    saved = json.loads(state.read_text())
    assert 0 < saved["seconds"] < 500
    state.write_text(json.dumps(saved | {"seconds": 1000}))
    done = focus(*window, "--resume", "--json")
    assert done.returncode == 0 and 1000 < json.loads(done.stdout.splitlines()[-1])["seconds"] < 1500, done.stderr
    for seed in (0, 1):
        made = focus(*train(long_text, STORIES, tmp_path / f"routers{seed}", 1, "--groups", 8, "--groups-per-token", 2, "--window", 16,
                            "--list-windows", 1, "--seed", seed))
        assert made.returncode == 0, made.stderr
    command = train(long_text, STORIES, tmp_path / "run", 3, "--train", "lora", "--save-every", 2)
    listed = [*command, "--adapter", tmp_path / "routers0/adapter"]
    first = focus(*listed)
    assert first.returncode == 0, first.stderr
    assert "window = 16, but now it is 8" in refused_with(listed, "--window", 8)
    assert "groups_per_token = 2, but now it is 1" in refused_with(listed, "--groups-per-token", 1)
    assert " adapter = " in refused_with(command, "--adapter", tmp_path / "routers1/adapter")
    refitted = train(long_text, STORIES, tmp_path / "scratch", 3, "--train", "scratch", "--method", "focus", "--groups", 8, "--groups-per-token",
                     2, "--window", 16, "--centroid-steps", 1, "--list-windows", 1, "--dense-steps", 1, "--refit-every", 1, "--save-every", 2)
    assert focus(*refitted).returncode == 0
    assert "routers_window = 16" in refused_with(refitted, "--window", 8)
    assert "refit_every = 1" in refused_with(refitted, "--refit-every", 2)
