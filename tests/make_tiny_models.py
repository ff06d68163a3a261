"""Tiny random checkpoints of the supported families, made by transformers, with the logits that transformers computes for them.

Every model gets large random weights, norms and biases, so that a part left out or a weight misread shows in the logits."""

import json
import pathlib

import torch
import transformers

LLAMA = dict(vocab_size=131, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=6, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1,
             eos_token_id=[2, 5])
GPT2 = dict(vocab_size=131, n_embd=48, n_layer=3, n_head=6, n_positions=64, bos_token_id=1, eos_token_id=2)
GQA = dict(num_key_value_heads=2)
WIDE = dict(max_position_embeddings=32768)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)

# Of the families beside LLaMA and GPT-2; windows are short enough to matter in the tests.
ROTARY = dict(vocab_size=131, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=6,
              num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
              pad_token_id=0)
SLIDING = dict(use_sliding_window=True, sliding_window=9, max_window_layers=2)
GEMMA = dict(sliding_window=9, head_dim=16, query_pre_attn_scalar=24, tie_word_embeddings=True)
FAMILIES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "olmo2": (transformers.Olmo2Config, transformers.Olmo2ForCausalLM),
    "gemma2": (transformers.Gemma2Config, transformers.Gemma2ForCausalLM),
}

# name -> (family, changes to the configuration)
MODELS = {
    "gpt2": ("gpt2", {}),
    "gpt2_untied": ("gpt2", dict(tie_word_embeddings=False)),
    "gpt2_options": ("gpt2", dict(scale_attn_by_inverse_layer_idx=True, activation_function="relu", n_inner=72)),
    "gpt2_gelu": ("gpt2", dict(scale_attn_weights=False, activation_function="gelu")),
    "llama_mha": ("llama", {}),
    "llama_gqa": ("llama", GQA),
    "llama_tied": ("llama", dict(GQA, tie_word_embeddings=True)),
    "llama_biases": ("llama", dict(GQA, attention_bias=True, mlp_bias=True)),
    "llama_head_dim": ("llama", dict(GQA, head_dim=16)),
    "llama_gelu": ("llama", dict(hidden_act="gelu_pytorch_tanh")),
    "mistral": ("mistral", dict(sliding_window=9)),
    "mistral_full": ("mistral", dict(sliding_window=None, head_dim=16)),
    "qwen2": ("qwen2", {}),
    "qwen2_sliding": ("qwen2", dict(SLIDING, tie_word_embeddings=True)),
    "qwen3": ("qwen3", dict(head_dim=16)),
    "qwen3_options": ("qwen3", dict(SLIDING, head_dim=8, attention_bias=True, tie_word_embeddings=True)),
    "olmo2": ("olmo2", dict(num_key_value_heads=6)),
    "olmo2_gqa": ("olmo2", dict(attention_bias=True)),
    "gemma2": ("gemma2", GEMMA),
    "gemma2_options": ("gemma2", dict(GEMMA, attn_logit_softcapping=None, final_logit_softcapping=None, attention_bias=True,
                                      layer_types=["full_attention"] * 3 + ["sliding_attention"])),
    "gemma2_capped": ("gemma2", dict(GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=5.0)),
    "rope_default": ("llama", dict(GQA, **WIDE, rope_parameters=dict(rope_type="default", rope_theta=100000.0))),
    "rope_linear": ("llama", dict(GQA, **WIDE, rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=1e4))),
    "rope_dynamic": ("llama", dict(GQA, rope_parameters=dict(rope_type="dynamic", factor=4.0, rope_theta=1e4))),
    "rope_llama3": ("llama", dict(GQA, **WIDE, rope_parameters=dict(LLAMA3, rope_theta=5e5))),
    "rope_yarn": ("llama", dict(GQA, **WIDE, rope_parameters=dict(rope_type="yarn", factor=4.0, rope_theta=1e4,
                                                                  original_max_position_embeddings=64))),
    "rope_yarn_options": ("llama", dict(GQA, **WIDE, rope_parameters=dict(
        rope_type="yarn", factor=8.0, rope_theta=1e4, original_max_position_embeddings=64, beta_fast=16.0, beta_slow=2.0,
        mscale=1.2, mscale_all_dim=0.7, truncate=False))),
}


def build(name: str, **overrides) -> transformers.PreTrainedModel:
    """The model `name` with weights drawn from a seed of its own, float32, in evaluation mode; `overrides` change its
    configuration."""
    family, changes = MODELS[name]
    changes = {**changes, **overrides}
    torch.manual_seed(sum(map(ord, name)))
    if family == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**GPT2, **changes}))
    else:
        make_config, make_model = FAMILIES[family]
        model = make_model(make_config(**{**(LLAMA if family == "llama" else ROTARY), **changes}))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "norm" in key or "ln_" in key:
                about = 1.0 if key.endswith("weight") and family != "gemma2" else 0.0
                weight.copy_(torch.randn_like(weight) * 0.5 + about)
            elif key.endswith("bias"):
                weight.copy_(torch.randn_like(weight) * 0.5)
            else:
                weight.copy_(torch.randn_like(weight) * 0.2)
    return model.eval()


transformers.utils.logging.disable_progress_bar()


def save(name: str, folder: pathlib.Path, dtype: torch.dtype = torch.float32, shard_size: str = "5GB",
         old_config: bool = False, **overrides) -> transformers.PreTrainedModel:
    """Saves the model in `dtype`; returns it (in that dtype). With `old_config`, rope parameters are written in the form before
    transformers 5."""
    model = build(name, **overrides).to(dtype)
    model.save_pretrained(folder, max_shard_size=shard_size)
    if old_config:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        config["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
        path.write_text(json.dumps(config))
    return model


def load(folder: pathlib.Path, dtype: torch.dtype) -> transformers.PreTrainedModel:
    """The saved model in `dtype`. Not the same as model.to(dtype), which also rounds the rotary frequencies."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


@torch.no_grad()
def logits(model: transformers.PreTrainedModel, ids: list[list[int]], offset: int = 0) -> torch.Tensor:
    """float32 logits [B, T, V] of one pass at positions offset, offset + 1, ..."""
    tensor = torch.tensor(ids)
    positions = (torch.arange(tensor.shape[1]) + offset).expand(tensor.shape)
    return model(tensor, position_ids=positions, use_cache=False).logits.float()


@torch.no_grad()
def greedy(model: transformers.PreTrainedModel, ids: list[int], steps: int) -> list[int]:
    """The next `steps` ids by argmax, recomputing everything at each step."""
    sequence = list(ids)
    for _ in range(steps):
        sequence.append(int(model(torch.tensor([sequence]), use_cache=False).logits[0, -1].argmax()))
    return sequence[len(ids):]
