"""The comparison methods in plain PyTorch, one query after another, after the formulas of their papers: what each keeps of the keys
j <= i of a query i, as a set, and how it weighs them. One sequence: q [Hq, T, D], k and v [Hkv, T, D]."""

import math

import torch

MASK64 = 2**64 - 1


class Problem:
    """Tensors and settings of a comparison, with float32 scores of all pairs."""

    def __init__(self, q, k, v, *, scale, window=128, sinks=4, softcap=0.0, layer_window=0, layer=0, seed=0):
        self.group = q.shape[0] // k.shape[0]
        self.q, self.k, self.v = q.float(), k.float().repeat_interleave(self.group, 0), v.float().repeat_interleave(self.group, 0)
        self.heads, self.tokens, self.dim = q.shape
        self.window, self.sinks, self.layer_window, self.layer, self.seed = window, sinks, layer_window, layer, seed
        self.scale, self.softcap = scale, softcap
        self.scores = self.cap(scale * self.q @ self.k.transpose(1, 2))

    def cap(self, scores):
        return self.softcap * torch.tanh(scores / self.softcap) if self.softcap else scores

    def visible(self, i):
        return [j for j in range(i + 1) if not self.layer_window or i - j < self.layer_window]

    def near(self, i):
        return {j for j in self.visible(i) if i - j <= self.window or j < self.sinks}

    def far(self, i):
        near = self.near(i)
        return [j for j in self.visible(i) if j not in near]

    def group_heads(self, h):
        return range(h // self.group * self.group, (h // self.group + 1) * self.group)


def best(values, candidates, count):
    """The candidates with the highest values."""
    return set(sorted(candidates, key=lambda x: -float(values[x]))[:count])


def attend(p, chosen, bias=lambda h, i, j: 0.0):
    """Softmax over the keys chosen(h, i), and how many they are."""
    out, kept = torch.zeros_like(p.q), 0
    for h in range(p.heads):
        for i in range(p.tokens):
            keys = sorted(chosen(h, i))
            kept += len(keys)
            extra = torch.tensor([bias(h, i, j) for j in keys])
            out[h, i] = torch.softmax(p.scores[h, i, keys] + extra, 0) @ p.v[h, keys]
    return out, kept


def longformer(p, dilation=1, dilated_heads=None, global_every=0):
    def chosen(h, i):
        kv = h // p.group
        step = dilation if dilated_heads is None or kv < dilated_heads else 1
        window = {i - m * step for m in range(p.window + 1)}
        tokens = {j for j in range(i + 1) if global_every and (i % global_every == 0 or j % global_every == 0)}
        return (window | tokens | set(range(p.sinks))) & set(p.visible(i))

    return attend(p, chosen)


def mix(state, value):
    """The finaliser of SplitMix64 over a running state."""
    x = ((state ^ value) + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def random_choice(key, count, n):
    """Floyd's sample of `count` numbers below n."""
    drawn = set()
    for p, last in enumerate(range(n - min(count, n), n)):
        x = ((mix(key, p + 1) >> 32) * (last + 1)) >> 32
        drawn.add(last if x in drawn else x)
    return drawn


def bigbird(p, block_size=64, random_blocks=3):
    def chosen(h, i):
        key = mix(mix(mix(p.seed, p.layer), h // p.group), i // block_size)
        blocks = random_choice(key, random_blocks, i // block_size)
        return p.near(i) | {j for j in p.far(i) if j // block_size in blocks}

    return attend(p, chosen)


def oracle(p, top_keys=64, top_mass=None):
    def chosen(h, i):
        if top_mass is None:
            return p.near(i) | best(p.scores[h, i], p.far(i), top_keys)
        visible = p.visible(i)
        weight = dict(zip(visible, torch.softmax(p.scores[h, i, visible], 0).tolist()))
        keys = p.near(i)
        for j in sorted(p.far(i), key=lambda x: -weight[x]):
            if sum(weight[x] for x in keys) >= top_mass:
                break
            keys = keys | {j}
        return keys

    return attend(p, chosen)


def moba(p, block_size=64, top_blocks=3):
    def chosen(h, i):
        own = i // block_size
        open_blocks = {j // block_size for j in p.far(i)} - {own}
        gate = {b: p.q[h, i] @ p.k[h, b * block_size : (b + 1) * block_size].mean(0) for b in open_blocks}
        blocks = best(gate, open_blocks, top_blocks - 1) | {own}
        return p.near(i) | {j for j in p.far(i) if j // block_size in blocks}

    return attend(p, chosen)


def nsa_blocks(p, block_size=64, top_blocks=3):
    stride, length = block_size // 4, block_size // 2

    def importance(h, i):
        """Weight by block of one head: its softmax over the stretches that have ended, shared out by quarters."""
        stretches = [c for c in range(p.tokens) if c * stride + length <= i + 1]
        weight = {}
        if stretches:
            keys = torch.stack([p.k[h, c * stride : c * stride + length].mean(0) for c in stretches])
            for c, w in zip(stretches, torch.softmax(p.scale * keys @ p.q[h, i], 0)):
                for quarter in (c, c + 1):
                    weight[quarter // 4] = weight.get(quarter // 4, 0.0) + w
        return weight

    def chosen(h, i):
        parts = [importance(g, i) for g in p.group_heads(h)]
        open_blocks = {j // block_size for j in p.far(i) if j // block_size * block_size + length <= i + 1}
        total = {b: sum(part.get(b, 0.0) for part in parts) for b in open_blocks}
        blocks = best(total, open_blocks, top_blocks)
        return p.near(i) | {j for j in p.far(i) if j // block_size in blocks}

    return attend(p, chosen)


def sparq(p, query_components=16, top_keys=64, mean_reallocation=True):
    def weights(h, i):
        size = sum(p.q[g, i].abs() for g in p.group_heads(h))
        r = size.topk(query_components).indices
        q = p.q[h, i]
        temperature = torch.sqrt(q[r].abs().sum() / q.abs().sum()) / p.scale
        visible = p.visible(i)
        return dict(zip(visible, torch.softmax(p.cap(p.k[h, visible][:, r] @ q[r] / temperature), 0)))

    approximate = {(h, i): weights(h, i) for h in range(p.heads) for i in range(p.tokens)}

    def chosen(h, i):
        total = {j: sum(approximate[g, i][j] for g in p.group_heads(h)) for j in p.far(i)}
        return p.near(i) | best(total, p.far(i), top_keys)

    out, kept = attend(p, chosen)
    if mean_reallocation:
        for h in range(p.heads):
            for i in range(p.tokens):
                alpha = sum(approximate[h, i][j] for j in chosen(h, i))
                out[h, i] = alpha * out[h, i] + (1 - alpha) * p.v[h, p.visible(i)].mean(0)
    return out, kept


def magicpig(p, hash_bits=10, hash_tables=150):
    generator = torch.Generator().manual_seed(p.seed + p.layer)
    planes = torch.randn(p.dim, hash_tables * hash_bits, generator=generator)

    def draws(h, i):
        """For every key up to i: in how many tables it collides, and p."""
        start = i // 64 * 64
        centred = p.k[h, : i + 1] - (p.k[h, :start].mean(0) if start else 0.0)
        same = ((centred @ planes > 0) == (p.q[h, i] @ planes > 0)).view(-1, hash_tables, hash_bits).all(2).sum(1)
        cosine = torch.nn.functional.cosine_similarity(centred, p.q[h, i : i + 1], dim=1).double()
        return same.tolist(), (1 - torch.acos(cosine) / math.pi).tolist()

    found = {(h, i): draws(h, i) for h in range(p.heads) for i in range(p.tokens)}

    def correction(h, i, j):
        if j in p.near(i):
            return 0.0
        one = found[h, i][1][j] ** hash_bits
        return -math.log(1 - (1 - one) ** hash_tables - hash_tables * one * (1 - one) ** (hash_tables - 1))

    return attend(p, lambda h, i: p.near(i) | {j for j in p.far(i) if found[h, i][0][j] >= 2}, correction)


def performer(p, features=256):
    """FAVOR+ by its definition: weights phi(q) . phi(k) over the keys so far. Kept: m for a query of each head and a key of each KV head."""
    generator = torch.Generator().manual_seed(p.seed + p.layer)
    directions = [torch.linalg.qr(torch.randn(p.dim, p.dim, generator=generator, dtype=torch.float64))[0].T
                  for _ in range(-(-features // p.dim))]
    lengths = torch.randn(features, p.dim, generator=generator, dtype=torch.float64).norm(dim=1, keepdim=True)
    w = torch.cat(directions)[:features] * lengths

    def phi(x):
        x = x.double() * math.sqrt(p.scale)
        return torch.exp(x @ w.T - x.square().sum(-1, keepdim=True) / 2) / math.sqrt(features)

    weights = (phi(p.q) @ phi(p.k).transpose(1, 2)).tril()
    out = weights / weights.sum(-1, keepdim=True) @ p.v.double()
    return out.float(), p.tokens * features * (p.heads + p.heads // p.group)


def unit(x):
    return torch.nn.functional.normalize(x, dim=-1)


def kmeans(x, clusters):
    """Ten rounds of spherical k-means of the unit vectors x [n, D] from evenly spaced ones."""
    centroids = [x[c * len(x) // clusters] for c in range(clusters)]
    for _ in range(10):
        nearest = [int(torch.stack([c @ row for c in centroids]).argmax()) for row in x]
        members = [[row for row, c in zip(x, nearest) if c == cluster] for cluster in range(clusters)]
        centroids = [unit(sum(rows)) if rows else old for rows, old in zip(members, centroids)]
    return torch.stack(centroids)


def routing_transformer(p, clusters=16, cluster_keys=64):
    everyone = range(p.tokens)
    members = {}
    for h in range(p.heads):
        centroids = kmeans(unit(p.k[h]), min(clusters, p.tokens))
        members[h] = [(best(unit(p.q[h]) @ c, everyone, cluster_keys), best(unit(p.k[h]) @ c, everyone, cluster_keys)) for c in centroids]

    def chosen(h, i):
        shared = set().union(*[keys for queries, keys in members[h] if i in queries])
        return p.near(i) | (shared & set(p.far(i)))

    return attend(p, chosen)


def routing_transformer_causal(p, clusters=16, cluster_keys=64):
    centroids = {(h, start): kmeans(unit(p.k[h, :start]), min(clusters, start))
                 for h in range(p.heads) for start in range(64, p.tokens, 64)}

    def chosen(h, i):
        if i < 64:
            return p.near(i)
        all_centroids = centroids[h, i // 64 * 64]
        own = all_centroids[int((all_centroids @ unit(p.q[h, i])).argmax())]
        return p.near(i) | best(unit(p.k[h]) @ own, p.far(i), cluster_keys)

    return attend(p, chosen)


def linformer(p, pool=16):
    keys, values = ([torch.stack([x[h, c : c + pool].mean(0) for c in range(0, p.tokens, pool)]) for h in range(p.heads)]
                    for x in (p.k, p.v))
    out = torch.stack([torch.softmax(p.cap(p.scale * p.q[h] @ keys[h].T), -1) @ values[h] for h in range(p.heads)])
    return out, p.heads * p.tokens * len(keys[0])


def linformer_causal(p, pool=16):
    out, kept = torch.zeros_like(p.q), 0
    for h in range(p.heads):
        for i in range(p.tokens):
            begin = max(0, i - p.window) // pool * pool
            exact = sorted(p.near(i) | set(range(begin, i + 1)))
            stretches = [range(max(c, p.sinks), c + pool) for c in range(0, begin, pool) if c + pool > p.sinks]
            keys = torch.cat([p.k[h, exact], *[p.k[h, list(s)].mean(0, keepdim=True) for s in stretches]])
            values = torch.cat([p.v[h, exact], *[p.v[h, list(s)].mean(0, keepdim=True) for s in stretches]])
            out[h, i] = torch.softmax(p.cap(p.scale * keys @ p.q[h, i]), 0) @ values
            kept += len(keys)
    return out, kept
