"""Focus in plain PyTorch, after the formulas of docs/design.md, inside the models of transformers: random adapters, their lists
and probes, and attention under the dense mask that these give."""

import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "focus_oracle"


def save_adapter(folder: pathlib.Path, model: transformers.PreTrainedModel, layers: list[int], fingerprint: str = "0" * 16, *,
                 module: str, sets: int, groups: int = 6, groups_per_token: int = 2, window: int = 5, sinks: int = 2,
                 group_dim: int = 4, tau: float = 0.1, symmetric: bool = False,
                 scaled: list[int] = ()) -> tuple[dict, dict[int, dict[str, torch.Tensor]]]:
    """A folder with a random router for the given layers and random head scales for the `scaled` ones (format version 3; without
    any, version 2); returns (its configuration, tensors by layer)."""
    torch.manual_seed(11)
    width = model.config.hidden_size
    config = dict(peft_type="FOCUS", format_version=2, task_type="CAUSAL_LM", inference_mode=True, base_model_name_or_path="tiny",
                  base_fingerprint=fingerprint, module=module, layers_to_transform=layers, hidden_size=width, list_sets=sets,
                  groups=groups, groups_per_token=groups_per_token, window=window, sinks=sinks, group_dim=group_dim, tau=tau,
                  sinkhorn_iters=10, shared=sets == 1, symmetric=symmetric, global_group=False, dtype="float32", training={})
    tensors = {layer: dict(query_projection=torch.randn(sets, group_dim, width), key_projection=torch.randn(sets, group_dim, width),
                           key_bias=torch.randn(sets, width), codebook=torch.randn(sets, groups, group_dim + 1),
                           potentials=torch.randn(sets, groups), probe_exponent=torch.rand(sets) + 0.5) for layer in layers}
    if symmetric:
        tensors = {layer: dict(projection=torch.randn(sets, group_dim, width) * width**-0.5, centroids=torch.randn(sets, groups, group_dim),
                               potentials=torch.zeros(sets, groups)) for layer in layers}
    if scaled:
        heads = model.config.num_attention_heads
        config.update(format_version=3, scaled_layers=list(scaled), query_heads=heads)
        for layer in scaled:
            tensors.setdefault(layer, {}).update(score_factor=torch.rand(heads) + 0.5, output_gain=torch.rand(heads) + 0.5)
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file({f"base_model.model.{module.replace('{}', str(layer))}.focus.{name}": tensor
               for layer, named in tensors.items() for name, tensor in named.items()}, folder / "adapter_model.safetensors")
    return config, tensors


def route(h: torch.Tensor, router: dict[str, torch.Tensor], config: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of every list for the keys of the attention input h [T, d], and whether a query probes it, both [sets, T, lists]."""
    unit = lambda x: x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6)  # noqa: E731
    q = unit(torch.einsum("sgd,td->stg", router["query_projection"], h))
    k = unit(torch.einsum("sgd,td->stg", router["key_projection"], h))
    bias = torch.einsum("sd,td->st", router["key_bias"], h)
    codebook, offset = router["codebook"][..., :-1], router["codebook"][..., -1]
    key_scores = (torch.einsum("stg,seg->ste", k, codebook) + config["tau"] * bias.unsqueeze(-1) * offset.unsqueeze(1)) / config["tau"]
    probe_scores = torch.einsum("stg,seg->ste", q, codebook) + offset.unsqueeze(1)
    share = config["groups_per_token"] / config["groups"]
    probes = (config["groups"] * share ** router["probe_exponent"].double()).round().clamp(1, config["groups"])  # [sets]
    rank = probe_scores.argsort(-1, descending=True).argsort(-1)
    return key_scores + router["potentials"].unsqueeze(1), rank < probes.view(-1, 1, 1)


def allowed(h: torch.Tensor, router: dict[str, torch.Tensor], config: dict, own_window: int | None) -> torch.Tensor:
    """bool [sets, T, T] from the attention input h [T, d]: causal, and in the window, a sink, or in a probed list."""
    key_scores, probed = route(h, router, config)
    own_list = key_scores.argmax(-1)  # [sets, T]
    shared = probed.gather(-1, own_list.unsqueeze(1).expand(-1, len(h), -1))
    position = torch.arange(len(h))
    distance = position.unsqueeze(1) - position
    mask = shared | (distance <= config["window"]) | (position < config["sinks"])
    mask = mask & (distance >= 0)
    return mask & (distance < own_window) if own_window else mask


def gate(h: torch.Tensor, router: dict[str, torch.Tensor], config: dict) -> torch.Tensor:
    """Factor of the scores under the soft gate [sets, T, T] from h [T, d]: sigmoid(lambda * g_i.g_j), 1 for local pairs."""
    scores = torch.einsum("sgd,td->stg", router["projection"], h) @ router["centroids"].transpose(-1, -2) / config["tau"]
    for _ in range(config["sinkhorn_iters"]):
        scores = scores - scores.logsumexp(1, keepdim=True)
        scores = scores - scores.logsumexp(2, keepdim=True)
    member = scores.exp()
    position = torch.arange(len(h))
    local = (position.unsqueeze(1) - position <= config["window"]) | (position < config["sinks"])
    return torch.where(local, 1.0, torch.sigmoid(config["sharpness"] * member @ member.transpose(-1, -2)))


def straight_through(h: torch.Tensor, router: dict[str, torch.Tensor], config: dict, far: torch.Tensor) -> torch.Tensor:
    """A term of value 0 for the mask [sets, T, T] that passes its gradients at `far` pairs to the soft affinity of query and list."""
    h = h.detach()
    key_scores, probed = route(h, router, config)
    q = torch.einsum("sgd,td->stg", router["query_projection"], h)
    q = q / q.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    codebook = router["codebook"]
    scores = (torch.einsum("stg,seg->ste", q, codebook[..., :-1]) + codebook[..., -1].unsqueeze(1)) / config["tau"]
    ordered = scores.detach().sort(-1, descending=True).values
    soft = []
    for score, rank, some in zip(scores, ordered, probed):
        count = int(some[0].sum())
        last = rank[:, count - 1]
        theta = (last + rank[:, count]) / 2 if count < score.shape[-1] else last - 10
        soft.append(torch.sigmoid(config["sharpness"] * (score - theta.unsqueeze(-1))))
    affinity = torch.stack(soft) @ (config["sharpness"] * key_scores).softmax(-1).transpose(-1, -2)
    return (affinity - affinity.detach()) * far


def attend(module, query, key, value, attention_mask, scaling=None, sliding_window=None, softcap=None, dropout=0.0, **_):
    """An attention function of transformers: [1, T, Hq, D]."""
    _, heads, tokens, width = query.shape
    repeated = lambda x: x.repeat_interleave(heads // x.shape[1], dim=1)  # noqa: E731
    has_scales = module.focus_router is not None and "score_factor" in module.focus_router
    if has_scales:
        query = query * module.focus_router["score_factor"].view(1, -1, 1, 1)
    scores = query @ repeated(key).transpose(-1, -2) * (width**-0.5 if scaling is None else scaling)
    has_lists = module.focus_router is not None and "potentials" in module.focus_router
    soft = has_lists and "sharpness" in module.focus_config and module.focus_config["symmetric"]
    if soft:
        gates = gate(module.focus_hidden[0], module.focus_router, module.focus_config)
        scores = scores * repeated(gates.expand(key.shape[1], -1, -1).unsqueeze(0))
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if not has_lists or soft:
        mask = torch.ones(1, tokens, tokens).tril().bool()
        if sliding_window:
            mask = mask & ~torch.ones(1, tokens, tokens).tril(-sliding_window).bool()
    else:
        mask = allowed(module.focus_hidden[0], module.focus_router, module.focus_config, sliding_window)
    mask = repeated(mask.expand(key.shape[1], -1, -1).unsqueeze(0))
    if has_lists and "sharpness" in module.focus_config and not soft:
        position = torch.arange(tokens)
        distance = position.unsqueeze(1) - position
        far = (distance > module.focus_config["window"]) & (position >= module.focus_config["sinks"])
        far = far & (distance < sliding_window) if sliding_window else far
        term = straight_through(module.focus_hidden[0], module.focus_router, module.focus_config, far)
        w = mask.to(scores.dtype) + repeated(term.expand(key.shape[1], -1, -1).unsqueeze(0))  # [1, Hq, T, T]
        exponential = (scores - scores.detach().amax(-1, keepdim=True)).exp()
        ratio = (exponential / (mask * exponential).sum(-1, keepdim=True)).detach()
        w.register_hook(lambda gradient: gradient * (4 / ratio).clamp(max=1))
        weights = w * exponential
        weights = weights / weights.sum(-1, keepdim=True)
    else:
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    out = weights @ repeated(value)
    if has_scales:
        out = out * module.focus_router["output_gain"].view(1, -1, 1, 1)
    return out.transpose(1, 2), None


def insert(model: transformers.PreTrainedModel, config: dict, tensors: dict[int, dict[str, torch.Tensor]]) -> None:
    """Lets the model attend by these routers; layers without one attend as before."""
    transformers.AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    post_norm = model.config.model_type == "olmo2"

    def remember(module, arguments, keywords):
        h = keywords["hidden_states"] if "hidden_states" in keywords else arguments[0]
        if post_norm:
            h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps)
        module.focus_hidden = h

    blocks = model.transformer.h if model.config.model_type == "gpt2" else model.model.layers
    for layer, block in enumerate(blocks):
        attention = block.attn if model.config.model_type == "gpt2" else block.self_attn
        attention.focus_router, attention.focus_config = tensors.get(layer), config
        attention.register_forward_pre_hook(remember, with_kwargs=True)
