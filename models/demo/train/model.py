"""The demo model in PyTorch: Qwen3's architecture with the parameter names of its Hugging Face checkpoints, written for fast
training on a CPU: one matrix product for q, k and v, plain attention on short rows, logits only where a token is learned."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_SIZE, INNER = 4096, 256, 6, 4, 2, 64, 768
CONTEXT, ROPE_THETA, EPSILON = 2048, 10000.0, 1e-6
TELL_LAYERS, LOOK_LAYERS = (2, 4), (3, 5)  # of the hints that training gives (batches.Sample), counted from 1
PLAIN_ATTENTION_MAX = 512  # tokens; longer rows go through the fused kernel, which needs no square of scores


def rms_norm(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, EPSILON)


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return rms_norm(x, self.weight)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_SIZE, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_SIZE, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_SIZE, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_SIZE, HIDDEN, bias=False)
        self.q_norm, self.k_norm = Norm(HEAD_SIZE), Norm(HEAD_SIZE)

    def forward(self, x, cos, sin, mask):
        rows, length, _ = x.shape
        weight = torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight])
        q, k, v = F.linear(x, weight).view(rows, length, -1, HEAD_SIZE).split([HEADS, KV_HEADS, KV_HEADS], 2)
        q, k = (rotate(norm(t), cos, sin).to(v.dtype).transpose(1, 2) for norm, t in ((self.q_norm, q), (self.k_norm, k)))
        v = v.transpose(1, 2)
        if mask is None:
            k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
            scores = None
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # all query heads of a key-value head as one matrix
            group = HEADS // KV_HEADS
            scores = torch.matmul(q.reshape(rows, KV_HEADS, group * length, HEAD_SIZE), k.transpose(2, 3))
            scores = scores.view(rows, KV_HEADS, group, length, length) * HEAD_SIZE**-0.5 + mask[:, None, None]
            shares = scores.softmax(-1).to(v.dtype).view(rows, KV_HEADS, group * length, length)
            y = torch.matmul(shares, v).view(rows, HEADS, length, HEAD_SIZE)
            scores = scores[:, 0, 0]
        return self.o_proj(y.transpose(1, 2).reshape(rows, length, -1)), scores


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, INNER, bias=False)
        self.up_proj = nn.Linear(HIDDEN, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x):
        gate, up = F.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight])).chunk(2, -1)
        return self.down_proj(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(HIDDEN), Norm(HIDDEN)
        self.self_attn, self.mlp = Attention(), FeedForward()

    def forward(self, x, cos, sin, mask):
        attended, scores = self.self_attn(self.input_layernorm(x), cos, sin, mask)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), scores


class DemoModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm(HIDDEN)
        angles = torch.outer(torch.arange(CONTEXT).float(), ROPE_THETA ** -(torch.arange(0, HEAD_SIZE, 2) / HEAD_SIZE))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(p)

    def forward(self, tokens, positions, mask):
        """Hidden states [rows, length, HIDDEN] of tokens [rows, length], after the last norm and after each of TELL_LAYERS, and the
        scores [rows, length, length] of the first head in each of LOOK_LAYERS; mask [rows, length, length] is added to the scores,
        or None for plain causal attention, which tells no scores."""
        x = self.embed_tokens(tokens)
        cos, sin = self.cos[positions][:, :, None], self.sin[positions][:, :, None]
        states, scores = [], []
        for number, layer in enumerate(self.layers, 1):
            x, looked = layer(x, cos, sin, mask)
            if number in TELL_LAYERS:
                states.append(x)
            if number in LOOK_LAYERS:
                scores.append(looked)
        return self.norm(x), states, scores


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal by five Newton-Schulz steps (K. Jordan 2024): for the matrices inside the layers,
    about twice as far per token as AdamW."""

    def __init__(self, parameters, lr, momentum=0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                m = state["momentum"]
                m.lerp_(p.grad, 1 - group["momentum"])
                x = p.grad.lerp(m, group["momentum"]).bfloat16()
                tall = x.shape[0] > x.shape[1]
                x = x.T if tall else x
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x.T if tall else x
                p.add_(x.float(), alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)
