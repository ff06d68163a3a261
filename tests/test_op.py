"""focus::attention as Python sees it: libfocus loaded into torch, its schema checked, its results against plain PyTorch."""

import math

import pytest
import torch

from conftest import library


@pytest.fixture(scope="module", autouse=True)
def loaded():
    torch.ops.load_library(str(library()))


def make_case(batch=2, heads=6, kv_heads=2, tq=50, tk=70, dim=16, lists=5, slots=2, dtype=torch.float32, requires_grad=False):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(batch, h, t, dim, generator=generator).to(dtype).requires_grad_(requires_grad)
        for h, t in ((heads, tq), (kv_heads, tk), (kv_heads, tk))
    )
    key_group = torch.randint(-1, lists, (batch, kv_heads, tk), generator=generator, dtype=torch.int32)
    probes = torch.rand(batch, kv_heads, tq, lists, generator=generator).argsort(-1)[..., :slots].int()
    document_start = (torch.arange(tk) // 40 * 40).int().expand(batch, tk).contiguous()
    return q, k, v, key_group, probes, document_start


def dense_reference(q, k, v, key_group, probes, document_start, window, layer_window, scale, softcap):
    tq, tk = q.shape[2], k.shape[2]
    i, j = torch.arange(tk - tq, tk)[:, None], torch.arange(tk)[None]
    allowed = ((j <= i) & (j >= document_start[:, tk - tq :, None]))[:, None]
    if layer_window:
        allowed = allowed & (i - j < layer_window)
    in_list = (key_group[:, :, None, :, None] == probes[:, :, :, None, :]) & (key_group >= 0)[:, :, None, :, None]
    allowed = allowed & (in_list.any(-1) | (i - j <= window))
    share = q.shape[1] // k.shape[1]
    allowed, k, v = (x.repeat_interleave(share, 1) for x in (allowed, k, v))
    scores = q @ k.mT * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~allowed, -math.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


OPTIONS = [(3, 0, 0.25, 0.0), (0, 11, 0.25, 2.0)]  # window, layer_window, scale, softcap


@pytest.mark.parametrize("options", OPTIONS)
def test_equals_plain_pytorch(options):
    case = make_case(requires_grad=True)
    out, lse = torch.ops.focus.attention(*case, *options)
    expected, expected_lse = dense_reference(*case, *options)
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(lse, expected_lse, atol=2e-6, rtol=1e-5)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    for actual, wanted in zip(torch.autograd.grad(out, case[:3], grad), torch.autograd.grad(expected, case[:3], grad)):
        torch.testing.assert_close(actual, wanted, atol=1e-5, rtol=1e-5)


def test_dense_equals_scaled_dot_product_attention():
    q, k, v, *_ = make_case(tq=70)
    out, _ = torch.ops.focus.attention(q, k, v, None, None, None, 0, 0, 0.25, 0.0)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.25, enable_gqa=True)
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS)
def test_opcheck(dtype, options):
    torch.library.opcheck(torch.ops.focus.attention.default, (*make_case(dtype=dtype, requires_grad=True), *options))


def test_opcheck_dense():
    q, k, v, *_ = make_case(requires_grad=True)
    torch.library.opcheck(torch.ops.focus.attention.default, (q, k, v, None, None, None, 0, 0, 0.25, 0.0))


def test_gradcheck_in_float64():
    case = make_case(batch=1, heads=4, kv_heads=2, tq=5, tk=8, dim=3, lists=3, slots=1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q, k, v: torch.ops.focus.attention(q, k, v, *case[3:], 1, 0, 0.5, 2.0)[0], case[:3])


def test_second_derivatives_are_refused():
    case = make_case(requires_grad=True)
    out, _ = torch.ops.focus.attention(*case, *OPTIONS[0])
    (grad,) = torch.autograd.grad(out.sum(), case[0], create_graph=True)
    with pytest.raises(RuntimeError, match="attention_backward"):
        grad.sum().backward()


def test_errors_reach_python():
    q, k, v = torch.zeros(1, 33, 4, 8), torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 4, 8)
    for device in ("cpu", "meta"):
        with pytest.raises(RuntimeError, match="33 query heads cannot share 2 KV heads"):
            torch.ops.focus.attention(q.to(device), k.to(device), v.to(device), None, None, None, 0, 0, 1.0, 0.0)
