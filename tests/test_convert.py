"""The conversion of SmolLM2 from GGUF: rotary layout, completeness, and the converted model's known answers."""

import json
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT, SMOLLM2

sys.path.insert(0, str(ROOT / "scripts"))
from smollm2_to_hf import half_rotation, hugging_face_name  # noqa: E402


def rotate_pairs(x, angles):
    """Interleaved rotary embedding of x [rows]: (x0, x1) are turned together."""
    even, odd = x[0::2], x[1::2]
    turned = np.empty_like(x)
    turned[0::2] = even * np.cos(angles) - odd * np.sin(angles)
    turned[1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return turned


def rotate_halves(x, angles):
    """Rotary embedding of x [rows] as in Hugging Face: (x0, x[rows / 2]) are turned together."""
    first, second = np.split(x, 2)
    return np.concatenate([first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)])


def test_both_rotary_layouts_give_the_same_scores():
    random = np.random.default_rng(0)
    heads, size, width = 3, 8, 5
    q, k = random.normal(size=(2, heads * size, width))
    x, y = random.normal(size=(2, width))
    angle_x, angle_y = random.normal(size=(2, size // 2))
    q_hf, k_hf = half_rotation(q, heads), half_rotation(k, heads)
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        interleaved = rotate_pairs(q[rows] @ x, angle_x) @ rotate_pairs(k[rows] @ y, angle_y)
        halves = rotate_halves(q_hf[rows] @ x, angle_x) @ rotate_halves(k_hf[rows] @ y, angle_y)
        assert halves == pytest.approx(interleaved, rel=1e-12)


def test_names():
    assert hugging_face_name("blk.12.attn_output.weight") == "model.layers.12.self_attn.o_proj.weight"
    assert hugging_face_name("token_embd.weight") == "model.embed_tokens.weight"


@pytest.mark.smollm2
def test_converted_model_gives_the_known_answers():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    reference = json.loads((ROOT / "data/models/smollm2-135m-instruct/reference.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(SMOLLM2)
    assert tokenizer(reference["prompt"])["input_ids"] == reference["prompt_ids"]
    ids = torch.tensor([reference["prompt_ids"]])
    with torch.no_grad():
        logits = model(ids).logits[0]
        greedy = model.generate(ids, attention_mask=torch.ones_like(ids), max_length=len(reference["greedy_ids"]), do_sample=False)
    assert greedy[0].tolist() == reference["greedy_ids"]
    # The reference kept the dequantised weights in float32; ours are rounded to bfloat16, which moves logits by this much.
    for row in reference["prompt_logits"]:
        found = logits[row["position"], row["top5_ids"]]
        assert torch.allclose(found, torch.tensor(row["top5_logits"]), atol=0.25), (row, found)
