"""What both peer programs run: the workloads of `kiln bench`, by its names.

Each entry: name, inputs as (shape, low, high) of float32 or (shape, low, high, "bfloat16"), and a function of a namespace
`m` with the operations. The formulas are those of tools/kiln/workloads*.cpp. `carried`: so many of the first inputs are
replaced by the results in a loop, so their memory may be given up.
"""
import dataclasses
import json
import math
import statistics
import time

MI = 1 << 20


def chain10(m, a, b):
    return m.tanh(a * b + 1) * m.sigmoid(a - b) + m.relu(a) * 0.5 - m.abs(b)


def softmax(m, x):
    e = m.exp(x - m.max(x))
    return e / m.sum(e)


def layernorm(m, x, weight, bias):
    return (x - m.mean(x)) / m.sqrt(m.var(x) + 1e-5) * weight + bias


def black_scholes(m, spot, strike, years):
    rate, volatility = 0.02, 0.3

    def cdf(x):
        return 0.5 * (m.erf(x * math.sqrt(0.5)) + 1)

    spread = volatility * m.sqrt(years)
    d1 = (m.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / spread
    d2 = d1 - spread
    discounted = strike * m.exp(-rate * years)
    return (spot * cdf(d1) - discounted * cdf(d2), discounted * cdf(-d2) - spot * cdf(-d1))


def sum_sq(m, x):
    return m.sum_all(x * x)


def linear_gelu(m, x, weight, bias):
    return m.gelu(x @ weight + bias)


def scalar_chain(m, x):
    return (x * 3 + 1) * 0.5 - 0.25


def chain(ops):
    def run(m, x):
        for i in range(ops):
            x = (lambda v: v * 0.9, lambda v: v + 0.3, m.abs, lambda v: m.minimum(v, 0.8))[i % 4](x)
        return x

    return run


def softmax_bf16(m, x):
    wide = m.f32(x)
    e = m.exp(wide - m.max(wide))
    return m.bf16(e / m.sum(e))


def rmsnorm_residual(m, x, residual, weight):
    h = m.f32(x) + m.f32(residual)
    scale = m.rsqrt(m.mean(h * h) + 1e-5)
    return m.bf16(h), m.bf16(h * scale * m.f32(weight))


def swiglu(m, x, gate, up):
    return m.silu(x @ gate) * (x @ up)


def mlp4(m, x, *layers):
    for i in range(4):
        x = x @ layers[2 * i] + layers[2 * i + 1]
        if i < 3:
            x = m.relu(x)
    return x


GPT2_SMALL = [(50257, 768), (1024, 768)] + 12 * [
    (768,), (768,), (768, 2304), (2304,), (768, 768), (768,), (768,), (768,), (768, 3072), (3072,), (3072, 768), (768,),
] + [(768,), (768,)]


def adamw(m, *tensors):
    """148 values, means and squares, then gradients; the first three lists come out."""
    n = len(GPT2_SMALL)
    rate, decay, beta1, beta2, small, step = 1e-3, 0.01, 0.9, 0.999, 1e-8, 10
    values, means, squares = [], [], []
    for i in range(n):
        value, mean, square, gradient = tensors[i], tensors[n + i], tensors[2 * n + i], tensors[3 * n + i]
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * (gradient * gradient)
        update = (mean / (1 - beta1**step)) / (m.sqrt(square / (1 - beta2**step)) + small)
        values.append(value * (1 - rate * decay) - rate * update)
        means.append(mean)
        squares.append(square)
    return (*values, *means, *squares)


def mandelbrot(m, re, im):
    """Every pixel goes through all 256 iterations, of which those after its escape change nothing: neither peer's arrays
    stop one by one."""

    def step(state):
        a, b, count = state
        inside = a * a + b * b <= 4
        return m.where(inside, a * a - b * b + re, a), m.where(inside, 2 * a * b + im, b), count + m.int32(inside)

    zero = re * 0 + im * 0
    return m.repeat(256, step, (zero, zero, m.int32(zero)))[2]


def cumsum(m, x):
    return m.cumsum(x)


def scatter_add(m, table, at, values):
    return m.scatter_add(table, m.int32(at), values)


def sort(m, x):
    return m.sort(x)


def sum_columns(m, x):
    return (x * x).sum(0)


def transposed(m, x):
    return x.T + 1


def mobilenet_block(m, x, *layers):
    """Three convolutions with a batch norm each, of which the second has a filter for each channel."""
    y = x
    for i, last in enumerate((False, False, True)):
        weight, *norm = layers[5 * i : 5 * i + 5]
        y = m.batch_norm(m.conv(y, weight, y.shape[1] // weight.shape[1]), *norm)
        y = y if last else m.relu6(y)
    return x + y


def resnet_block(m, x, *layers):
    y = m.relu(m.batch_norm(m.conv(x, layers[0], 1), *layers[1:5]))
    return m.relu(x + m.batch_norm(m.conv(y, layers[5], 1), *layers[6:10]))


def convolution(out, each, kernel):
    """Weights, and mean, variance, weight and bias of a batch norm."""
    most = (each * kernel * kernel) ** -0.5
    norm = [((out,), low, high) for low, high in ((-0.5, 0.5), (0.5, 1.5), (0.5, 1.5), (-0.5, 0.5))]
    return [((out, each, kernel, kernel), -most, most)] + norm


def convolutions():
    """The rows of kiln bench."""
    rows = []
    for n in (1, 8):
        layers = convolution(144, 24, 1) + convolution(144, 1, 3) + convolution(24, 144, 1)
        rows.append((f"mobilenet_block_f32_{n}x24x56x56", [((n, 24, 56, 56), -1, 1)] + layers, mobilenet_block))
    for n in (1, 8):
        layers = convolution(64, 64, 3) * 2
        rows.append((f"resnet_block_f32_{n}x64x56x56", [((n, 64, 56, 56), -1, 1)] + layers, resnet_block))
    return rows


def attention(mask):
    """Two products with a mask and a softmax between them, in float32."""

    def run(m, q, k, v):
        n, depth = q.shape[-2], q.shape[-1]
        t = m.f32(q @ k.swapaxes(-1, -2)) * (1 / math.sqrt(depth))
        if mask:
            i, j = m.arange(n).reshape(n, 1), m.arange(n).reshape(1, n)
            if mask == "alibi":
                heads = q.shape[-3]
                t = t + m.f32(j - i) * m.exp2((m.f32(m.arange(heads)) + 1) * (-8 / heads)).reshape(heads, 1, 1)
            if mask == "softcap":
                t = m.tanh(t * (1 / 30)) * 30
            seen = (i >= j) & (i - j < 512) if mask == "window512" else i >= j
            t = m.where(seen, t, -math.inf)
        e = m.exp(t - m.max(t))
        weights = e / m.sum(e)
        return (m.bf16(weights) if str(q.dtype).endswith("bfloat16") else weights) @ v

    return run


def llama_layer(m, x, before_attention, before_gates, wq, wk, wv, wo, gate, up, down, heads=32):
    """Norm, attention with rotated queries and keys, norm, gated product; residuals around both."""
    batch, length, width = x.shape
    depth = width // heads

    def norm(x, weight):
        wide = m.f32(x)
        return m.bf16(wide * m.rsqrt(m.mean(wide * wide) + 1e-5) * m.f32(weight))

    def split(x):
        return x.reshape(batch, length, heads, depth).swapaxes(1, 2)

    angle = m.f32(m.arange(length)).reshape(length, 1) * m.exp2(
        m.f32(m.arange(depth // 2)) * (-2 * math.log2(1e4) / depth))
    cosines, sines = m.cos(angle), m.sin(angle)

    def rotated(x):
        a, b = m.f32(x[..., : depth // 2]), m.f32(x[..., depth // 2 :])
        return m.bf16(m.concat([a * cosines - b * sines, b * cosines + a * sines]))

    h = norm(x, before_attention)
    attended = attention("causal")(m, rotated(split(h @ wq)), rotated(split(h @ wk)), split(h @ wv))
    y = x + attended.swapaxes(1, 2).reshape(batch, length, width) @ wo
    g = norm(y, before_gates)
    return y + (m.silu(g @ gate) * (g @ up)) @ down


def conv_bn_relu(m, x, weight, mean, var, scale, bias):
    y = m.f32(m.conv_nhwc(x, weight))
    return m.bf16(m.relu((y - mean) * m.rsqrt(var + 1e-5) * scale + bias))


def attentions(sizes, shape, kind, masks):
    """The rows of kiln bench: no mask is no word in the name."""
    inputs = [(shape, -2, 2, kind)] * 2 + [(shape, -1, 1, kind)]
    short = "bf16" if kind == "bfloat16" else "f32"
    return [("attention" + (f"_{mask}" if mask else "") + f"_{short}_{sizes}", inputs, attention(mask)) for mask in masks]


def few_rows(rows, batch, heads, length, depth, kind):
    """Rows of new tokens against all that came before."""
    short = "bf16" if kind == "bfloat16" else "f32"
    name = f"attention_{rows}row{'s' if rows > 1 else ''}_{short}_{batch}x{heads}x{length}x{depth}"
    past = (batch, heads, length, depth)
    return (name, [((batch, heads, rows, depth), -2, 2, kind), (past, -2, 2, kind), (past, -1, 1, kind)], attention(""))


MASKS = ["causal", "alibi", "softcap", "window512"]
SUM_COLUMNS = ("sum_columns_f32_16384x4096", [((16384, 4096), -1, 1)], sum_columns)
TRANSPOSED = ("transpose_add_f32_8192", [((8192, 8192), -1, 1)], transposed)
CUMSUM = ("cumsum_f32_64M", [((64 * MI,), -1, 1)], cumsum)
CPU_WORKLOADS = [
    ("chain10_f32_16M", [((16 * MI,), -2, 2)] * 2, chain10),
    ("softmax_f32_16384x1024", [((16384, 1024), -8, 8)], softmax),
    ("layernorm_f32_16384x1024", [((16384, 1024), -2, 3), ((1024,), 0.5, 1.5), ((1024,), -1, 1)], layernorm),
    ("black_scholes_f32_8M", [((8 * MI,), 50, 150), ((8 * MI,), 50, 150), ((8 * MI,), 0.1, 2)], black_scholes),
    ("sum_sq_f32_64M", [((64 * MI,), -1, 1)], sum_sq),
    ("linear_gelu_f32_2048x1024x4096", [((2048, 1024), -1, 1), ((1024, 4096), -0.1, 0.1), ((4096,), -1, 1)], linear_gelu),
    ("mandelbrot_f32_4096", [((1, 4096), -2, 0.6), ((4096, 1), -1.2, 1.2)], mandelbrot),
    CUMSUM,
    SUM_COLUMNS,
    TRANSPOSED,
    ("small_chain10_f32_1024", [((1024,), -2, 2)] * 2, chain10),
    ("small_scalar_chain_f32_16", [((16,), -1, 1)], scalar_chain),
] + attentions("1x8x1024x64", (1, 8, 1024, 64), "float32", [""] + MASKS) + [
    few_rows(rows, 1, 8, 2048, 64, "float32") for rows in (1, 16)] + convolutions() + [
    (f"chain{n}_f32_16M", [((16 * MI,), -1, 1)], chain(n)) for n in (2, 5, 20, 50)]

BF16 = "bfloat16"
GPU_WORKLOADS = [
    ("chain10_f32_64M", [((64 * MI,), -2, 2)] * 2, chain10),
    ("softmax_bf16_16384x4096", [((16384, 4096), -8, 8, BF16)], softmax_bf16),
    ("rmsnorm_residual_bf16_16384x4096", [((16384, 4096), -2, 2, BF16)] * 2 + [((4096,), 0.5, 1.5, BF16)], rmsnorm_residual),
    ("layernorm_f32_32768x2048", [((32768, 2048), -2, 3), ((2048,), 0.5, 1.5), ((2048,), -1, 1)], layernorm),
    ("sum_all_f32_256M", [((256 * MI,), -1, 1)], sum_sq),
    SUM_COLUMNS,
    TRANSPOSED,
    CUMSUM,
    ("scatter_add_f32_16384x768", [((50257, 768), 0, 1), ((16384,), 0, 50257), ((16384, 768), 0, 1)], scatter_add),
    ("sort_f32_16M", [((16 * MI,), -1, 1)], sort),
    ("black_scholes_f32_32M", [((32 * MI,), 50, 150), ((32 * MI,), 50, 150), ((32 * MI,), 0.1, 2)], black_scholes),
    ("linear_gelu_bf16_8192x4096x4096",
     [((8192, 4096), -1, 1, BF16), ((4096, 4096), -0.03, 0.03, BF16), ((4096,), -1, 1, BF16)], linear_gelu),
    ("swiglu_bf16_8192x4096x11008", [((8192, 4096), -1, 1, BF16)] + [((4096, 11008), -0.05, 0.05, BF16)] * 2, swiglu),
    ("llama_layer_bf16_B4_S2048_D4096_H32_F11008",
     [((4, 2048, 4096), -1, 1, BF16)] + [((4096,), 0.5, 1.5, BF16)] * 2 + [((4096, 4096), -0.027, 0.027, BF16)] * 4
     + [((4096, 11008), -0.027, 0.027, BF16)] * 2 + [((11008, 4096), -0.0165, 0.0165, BF16)], llama_layer),
    ("conv_bn_relu_bf16_nhwc_64x56x56x256_3x3",
     [((64, 56, 56, 256), -1, 1, BF16), ((256, 3, 3, 256), -0.04, 0.04, BF16)]
     + [((256,), low, high) for low, high in ((-0.5, 0.5), (0.5, 1.5), (0.5, 1.5), (-1, 1))], conv_bn_relu),
    ("adamw_148tensors_124M_f32",
     [(shape, low, high) for low, high in ((-0.1, 0.1), (-0.01, 0.01), (0, 1e-4), (-0.02, 0.02)) for shape in GPT2_SMALL],
     adamw, 3 * len(GPT2_SMALL)),
    ("small_chain10_f32_1024", [((1024,), -2, 2)] * 2, chain10),
    ("small_mlp4_bf16_64x256",
     [((64, 256), -1, 1, BF16)] + [((256, 256), -0.1, 0.1, BF16), ((256,), -0.1, 0.1, BF16)] * 4, mlp4),
] + attentions("4x32x4096x128", (4, 32, 4096, 128), BF16, MASKS) + attentions(
    "4x16x4096x64", (4, 16, 4096, 64), BF16, ["causal"]) + attentions(
    "16x16x1024x64", (16, 16, 1024, 64), BF16, ["causal"]) + [few_rows(1, 4, 32, 8192, 128, BF16)] + [
    (f"chain{n}_f32_16M", [((16 * MI,), -1, 1)], chain(n)) for n in (2, 5, 20, 50)] + [
    (f"chain10_f32_{n}M", [((n * MI,), -2, 2)] * 2, chain10) for n in (1, 16)]


@dataclasses.dataclass
class Workload:
    name: str
    inputs: list
    function: object
    carried: int = 0
    matrices = property(lambda self: any(word in self.name for word in ("linear", "swiglu", "mlp", "attention", "layer_bf16", "conv")))


def measure(call):
    """Median, least and greatest milliseconds of a call; short calls are repeated within a sample."""
    for _ in range(3):
        call()
    begin = time.perf_counter()
    call()
    repeat = max(1, int(100e-6 / max(time.perf_counter() - begin, 1e-7)))
    samples = []
    start = time.perf_counter()
    while len(samples) < 7 or (time.perf_counter() - start < 0.5 and len(samples) < 500):
        begin = time.perf_counter()
        for _ in range(repeat):
            call()
        samples.append((time.perf_counter() - begin) / repeat * 1e3)
    return summary(samples)


def summary(samples):
    return {"median_ms": statistics.median(samples), "min_ms": min(samples), "max_ms": max(samples), "runs": len(samples)}


def measure_batches(batch):
    """Of batch(n), the milliseconds that n calls enqueued back to back take, by call: nine batches of 20 ms."""
    batch(3)
    calls = max(1, min(4000, int(20 / max(batch(5) / 5, 1e-4))))
    return summary([batch(calls) / calls for _ in range(9)])


def emit(row):
    """A line a row, at once: what was measured stands when a later one takes too long."""
    print(json.dumps(row), flush=True)


def skipped(what, name, error):
    import sys

    print(f"{name}: {what}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", file=sys.stderr)


def main(description, run):
    """Parses the options both programs take; run(workloads, options) emits rows."""
    import argparse
    import os
    import re

    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--filter", default=".*", help="regular expression over the names")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="torch.compile's default mode and jax.jit alone")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which nothing more is begun")
    options = parser.parse_args()
    options.deadline = time.monotonic() + options.limit
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[: options.threads])  # jax takes what the affinity mask gives
    listed = [Workload(*entry) for entry in (CPU_WORKLOADS if options.device == "cpu" else GPU_WORKLOADS)]
    run([w for w in listed if re.search(options.filter, w.name)], options)
