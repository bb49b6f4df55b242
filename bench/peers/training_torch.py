"""A training step in PyTorch, eager or compiled: a JSON row for each line on stdin. Started by training.py."""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.out = nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.second(F.relu(self.first(x.reshape(-1, 1, 8, 8)))))
        return self.out(F.max_pool2d(x, 2).flatten(1))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = self.qkv(self.before(x)).reshape(n, t, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Transformer(nn.Module):
    def __init__(self, layers, width, context, kinds):
        super().__init__()
        self.characters, self.places = nn.Embedding(kinds, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, kinds, bias=False)

    def forward(self, text):
        x = self.characters(text) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def make(name):
    """Model, batch, and whether it computes in bfloat16."""
    if name == "mlp":
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), torch.randn(64, 64), torch.randint(0, 10, (64,)), False
    if name == "conv":
        return ConvNet(), torch.randn(64, 64), torch.randint(0, 10, (64,)), False
    batch, context, layers, width = (8, 64, 2, 128) if name == "transformer-small" else (32, 256, 6, 384)
    text = torch.randint(0, 96, (batch, context + 1))
    return Transformer(layers, width, context, 96), text[:, :-1], text[:, 1:], name == "transformer"


def main():
    name, seconds, device, threads, mode = sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # as XLA does
    gpu = device == "cuda"
    model, x, y, narrow = make(name)
    model, x, y = model.to(device), x.to(device).contiguous(), y.to(device).contiguous()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True if gpu else None)

    def forward(x, y):
        with torch.autocast(device, torch.bfloat16, enabled=narrow):
            logits = model(x)
        return F.cross_entropy(logits.flatten(0, -2).float(), y.flatten())

    if mode != "eager":
        forward = torch.compile(forward, mode="default" if mode == "compile" else mode)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(20):
        step()
    if gpu:
        torch.cuda.synchronize()
    for _ in sys.stdin:
        times, begin = [], time.perf_counter()
        while time.perf_counter() - begin < seconds or len(times) < 3:
            t = time.perf_counter()
            for _ in range(10):
                loss = step()
            loss.item()
            times.append((time.perf_counter() - t) / 10 * 1e6)
        row = {"us": sorted(times)[len(times) // 2]}
        if gpu:
            row["held"] = torch.cuda.max_memory_reserved()
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
