"""The programs of `kiln bench --random N --json FILE` by PyTorch (eager and torch.compile) and JAX (jax.jit).

    build/release/bin/kiln bench --random 200 --json random.json
    python3 bench/peers/random_programs.py random.json [--device cuda] [--modes torch.compile,jax.jit] [--json out.json]

Reads each program as data (docs/benchmarks.md has the format), measures it by each mode, and writes FILE's rows with a
`peers` object beside Kiln's numbers: milliseconds by mode, or the first line of an error. Prints how Kiln compares with the
better peer. A package that is missing leaves its modes out. Values are drawn anew from the programs' intervals.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import time

MODES = ["torch eager", "torch.compile", "jax.jit"]
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "less")
UNARY = ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "abs", "negative", "relu", "silu", "gelu", "gelu_tanh", "round")
REDUCTIONS = ("sum", "prod", "max", "min", "mean", "var", "logsumexp")
SCANS = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
WHOLE = ("int8", "int16", "int32", "int64", "uint8")


def triples(sizes):
    return tuple(slice(*sizes[i : i + 3]) for i in range(0, len(sizes), 3))


def pairs(sizes):
    return [tuple(sizes[i : i + 2]) for i in range(0, len(sizes), 2)]


def outputs(ops, program, inputs):
    """Runs the steps in order; the values that the program returns."""
    values = list(inputs)
    for step in program["steps"]:
        values.append(ops.run(step, [values[i] for i in step["in"]]))
    return tuple(values[i] for i in program["outputs"])


class Ops:
    """What both libraries share: which of a library's functions a step means."""

    def run(self, step, x):
        op, axes, sizes = step["op"], step.get("axes", []), step.get("sizes", [])
        if op in UNARY:
            return self.unary(op, x[0])
        if op in BINARY:
            return self.binary(op, x[0], x[1] if len(x) > 1 else step["number"])
        if op in REDUCTIONS:
            return self.reduction(op, x[0], tuple(axes), step.get("keep", False))
        if op in ("argmax", "argmin"):
            return self.position(op, x[0], axes[0], step.get("keep", False))
        if op in SCANS:
            return self.scan(op, x[0], axes[0], step.get("exclusive", False), step.get("reverse", False))
        if op == "slice":
            return x[0][triples(sizes)]
        if op == "reshape":
            return x[0].reshape(sizes)
        return getattr(self, op)(step, x, axes, sizes)


def jax_ops():
    import jax
    import jax.numpy as jnp

    scans = {"cumsum": jax.lax.cumsum, "cumprod": jax.lax.cumprod, "cummax": jax.lax.cummax, "cummin": jax.lax.cummin,
             "logcumsumexp": jax.lax.cumlogsumexp}
    unary = {"exp": jnp.exp, "log": jnp.log, "sqrt": jnp.sqrt, "rsqrt": jax.lax.rsqrt, "tanh": jnp.tanh,
             "sigmoid": jax.nn.sigmoid, "abs": jnp.abs, "negative": jnp.negative, "relu": jax.nn.relu, "silu": jax.nn.silu,
             "gelu": lambda x: jax.nn.gelu(x, approximate=False), "gelu_tanh": jax.nn.gelu, "round": jnp.round}

    def identity(op, dtype):
        limits = jnp.iinfo(dtype) if jnp.issubdtype(dtype, jnp.integer) else None
        low, high = (limits.min, limits.max) if limits else (-math.inf, math.inf)
        return {"cumsum": 0, "cumprod": 1, "cummax": low, "cummin": high, "logcumsumexp": -math.inf}[op]

    class JaxOps(Ops):
        def unary(self, op, x):
            return unary[op](x)

        def binary(self, op, x, y):
            return getattr(jnp, op)(x, y)

        def reduction(self, op, x, axes, keep):
            f = jax.nn.logsumexp if op == "logsumexp" else getattr(jnp, op)
            return f(x, axis=axes, keepdims=keep)

        def position(self, op, x, axis, keep):
            return getattr(jnp, op)(x, axis=axis, keepdims=keep)

        def scan(self, op, x, axis, exclusive, reverse):
            if op in ("cumsum", "cumprod") and jnp.issubdtype(x.dtype, jnp.integer):
                x = x.astype(jnp.uint64 if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else jnp.int64)
            y = scans[op](x, axis=axis, reverse=reverse)
            if not exclusive:
                return y
            n = x.shape[axis]
            first = jnp.full_like(jax.lax.slice_in_dim(y, 0, 1, axis=axis), identity(op, y.dtype))
            rest = jax.lax.slice_in_dim(y, 1, n, axis=axis) if reverse else jax.lax.slice_in_dim(y, 0, n - 1, axis=axis)
            return jnp.concatenate([rest, first] if reverse else [first, rest], axis)

        def permute(self, step, x, axes, sizes):
            return jnp.transpose(x[0], axes)

        def update(self, step, x, axes, sizes):
            return x[0].at[triples(sizes)].set(x[1])

        def pad(self, step, x, axes, sizes):
            return jnp.pad(x[0], pairs(sizes), constant_values=step["number"])

        def flip(self, step, x, axes, sizes):
            return jnp.flip(x[0], axes)

        def roll(self, step, x, axes, sizes):
            return jnp.roll(x[0], sizes[0], axes[0])

        def concat(self, step, x, axes, sizes):
            return jnp.concatenate(x, axes[0])

        def take(self, step, x, axes, sizes):
            return jnp.take(x[0], x[1], axis=axes[0], mode="clip")

        def take_along(self, step, x, axes, sizes):
            return jnp.take_along_axis(x[0], x[1], axes[0], mode="clip")

        def scatter_add(self, step, x, axes, sizes):
            return x[0].at[x[1]].add(x[2])

        def histogram(self, step, x, axes, sizes):
            return jnp.zeros(sizes[0], jnp.int32).at[x[0]].add(1)

        def sort(self, step, x, axes, sizes):
            return jnp.sort(x[0], axis=axes[0], descending=step.get("reverse", False))

        def argsort(self, step, x, axes, sizes):
            return jnp.argsort(x[0], axis=axes[0], stable=True, descending=step.get("reverse", False))

        def topk_values(self, step, x, axes, sizes):
            return jax.lax.top_k(x[0], sizes[0])[0]

        def conv(self, step, x, axes, sizes):
            stride, padding, groups, last = sizes
            space = "HW"[: x[0].ndim - 2]
            orders = ("N" + space + "C", "O" + space + "I") if last else ("NC" + space, "OI" + space)
            return jax.lax.conv_general_dilated(x[0], x[1], [stride] * len(space), [(padding, padding)] * len(space),
                                                dimension_numbers=(*orders, orders[0]), feature_group_count=groups)

        def matmul(self, step, x, axes, sizes):
            return jnp.matmul(x[0], x[1])

        def attention(self, step, x, axes, sizes):
            scores = jnp.einsum("bhtd,bhsd->bhts", x[0], x[1]).astype(jnp.promote_types(x[0].dtype, jnp.float32))
            weights = jax.nn.softmax(scores * x[0].shape[-1] ** -0.5, axis=-1).astype(x[0].dtype)
            return jnp.einsum("bhts,bhsd->bhtd", weights, x[2])

        def interpolate(self, step, x, axes, sizes):
            shape = (*x[0].shape[: x[0].ndim - len(sizes)], *sizes)
            return jax.image.resize(x[0], shape, "linear" if step["number"] else "nearest", antialias=False)

        def astype(self, step, x, axes, sizes):
            return x[0].astype(step["dtype"])

    return JaxOps()


def torch_ops():
    import torch
    from torch.nn import functional

    unary = {"relu": torch.relu, "silu": functional.silu, "gelu": functional.gelu,
             "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh")}
    scans = {"cumsum": torch.cumsum, "cumprod": torch.cumprod, "logcumsumexp": torch.logcumsumexp,
             "cummax": lambda x, axis: torch.cummax(x, axis).values, "cummin": lambda x, axis: torch.cummin(x, axis).values}

    def identity(op, dtype):
        limits = (torch.finfo if dtype.is_floating_point else torch.iinfo)(dtype)
        return {"cumsum": 0, "cumprod": 1, "cummax": limits.min, "cummin": limits.max, "logcumsumexp": -math.inf}[op]

    class TorchOps(Ops):
        def unary(self, op, x):
            return unary[op](x) if op in unary else getattr(torch, op)(x)

        def binary(self, op, x, y):
            if op in ("maximum", "minimum") and not torch.is_tensor(y):
                return torch.clamp(x, **{"min" if op == "maximum" else "max": y})
            if op == "less":
                return x < y
            return getattr(torch, op)(x, y)

        def reduction(self, op, x, axes, keep):
            if op == "prod":
                for axis in reversed(axes):
                    x = torch.prod(x, axis, keepdim=keep)
                return x
            if op == "var":
                return torch.var(x, axes, correction=0, keepdim=keep)
            if op == "mean" and not x.dtype.is_floating_point:
                x = x.to(torch.float32)
            f = {"max": torch.amax, "min": torch.amin}.get(op) or getattr(torch, op)
            return f(x, axes, keepdim=keep)

        def position(self, op, x, axis, keep):
            return getattr(torch, op)(x, axis, keepdim=keep)

        def scan(self, op, x, axis, exclusive, reverse):
            x = torch.flip(x, (axis,)) if reverse else x
            y = scans[op](x, axis)
            if exclusive:
                first = torch.full_like(y.narrow(axis, 0, 1), identity(op, y.dtype))
                y = torch.cat([first, y.narrow(axis, 0, y.shape[axis] - 1)], axis)
            return torch.flip(y, (axis,)) if reverse else y

        def permute(self, step, x, axes, sizes):
            return torch.permute(x[0], axes)

        def update(self, step, x, axes, sizes):
            y = x[0].clone()
            y[triples(sizes)] = x[1]
            return y

        def pad(self, step, x, axes, sizes):
            return functional.pad(x[0], [w for pair in reversed(pairs(sizes)) for w in pair], value=step["number"])

        def flip(self, step, x, axes, sizes):
            return torch.flip(x[0], axes)

        def roll(self, step, x, axes, sizes):
            return torch.roll(x[0], sizes[0], axes[0])

        def concat(self, step, x, axes, sizes):
            return torch.cat(x, axes[0])

        def take(self, step, x, axes, sizes):
            return torch.index_select(x[0], axes[0], x[1])

        def take_along(self, step, x, axes, sizes):
            return torch.gather(x[0], axes[0], x[1].long())

        def scatter_add(self, step, x, axes, sizes):
            return x[0].index_add(0, x[1], x[2])

        def histogram(self, step, x, axes, sizes):
            ones = torch.ones_like(x[0], dtype=torch.int32)
            return torch.zeros(sizes[0], dtype=torch.int32, device=x[0].device).scatter_add(0, x[0].long(), ones)

        def sort(self, step, x, axes, sizes):
            return torch.sort(x[0], axes[0], descending=step.get("reverse", False)).values

        def argsort(self, step, x, axes, sizes):
            return torch.argsort(x[0], axes[0], descending=step.get("reverse", False), stable=True)

        def topk_values(self, step, x, axes, sizes):
            return torch.topk(x[0], sizes[0], axes[0]).values

        def conv(self, step, x, axes, sizes):
            stride, padding, groups, last = sizes
            f = functional.conv1d if x[0].dim() == 3 else functional.conv2d
            x = [t.movedim(-1, 1) for t in x] if last else x
            y = f(x[0], x[1], None, stride, padding, 1, groups)
            return y.movedim(1, -1) if last else y

        def matmul(self, step, x, axes, sizes):
            return torch.matmul(x[0], x[1])

        def attention(self, step, x, axes, sizes):
            return functional.scaled_dot_product_attention(*x)

        def interpolate(self, step, x, axes, sizes):
            mode = ("linear" if len(sizes) == 1 else "bilinear") if step["number"] else "nearest"
            return functional.interpolate(x[0], sizes, mode=mode)

        def astype(self, step, x, axes, sizes):
            return x[0].to(getattr(torch, step["dtype"]))

    return TorchOps()


def measure(call):
    """The median milliseconds of a call that waits for its results."""
    call()
    call()
    begin = time.perf_counter()
    call()
    repeat = max(1, int(500e-6 / max(time.perf_counter() - begin, 1e-7)))
    samples, start = [], time.perf_counter()
    while len(samples) < 5 or (time.perf_counter() - start < 0.4 and len(samples) < 50):
        begin = time.perf_counter()
        for _ in range(repeat):
            call()
        samples.append((time.perf_counter() - begin) / repeat * 1e3)
    return statistics.median(samples)


def measure_batches(batch):
    """The same of batch(n), the milliseconds of n calls enqueued back to back."""
    batch(2)
    calls = max(1, min(1000, int(4 / max(batch(1), 1e-4))))
    return statistics.median([batch(calls) / calls for _ in range(5)])


def jax_measure(device):
    os.environ.setdefault("JAX_PLATFORMS", device)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    ops = jax_ops()

    def make(number, of):
        key, dtype = jax.random.key(number), of["dtype"]
        if dtype in WHOLE:
            return jax.random.randint(key, of["shape"], int(of["low"]), max(int(of["high"]), int(of["low"]) + 1)).astype(dtype)
        return jax.random.uniform(key, of["shape"], jnp.float32, of["low"], of["high"]).astype(dtype)

    def run(program):
        inputs = jax.block_until_ready([make(i, of) for i, of in enumerate(program["inputs"])])
        compiled = jax.jit(lambda *x: outputs(ops, program, x))
        if device == "cpu":
            return measure(lambda: jax.block_until_ready(compiled(*inputs)))

        def batch(n):
            jax.block_until_ready(compiled(*inputs))
            begin = time.perf_counter()
            for _ in range(n):
                out = compiled(*inputs)
            jax.block_until_ready(out)
            return (time.perf_counter() - begin) * 1e3

        return measure_batches(batch)

    def clean():
        jax.clear_caches()

    return run, clean


def torch_measure(device, threads, compiled):
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    ops = torch_ops()

    def make(of):
        dtype = getattr(torch, of["dtype"])
        if of["dtype"] in WHOLE:
            return torch.randint(int(of["low"]), max(int(of["high"]), int(of["low"]) + 1), of["shape"], device=device).to(dtype)
        return (torch.rand(of["shape"], device=device) * (of["high"] - of["low"]) + of["low"]).to(dtype)

    def run(program):
        inputs = [make(of) for of in program["inputs"]]
        f = lambda *x: outputs(ops, program, x)
        if compiled:
            torch._dynamo.reset()
            f = torch.compile(f, dynamic=False)
        if device == "cpu":
            return measure(lambda: f(*inputs))

        def batch(n):
            f(*inputs)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(n):
                f(*inputs)
            end.record()
            end.synchronize()
            return begin.elapsed_time(end)

        return measure_batches(batch)

    def clean():
        if device == "cuda":
            torch.cuda.empty_cache()

    return run, clean


def opened(mode, options):
    """Functions to measure a program and to free what it left, or None without the package."""
    try:
        if mode == "jax.jit":
            return jax_measure(options.device)
        return torch_measure(options.device, options.threads, mode == "torch.compile")
    except ImportError as error:
        print(f"random_programs.py: {mode}: {error}: left out", file=sys.stderr)
        return None


def quantile(values, share):
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def distribution(name, values):
    if not values:
        return
    shares = "".join(f"{quantile(values, share):9.2f}" for share in (0.5, 0.75, 0.9, 0.99, 1))
    print(f"{name:34}{len(values):6}{shares}")


def report(rows):
    print(f"{'':34}{'count':>6}{'median':>9}{'p75':>9}{'p90':>9}{'p99':>9}{'worst':>9}")
    distribution("kiln / floor", [row["median_ms"] / row["floor_ms"] for row in rows])
    for mode in MODES:
        measured = [row for row in rows if isinstance(row["peers"].get(mode), float)]
        distribution(f"{mode} / floor", [row["peers"][mode] / row["floor_ms"] for row in measured])
        distribution(f"kiln / {mode}", [row["median_ms"] / row["peers"][mode] for row in measured])
    best = []
    for row in rows:
        times = [t for t in row["peers"].values() if isinstance(t, float)]
        if times:
            best.append((row["median_ms"] / min(times), row))
    if not best:
        return
    distribution("kiln / best peer", [ratio for ratio, _ in best])
    ahead = sum(ratio <= 1.03 for ratio, _ in best)
    behind = sorted((pair for pair in best if pair[0] > 1.2), key=lambda pair: -pair[0])
    print(f"\nahead or within 3 %: {ahead} of {len(best)}; more than 1.2 times behind: {len(behind)}")
    for ratio, row in behind[:20]:
        peers = ", ".join(f"{mode} {t:.3f}" for mode, t in row["peers"].items() if isinstance(t, float))
        print(f"  {ratio:7.2f}  # {row['index']} {row['family']}: kiln {row['median_ms']:.3f}, floor {row['floor_ms']:.3f}, {peers}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="what kiln bench --random N --json wrote")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--modes", default="torch.compile,jax.jit", help="of: " + ", ".join(MODES))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--family", help="only programs of one family")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no further program is begun in a mode")
    parser.add_argument("--json", help="write the rows, with `peers`, to a file")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])  # jax takes what the affinity mask gives
    data = json.loads(pathlib.Path(options.file).read_text())
    rows = [row for row in data["programs"] if "failure" not in row and options.family in (None, row["family"])]
    for row in rows:
        row.setdefault("peers", {})
    for mode in options.modes.split(","):
        if mode not in MODES:
            parser.error(f"--modes {mode}: of {', '.join(MODES)}")
        found = opened(mode, options)
        if not found:
            continue
        run, clean = found
        deadline = time.monotonic() + options.limit
        for done, row in enumerate(rows):
            if time.monotonic() > deadline:
                break
            if sys.stderr.isatty():
                print(f"\r\033[K{mode} {done}/{len(rows)} {row['family']}", end="", file=sys.stderr)
            try:
                row["peers"][mode] = run(row["program"])
            except Exception as error:  # the others may still be measured
                row["peers"][mode] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:200]
            clean()
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        for row in rows:
            if isinstance(row["peers"].get(mode), str):
                print(f"{mode}: # {row['index']} {row['family']}: {row['peers'][mode]}", file=sys.stderr)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(data, indent=1))
    report(rows)


if __name__ == "__main__":
    main()
