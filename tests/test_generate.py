"""Generation through the real binary: batches, sampling against transformers, stops, limits and chat."""

import json
import shutil

import pytest
import torch
import transformers

import focus_oracle as oracle
import make_tiny_models as tiny
from conftest import STORIES
from test_families import done, module_of
from test_models import EVERY_FAMILY

PROMPTS = ["Once upon a time there was a little girl named Lily. She loved to play outside.", "The", "One day, a big dog"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """name -> (folder, adapter folder) of tiny models with 512 ids."""
    made = {}

    def make(name):
        if name not in made:
            base = tmp_path_factory.mktemp(name)
            model = tiny.save(name, base / "model", vocab_size=512,
                              **({"n_positions": 512} if name == "gpt2" else {"max_position_embeddings": 512}))
            shutil.copy(STORIES / "tokenizer.json", base / "model")
            heads = getattr(model.config, "num_key_value_heads", None) or model.config.num_attention_heads
            oracle.save_adapter(base / "adapter", model, [0, 1], module=module_of(model), sets=heads)
            made[name] = base / "model", base / "adapter"
        return made[name]

    return make


def generate(focus, model, *flags):
    return done(focus("generate", "--model", model, "--threads", 1, "--json", "--quiet", *flags))


@pytest.mark.parametrize("name", EVERY_FAMILY)
def test_batches_of_unequal_prompts_equal_single_runs(focus, models, name, tmp_path):
    model, adapter = models(name)
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    for method in ([], ["--adapter", adapter, "--force"]):
        flags = [*method, "-n", 24, "--ignore-eos", "--prefill-chunk", 7]
        rows = generate(focus, model, "--prompts", file, *flags)
        assert len(rows) == len(PROMPTS) + 1
        for prompt, row in zip(PROMPTS, rows):
            (alone,) = generate(focus, model, "--prompt", prompt, *flags)
            assert row["ids"] == alone["ids"] and len(row["ids"]) == 24
            assert row["prompt_ids"] == alone["prompt_ids"]
            assert row["text"] == alone["text"]
        assert rows[-1]["cache_bytes"] >= rows[-1]["cache_limit_bytes"] // 2


@pytest.mark.parametrize("name", ["gpt2", "llama_gqa"])
def test_max_context_counts_no_padding(focus, models, name, tmp_path):
    """A row ends where it would alone; the others go on, in columns beyond the model's positions."""
    model, adapter = models(name)
    file = tmp_path / "prompts.jsonl"
    (counted,) = generate(focus, model, "--prompt", "One day " * 100, "-n", 1)
    prompts = [PROMPTS[1], "One day " * (100 * 480 // len(counted["prompt_ids"])), PROMPTS[2]]
    file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    for method in ([], ["--adapter", adapter, "--force"]):
        flags = [*method, "-n", 45, "--ignore-eos", "--max-context", 512]
        rows = generate(focus, model, "--prompts", file, *flags)
        alone = [generate(focus, model, "--prompt", prompt, *flags)[0] for prompt in prompts]
        assert [row["ids"] for row in rows[:-1]] == [row["ids"] for row in alone]
        assert [row["stop_reason"] for row in rows[:-1]] == ["length", "context", "length"]
        assert len(alone[0]["ids"]) == 45 > len(alone[1]["ids"]) == 512 - len(alone[1]["prompt_ids"])


def test_sampling_rows_of_a_batch_follow_the_seed(focus, models, tmp_path):
    model, _ = models("llama_gqa")
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(PROMPTS) + "\n")
    flags = ["-n", 10, "--ignore-eos", "--temperature", 1.5, "--top-p", 0.9, "--min-p", 0.01, "--top-k", 100]
    rows = generate(focus, model, "--prompts", file, *flags, "--seed", 5)
    for index, prompt in enumerate(PROMPTS):
        (alone,) = generate(focus, model, "--prompt", prompt, *flags, "--seed", 5 + index)
        assert rows[index]["ids"] == alone["ids"]
    assert generate(focus, model, "--prompts", file, *flags, "--seed", 6)[0]["ids"] != rows[0]["ids"]


@pytest.mark.parametrize("penalty", [1.3, 0.8])
def test_repetition_penalty_equals_transformers(focus, models, penalty):
    folder, _ = models("qwen2_sliding")
    (plain,) = generate(focus, folder, "--prompt", PROMPTS[0], "-n", 40, "--ignore-eos")
    (ours,) = generate(focus, folder, "--prompt", PROMPTS[0], "-n", 40, "--ignore-eos", "--repetition-penalty", penalty)
    model = tiny.load(folder, torch.float32)
    config = transformers.GenerationConfig(max_new_tokens=40, do_sample=False, repetition_penalty=penalty, eos_token_id=None,
                                           pad_token_id=0)
    prompt = torch.tensor([ours["prompt_ids"]])
    theirs = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    assert ours["ids"] == theirs[0, prompt.shape[1]:].tolist()
    assert ours["ids"] != plain["ids"]


def test_stop_strings_and_ids(focus):
    (plain,) = generate(focus, STORIES, "--prompt", "Once upon a time", "-n", 60)
    assert plain["stop_reason"] == "length"
    stop = plain["text"].split()[12]
    cut, _ = plain["text"].split(stop, 1)
    (stopped,) = generate(focus, STORIES, "--prompt", "Once upon a time", "-n", 60, "--stop", "no such, text", "--stop", stop)
    assert stopped["text"] == cut and stopped["stop_reason"] == "stop"
    assert plain["ids"][:len(stopped["ids"])] == stopped["ids"]
    text = focus("generate", "--model", STORIES, "--prompt", "Once upon a time", "-n", 60, "--stop", stop, "--quiet")
    assert text.stdout == "Once upon a time" + cut + "\n"
    id = plain["ids"][7]
    (stopped,) = generate(focus, STORIES, "--prompt", "Once upon a time", "-n", 60, "--stop-id", id)
    assert stopped["ids"] == plain["ids"][:plain["ids"].index(id) + 1] and stopped["stop_reason"] == "eos"
    assert focus("generate", "--model", STORIES, "--prompt", "x", "--stop", "").returncode == 2
    assert "512 ids" in focus("generate", "--model", STORIES, "--prompt", "x", "--stop-id", 512).stderr


def test_max_context_bounds_cache_and_text(focus, models):
    (free,) = generate(focus, STORIES, "--prompt", "Once upon a time", "-n", 60)
    prompt = len(free["prompt_ids"])
    (bounded,) = generate(focus, STORIES, "--prompt", "Once upon a time", "-n", 60, "--max-context", prompt + 20)
    assert bounded["ids"] == free["ids"][:20] and bounded["stop_reason"] == "context"
    assert bounded["context"] == prompt + 20
    # 5 layers, 4 KV heads of 8, float32.
    assert bounded["cache_limit_bytes"] == 2 * 5 * 4 * 8 * 4 * (prompt + 20)
    assert bounded["cache_bytes"] == bounded["cache_limit_bytes"]
    long = "One day " * 100
    refused = focus("generate", "--model", STORIES, "--prompt", long, "--max-context", 50)
    assert refused.returncode == 1 and "context allowed by --max-context is 50" in refused.stderr
    refused = focus("generate", "--model", STORIES, "--prompt", "x", "--max-context", 513)
    assert refused.returncode == 1 and "--max-context 513: the model's context is 512" in refused.stderr
    refused = focus("generate", "--model", STORIES, "--prompt", "x", "-n", 600)
    assert refused.returncode == 1 and "the model's is 512" in refused.stderr
    assert "--prefill-chunk: there is no cache with --no-cache" in focus(
        "generate", "--model", STORIES, "--prompt", "x", "--no-cache", "--prefill-chunk", 7).stderr
    (half,) = generate(focus, STORIES, "--prompt", "Once upon a time", "-n", 10, "--dtype", "bfloat16")
    (whole,) = generate(focus, STORIES, "--prompt", "Once upon a time", "-n", 10)
    assert 2 * half["cache_bytes"] == whole["cache_bytes"]


@pytest.mark.parametrize("name", ["llama_gqa", "gemma2", "gpt2"])
def test_a_bfloat16_cache_halves_the_memory_of_a_float32_model(focus, models, name, tmp_path):
    model, adapter = models(name)
    config = json.loads((model / "config.json").read_text())
    layers, heads = config.get("num_hidden_layers", config.get("n_layer")), config.get("num_key_value_heads", config.get("n_head"))
    size = config.get("head_dim") or config.get("hidden_size", config.get("n_embd")) // config.get("num_attention_heads", config.get("n_head"))
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    for method in ([], ["--adapter", adapter, "--force"]):
        flags = [*method, "--prompt", PROMPTS[0], "-n", 40, "--ignore-eos"]
        (whole,) = generate(focus, model, *flags)
        runs = [generate(focus, model, *flags, "--cache-dtype", "bfloat16", "--prefill-chunk", chunk)[0] for chunk in (1, 17, 512)]
        tokens = len(whole["prompt_ids"]) + 40
        assert whole["cache_limit_bytes"] == 2 * layers * heads * size * tokens * 4
        for run in runs:
            assert run["cache_limit_bytes"] == 2 * layers * heads * size * tokens * 2
            # The chunks read the same rounded keys, so they agree among themselves.
            assert run["ids"] == runs[0]["ids"]
            assert run["ids"][0] == whole["ids"][0]
        if not method:
            assert runs[0]["cache_bytes"] == runs[0]["cache_limit_bytes"]
        rows = generate(focus, model, *method, "--prompts", file, "-n", 40, "--ignore-eos", "--cache-dtype", "bfloat16")
        assert rows[0]["ids"] == runs[0]["ids"]
    assert focus("generate", "--model", model, "--prompt", "x", "--no-cache", "--cache-dtype", "bfloat16").returncode == 2


@pytest.mark.parametrize("scaling", ["yarn:3", "linear:2.5"])
@pytest.mark.parametrize("name", ["llama_gqa", "gemma2", "qwen2_sliding"])
def test_rope_scaling_equals_transformers(focus, models, name, scaling):
    folder, adapter = models(name)
    prompt = ["--prompt", "One day a cat sat. " * 75, "-n", 20, "--ignore-eos"]
    refused = focus("generate", "--model", folder, *prompt)
    assert refused.returncode == 1 and "the model's" in refused.stderr and "512" in refused.stderr
    (ours,) = generate(focus, folder, *prompt, "--rope-scaling", scaling)
    assert len(ours["prompt_ids"]) > 512
    config = transformers.AutoConfig.from_pretrained(folder)
    kind, factor = scaling.split(":")
    config.max_position_embeddings = int(512 * float(factor))
    config.rope_parameters = {**config.rope_parameters, "rope_type": kind, "factor": float(factor), "original_max_position_embeddings": 512}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32).eval()
    assert ours["ids"] == tiny.greedy(model, ours["prompt_ids"], 20)
    runs = [generate(focus, folder, *prompt, "--rope-scaling", scaling, "--adapter", adapter, "--force", *flags)[0]["ids"]
            for flags in ([], ["--no-cache"], ["--prefill-chunk", 17])]
    assert runs[1:] == runs[:1] * 2


def test_rope_scalings_at_fault(focus, models):
    for scaling, words in (("dynamic:2", "no scaling 'dynamic'; expected TYPE:FACTOR with one of linear, yarn"), ("yarn", "expected a factor"),
                           ("yarn:", "expected a factor"), ("yarn:1", "expected a factor above 1"), ("linear:2x", "expected a factor"),
                           ("linear:nan", "expected a factor")):
        refused = focus("generate", "--model", models("llama_gqa")[0], "--prompt", "x", "--rope-scaling", scaling)
        assert refused.returncode == 2 and words in refused.stderr, refused.stderr
    refused = focus("generate", "--model", models("gpt2")[0], "--prompt", "x", "--rope-scaling", "yarn:2")
    assert refused.returncode == 1 and "gpt2 has learned positions" in refused.stderr
    refused = focus("generate", "--model", models("rope_llama3")[0], "--prompt", "x", "--rope-scaling", "yarn:2")
    assert refused.returncode == 1 and "a rotary scaling of its own, llama3" in refused.stderr
    refused = focus("generate", "--model", models("llama_gqa")[0], "--prompt", "x", "--rope-scaling", "yarn:9e9")
    assert refused.returncode == 1 and "expected below 2^31" in refused.stderr


def test_chat_renders_the_template_with_one_bos(focus, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(STORIES, model)
    chat = ["--chat", "--system", "Be kind.", "--prompt", "Tell me a story", "-n", 5]
    refused = focus("generate", "--model", model, *chat)
    assert refused.returncode == 1 and "no chat template" in refused.stderr
    template = ("{{ bos_token }}{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}"
                "{% if add_generation_prompt %}{{ 'bot:' }}{% endif %}")
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "bos_token": "<s>", "eos_token": "</s>"}))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(STORIES / "tokenizer.json"), bos_token="<s>", eos_token="</s>",
                                                     chat_template=template)
    (result,) = generate(focus, model, *chat)
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Tell me a story"}]
    theirs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert result["prompt_ids"] == theirs
    assert theirs.count(1) == 1
    assert focus("generate", "--model", model, "--prompt", "x", "--system", "y").returncode == 2
    (model / "chat_template.jinja").write_text("{{ 1 | xmlattr }}")
    refused = focus("generate", "--model", model, *chat)
    assert refused.returncode == 1 and "the filter 'xmlattr' is not supported" in refused.stderr


def test_a_prompt_that_brings_its_own_bos(focus):
    plain = focus("generate", "--model", STORIES, "--prompt", "<s>Once upon a time", "-n", 5, "--json")
    (line,) = done(plain)
    assert line["prompt_ids"].count(1) == 1
    assert "only one is kept" in plain.stderr


def test_prompts_at_fault(focus, tmp_path):
    file = tmp_path / "prompts.jsonl"
    for content, words in (("", "no prompt"), ('{"prompt": "a"}\n{"text": "b"}\n', "line 2"), ("nonsense\n", "line 1")):
        file.write_text(content)
        result = focus("generate", "--model", STORIES, "--prompts", file)
        assert result.returncode == 1 and words in result.stderr
    assert focus("generate", "--model", STORIES, "--prompts", file, "--prompt", "x").returncode == 2
