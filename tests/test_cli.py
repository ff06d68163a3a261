"""Bad inputs to the real binary: one clear line, the right exit code, nothing half-written."""

import json
import os
import shutil
import struct

import numpy as np
import pytest
from conftest import STORIES
from safetensors.numpy import load_file, save_file

RUN_FAILED, USAGE = 1, 2


def refused(result, code, *mentions):
    """The run ended with `code` and one error line that holds every one of `mentions`; stdout stayed empty."""
    assert result.returncode == code, (result.returncode, result.stdout, result.stderr)
    errors = [line for line in result.stderr.splitlines() if line.startswith("focus: error: ")]
    assert len(errors) == 1 and result.stderr.splitlines()[-1] == errors[0], result.stderr
    assert "terminate called" not in result.stderr and "Exception raised from" not in result.stderr
    assert result.stdout == ""
    for mention in mentions:
        assert str(mention) in errors[0], (mention, errors[0])


@pytest.fixture()
def model(tmp_path):
    """A copy of stories260K to spoil."""
    return shutil.copytree(STORIES, tmp_path / "model")


@pytest.fixture()
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("Once upon a time, there was a little girl named Lily. She loved to play outside in the park.\n" * 120)
    return file


@pytest.fixture()
def eval_full(focus, text):
    def run(model, *arguments, data=text):
        return focus("eval", "--model", model, "--data", data, "--method", "full", "--context", 64, "--max-windows", 4,
                     "--json", *arguments)

    return run


@pytest.fixture(scope="module")
def adapter(tmp_path_factory, focus):
    """A quickly trained adapter of stories260K; tests copy it before they spoil it."""
    folder = tmp_path_factory.mktemp("adapter")
    data = folder / "text.txt"
    data.write_text("One day, a little fish named Fin was swimming near the shore. He saw a big crab.\n" * 150)
    result = focus("train", "--train", "centroids", "--model", STORIES, "--data", data, "--out", folder / "run", "--context", 128,
                   "--window", 16, "--groups", 8, "--groups-per-token", 2, "--max-steps", 6, "--updates-per-step", 1,
                   "--list-windows", 2, "--quiet")
    assert result.returncode == 0, result.stderr
    return folder / "run" / "adapter"


class TestModelFolder:
    def test_missing(self, eval_full, tmp_path):
        refused(eval_full(tmp_path / "nowhere"), RUN_FAILED, tmp_path / "nowhere")

    def test_without_config(self, eval_full, model):
        (model / "config.json").unlink()
        refused(eval_full(model), RUN_FAILED, "config.json")

    def test_config_is_not_json(self, eval_full, model):
        (model / "config.json").write_text('{"model_type": ')
        refused(eval_full(model), RUN_FAILED, "config.json")

    def test_unknown_architecture(self, eval_full, model):
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"model_type": "perceptron"}))
        refused(eval_full(model), RUN_FAILED, "perceptron", "llama")

    @pytest.mark.parametrize("cut", [0, 1, 7, 8, 9, 100, 2000, 5000, 500_000, -1])
    def test_truncated_weights(self, eval_full, model, cut):
        file = model / "model.safetensors"
        file.write_bytes(file.read_bytes()[:cut])
        refused(eval_full(model), RUN_FAILED, "model.safetensors")

    @pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**63 - 1, 10**9])
    def test_huge_header_length(self, eval_full, model, length):
        file = model / "model.safetensors"
        file.write_bytes(struct.pack("<Q", length) + file.read_bytes()[8:])
        refused(eval_full(model), RUN_FAILED, "model.safetensors")

    def test_missing_shard(self, eval_full, model):
        weights = load_file(model / "model.safetensors")
        names = sorted(weights)
        shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for shard, members in shards.items():
            save_file({name: weights[name] for name in members}, model / shard)
        index = {"metadata": {}, "weight_map": {name: shard for shard, members in shards.items() for name in members}}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        (model / "model.safetensors").unlink()
        assert eval_full(model).returncode == 0
        (model / "model-00002-of-00002.safetensors").unlink()
        refused(eval_full(model), RUN_FAILED, "model-00002-of-00002.safetensors")

    def rewrite(self, model, change):
        weights = load_file(model / "model.safetensors")
        change(weights)
        save_file(weights, model / "model.safetensors")

    def test_missing_weight(self, eval_full, model):
        self.rewrite(model, lambda w: w.pop("model.layers.2.mlp.up_proj.weight"))
        refused(eval_full(model), RUN_FAILED, "model.layers.2.mlp.up_proj.weight")

    def test_unused_weight(self, eval_full, model):
        self.rewrite(model, lambda w: w.update({"model.layers.0.self_attn.q_norm.weight": np.ones(8, np.float32)}))
        refused(eval_full(model), RUN_FAILED, "model.layers.0.self_attn.q_norm.weight")

    def test_misshaped_weight(self, eval_full, model):
        self.rewrite(model, lambda w: w.update({"model.norm.weight": np.ones(63, np.float32)}))
        refused(eval_full(model), RUN_FAILED, "model.norm.weight", "63", "64")

    def test_unknown_dtype(self, eval_full, model):
        self.rewrite(model, lambda w: w.update({"model.norm.weight": np.ones(64, np.int8)}))
        refused(eval_full(model), RUN_FAILED, "model.norm.weight")

    def test_nan_weights(self, eval_full, model):
        self.rewrite(model, lambda w: w["model.norm.weight"].fill(np.nan))
        refused(eval_full(model), RUN_FAILED, "finite")


class TestText:
    def test_missing_file(self, eval_full, tmp_path):
        refused(eval_full(STORIES, data=tmp_path / "gone.txt"), RUN_FAILED, "gone.txt")

    def test_empty_file(self, eval_full, tmp_path):
        (tmp_path / "empty.txt").write_text("")
        refused(eval_full(STORIES, data=tmp_path / "empty.txt"), RUN_FAILED, "empty.txt")

    def test_empty_folder(self, eval_full, tmp_path):
        (tmp_path / "texts").mkdir()
        refused(eval_full(STORIES, data=tmp_path / "texts"), RUN_FAILED, "texts")

    def test_ten_tokens_are_too_few_to_train(self, focus, tmp_path):
        (tmp_path / "short.txt").write_text("Once upon a time there was")
        result = focus("train", "--train", "centroids", "--model", STORIES, "--data", tmp_path / "short.txt", "--out", tmp_path / "run",
                       "--context", 128, "--max-steps", 2)
        refused(result, RUN_FAILED, "128")
        assert not list((tmp_path / "run").rglob("*.safetensors"))

    def test_invalid_utf8_is_read(self, eval_full, tmp_path):
        (tmp_path / "latin.txt").write_bytes(b"Once upon a caf\xe9 there was \xff\xfe a little dog. " * 60)
        result = eval_full(STORIES, data=tmp_path / "latin.txt")
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["tokens_scored"] > 100

    def test_damaged_gzip(self, eval_full, tmp_path):
        (tmp_path / "text.txt.gz").write_bytes(b"\x1f\x8b\x08\x00not a gzip stream")
        refused(eval_full(STORIES, data=tmp_path / "text.txt.gz"), RUN_FAILED, "text.txt.gz")


class TestFlags:
    def test_unknown_flag_names_the_nearest(self, eval_full):
        refused(eval_full(STORIES, "--contxt", 64), USAGE, "--contxt", "--context")

    def test_unknown_command(self, focus):
        refused(focus("evla"), USAGE, "evla", "eval")

    @pytest.mark.parametrize("arguments", [("--groups", 0), ("--groups", -3), ("--groups", "many"), ("--window", -1), ("--tau", 0)])
    def test_bad_value(self, focus, text, arguments):
        result = focus("eval", "--model", STORIES, "--data", text, "--method", "random-groups", "--json", *arguments)
        refused(result, USAGE, arguments[0], arguments[1])

    def test_more_groups_a_token_than_groups(self, focus, text):
        result = focus("eval", "--model", STORIES, "--data", text, "--method", "random-groups", "--groups", 64,
                       "--groups-per-token", 65)
        refused(result, USAGE, "--groups-per-token", "65", "64")

    def test_stride_beyond_context(self, eval_full):
        refused(eval_full(STORIES, "--stride", 65), USAGE, "--stride", "65", "64")

    def test_missing_model_flag(self, focus, text):
        refused(focus("eval", "--data", text), USAGE, "--model")

    def test_prompt_longer_than_the_context(self, focus):
        result = focus("generate", "--model", STORIES, "--prompt", "One day, a cat ran. " * 200, "--max-new-tokens", 4)
        refused(result, RUN_FAILED, "512")


class TestAdapter:
    @pytest.fixture()
    def spoilt(self, adapter, tmp_path):
        return shutil.copytree(adapter, tmp_path / "adapter")

    @pytest.fixture()
    def eval_focus(self, focus, text):
        def run(adapter, model=STORIES, *arguments):
            return focus("eval", "--model", model, "--adapter", adapter, "--data", text, "--method", "focus", "--context", 64,
                         "--max-windows", 4, "--json", *arguments)

        return run

    def rewrite(self, adapter, change):
        weights = load_file(adapter / "adapter_model.safetensors")
        change(weights, sorted(weights))
        save_file(weights, adapter / "adapter_model.safetensors")

    def test_whole(self, eval_focus, adapter):
        result = eval_focus(adapter)
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["leak_max_abs_diff"] <= 1e-4

    def test_missing_folder(self, eval_focus, tmp_path):
        refused(eval_focus(tmp_path / "nowhere"), RUN_FAILED, "nowhere")

    def test_wrong_base(self, eval_focus, adapter, model):
        weights = load_file(model / "model.safetensors")
        weights["model.layers.1.mlp.up_proj.weight"] *= 1.5
        save_file(weights, model / "model.safetensors")
        refused(eval_focus(adapter, model), RUN_FAILED, "trained on", "fingerprint")
        forced = eval_focus(adapter, model, "--force")
        assert forced.returncode == 0 and "another base" in forced.stderr, forced.stderr

    def test_missing_key(self, eval_focus, spoilt):
        removed = []
        self.rewrite(spoilt, lambda w, names: removed.append(names[0]) or w.pop(names[0]))
        refused(eval_focus(spoilt), RUN_FAILED, removed[0])

    def test_extra_key(self, eval_focus, spoilt):
        self.rewrite(spoilt, lambda w, names: w.update({"stray.weight": np.ones(3, np.float32)}))
        refused(eval_focus(spoilt), RUN_FAILED, "stray.weight")

    def test_misshaped_key(self, eval_focus, spoilt):
        changed = []
        self.rewrite(spoilt, lambda w, names: changed.append(names[-1]) or w.update({names[-1]: np.ones((1, 2), np.float32)}))
        refused(eval_focus(spoilt), RUN_FAILED, changed[0])

    @pytest.mark.parametrize("cut", [0, 7, 100, -1])
    def test_truncated(self, eval_focus, spoilt, cut):
        file = spoilt / "adapter_model.safetensors"
        file.write_bytes(file.read_bytes()[:cut])
        refused(eval_focus(spoilt), RUN_FAILED, "adapter_model.safetensors")


@pytest.mark.parametrize("out", ["/proc/focus-out", "FILE/below"])
def test_output_folder_not_writable(focus, text, tmp_path, out):
    (tmp_path / "FILE").write_text("a file, so nothing can be made below it")
    out = out if os.path.isabs(out) else tmp_path / out
    result = focus("train", "--train", "centroids", "--model", STORIES, "--data", text, "--out", out, "--context", 128,
                   "--max-steps", 2)
    refused(result, RUN_FAILED, out)
