"""What both peer programs run: the CPU workloads of `kiln bench`, by its names.

Each entry: name, inputs as (shape, low, high), and a function of a namespace `m` with the operations. The formulas are
those of tools/kiln/workloads.cpp.
"""
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


WORKLOADS = [
    ("chain10_f32_16M", [((16 * MI,), -2, 2)] * 2, chain10),
    ("softmax_f32_16384x1024", [((16384, 1024), -8, 8)], softmax),
    ("layernorm_f32_16384x1024", [((16384, 1024), -2, 3), ((1024,), 0.5, 1.5), ((1024,), -1, 1)], layernorm),
    ("black_scholes_f32_8M", [((8 * MI,), 50, 150), ((8 * MI,), 50, 150), ((8 * MI,), 0.1, 2)], black_scholes),
    ("sum_sq_f32_64M", [((64 * MI,), -1, 1)], sum_sq),
    ("linear_gelu_f32_2048x1024x4096", [((2048, 1024), -1, 1), ((1024, 4096), -0.1, 0.1), ((4096,), -1, 1)], linear_gelu),
    ("small_chain10_f32_1024", [((1024,), -2, 2)] * 2, chain10),
    ("small_scalar_chain_f32_16", [((16,), -1, 1)], scalar_chain),
] + [(f"chain{n}_f32_16M", [((16 * MI,), -1, 1)], chain(n)) for n in (2, 5, 20, 50)]


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
    return {"median_ms": statistics.median(samples), "min_ms": min(samples), "max_ms": max(samples), "runs": len(samples)}


def main(description, run):
    """Parses the options both programs take and prints run(workloads, threads) as JSON."""
    import argparse
    import json
    import os
    import re

    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--filter", default=".*", help="regular expression over the names")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[: options.threads])  # jax takes what the affinity mask gives
    chosen = [w for w in WORKLOADS if re.search(options.filter, w[0])]
    rows = run(chosen, options.threads)
    print(json.dumps(rows, indent=1))
