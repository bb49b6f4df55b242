"""A training step in JAX, jitted whole, its state donated: a JSON row for each line on stdin. Started by training.py."""
import json
import os
import sys
import time

name, seconds, device, threads = sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
os.environ["JAX_PLATFORMS"] = device
if device == "cpu":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])

import jax
import jax.numpy as jnp


def linear(key, inputs, outputs, bias=True):
    a, b = jax.random.split(key)
    bound = inputs ** -0.5
    out = {"w": jax.random.uniform(a, (outputs, inputs), minval=-bound, maxval=bound)}
    if bias:
        out["b"] = jax.random.uniform(b, (outputs,), minval=-bound, maxval=bound)
    return out


def apply(p, x):
    y = x @ p["w"].T
    return y + p["b"] if "b" in p else y


def conv(key, inputs, outputs):
    a, b = jax.random.split(key)
    bound = (9 * inputs) ** -0.5
    return {"w": jax.random.uniform(a, (outputs, inputs, 3, 3), minval=-bound, maxval=bound),
            "b": jax.random.uniform(b, (outputs,), minval=-bound, maxval=bound)}


def convolve(p, x):
    y = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    return jax.nn.relu(y + p["b"][:, None, None])


def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def norm(p, x):
    v = x.astype(jnp.float32)
    v = (v - v.mean(-1, keepdims=True)) * jax.lax.rsqrt(v.var(-1, keepdims=True) + 1e-5)
    return (v * p["w"] + p["b"]).astype(x.dtype)


def block(p, x):
    n, t, width = x.shape
    q, k, v = jnp.moveaxis(apply(p["qkv"], norm(p["before"], x)).reshape(n, t, 3, width // 64, 64), 2, 0)
    seen = jax.nn.dot_product_attention(q, k, v, is_causal=True,
                                        implementation="cudnn" if device == "cuda" and q.dtype == jnp.bfloat16 else None)
    x = x + apply(p["out"], seen.reshape(n, t, width))
    return x + apply(p["down"], jax.nn.gelu(apply(p["up"], norm(p["between"], x)), approximate=False))


def make(key):
    """Parameters, the model, a batch, and the dtype it computes in."""
    k = jax.random.split(key, 64)
    x, y = jax.random.normal(k[0], (64, 64)), jax.random.randint(k[1], (64,), 0, 10)
    if name == "mlp":
        model = lambda p, x: apply(p["out"], jax.nn.relu(apply(p["hidden"], x)))
        return {"hidden": linear(k[2], 64, 128), "out": linear(k[3], 128, 10)}, model, x, y, jnp.float32
    if name == "conv":
        p = {"first": conv(k[2], 1, 16), "second": conv(k[3], 16, 32), "out": linear(k[4], 512, 10)}
        model = lambda p, x: apply(p["out"], pool(convolve(p["second"], convolve(p["first"], x.reshape(-1, 1, 8, 8)))).reshape(64, -1))
        return p, model, x, y, jnp.float32
    batch, context, layers, width = (8, 64, 2, 128) if name == "transformer-small" else (32, 256, 6, 384)
    ones = lambda: {"w": jnp.ones(width), "b": jnp.zeros(width)}
    p = {"characters": jax.random.normal(k[2], (96, width)), "places": jax.random.normal(k[3], (context, width)),
         "norm": ones(), "last": linear(k[4], width, 96, False),
         "blocks": [{"before": ones(), "between": ones(), "qkv": linear(k[5 + 4 * i], width, 3 * width),
                     "out": linear(k[6 + 4 * i], width, width), "up": linear(k[7 + 4 * i], width, 4 * width),
                     "down": linear(k[8 + 4 * i], 4 * width, width)} for i in range(layers)]}

    def model(p, text):
        x = p["characters"][text] + p["places"]
        for b in p["blocks"]:
            x = block(b, x)
        return apply(p["last"], norm(p["norm"], x))

    text = jax.random.randint(k[0], (batch, context + 1), 0, 96)
    return p, model, text[:, :-1], text[:, 1:], jnp.bfloat16 if name == "transformer" else jnp.float32


def main():
    params, model, x, y, compute = make(jax.random.PRNGKey(0))

    def loss(p, x, y):
        p = jax.tree.map(lambda a: a.astype(compute), p)
        if x.dtype == jnp.float32:
            x = x.astype(compute)
        logs = jax.nn.log_softmax(model(p, x).astype(jnp.float32))
        return -jnp.mean(jnp.take_along_axis(logs, y[..., None], -1))

    def step(p, m, v, t, x, y):
        value, g = jax.value_and_grad(loss)(p, x, y)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        first, second = 1 - 0.9 ** t, 1 - 0.999 ** t
        p = jax.tree.map(lambda p, m, v: p - 1e-3 * ((m / first) / (jnp.sqrt(v / second) + 1e-8) + 1e-2 * p), p, m, v)
        return p, m, v, t, value

    step = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    state = (params, zeros(), zeros(), jnp.float32(0))
    for _ in range(20):
        *state, value = step(*state, x, y)
    value.block_until_ready()
    for _ in sys.stdin:
        times, begin = [], time.perf_counter()
        while time.perf_counter() - begin < seconds or len(times) < 3:
            t = time.perf_counter()
            for _ in range(10):
                *state, value = step(*state, x, y)
            float(value)
            times.append((time.perf_counter() - t) / 10 * 1e6)
        row = {"us": sorted(times)[len(times) // 2]}
        memory = jax.devices()[0].memory_stats()
        if memory:
            row["held"] = memory["peak_bytes_in_use"]
        print(json.dumps(row), flush=True)


main()
