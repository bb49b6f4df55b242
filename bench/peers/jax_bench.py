"""The workloads through jax.jit: prints a JSON row a line. Does nothing without jax."""
import os
import sys
import time

import workloads


def run(chosen, options):
    os.environ.setdefault("JAX_PLATFORMS", options.device)
    import jax
    import jax.numpy as jnp
    import numpy

    gpu = options.device == "cuda"

    class Ops:
        tanh, abs, exp, sqrt, log, minimum = jnp.tanh, jnp.abs, jnp.exp, jnp.sqrt, jnp.log, jnp.minimum
        sigmoid, relu, silu, erf, rsqrt = jax.nn.sigmoid, jax.nn.relu, jax.nn.silu, jax.scipy.special.erf, jax.lax.rsqrt
        max = staticmethod(lambda x: jnp.max(x, -1, keepdims=True))
        sum = staticmethod(lambda x: jnp.sum(x, -1, keepdims=True))
        mean = staticmethod(lambda x: jnp.mean(x, -1, keepdims=True))
        var = staticmethod(lambda x: jnp.var(x, -1, keepdims=True))
        sum_all = staticmethod(jnp.sum)
        where, cumsum, sort = jnp.where, jnp.cumsum, jnp.sort
        arange, exp2, cos, sin = jnp.arange, jnp.exp2, jnp.cos, jnp.sin
        concat = staticmethod(lambda parts: jnp.concatenate(parts, -1))
        conv_nhwc = staticmethod(lambda x, w: jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "OHWI", "NHWC")))
        scatter_add = staticmethod(lambda x, at, values: x.at[at].add(values))
        int32 = staticmethod(lambda x: x.astype(jnp.int32))
        repeat = staticmethod(lambda n, step, state: jax.lax.fori_loop(0, n, lambda _, s: step(s), state))
        gelu = staticmethod(lambda x: jax.nn.gelu(x, approximate=False))
        relu6 = staticmethod(jax.nn.relu6)
        conv = staticmethod(lambda x, weight, groups: jax.lax.conv_general_dilated(
            x, weight, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=groups))

        @staticmethod
        def batch_norm(x, mean, var, weight, bias):
            scale, shift, mean, bias = (v.reshape(-1, 1, 1) for v in (jax.lax.rsqrt(var + 1e-5), weight, mean, bias))
            return (x - mean) * scale * shift + bias

        f32 = staticmethod(lambda x: x.astype(jnp.float32))
        bf16 = staticmethod(lambda x: x.astype(jnp.bfloat16))

    random = numpy.random.default_rng(0)
    made = [0]

    def make(shape, low, high, dtype="float32"):
        if not gpu:
            return jnp.asarray(random.uniform(low, high, shape).astype(numpy.float32))
        made[0] += 1
        return jax.random.uniform(jax.random.key(made[0]), shape, jnp.float32, low, high).astype(getattr(jnp, dtype))

    def row_of(workload):
        state = [make(*description) for description in workload.inputs]
        function, carried = workload.function, workload.carried
        jitted = jax.jit(lambda *args: function(Ops, *args), donate_argnums=tuple(range(carried)))

        def call():
            out = jitted(*state)
            if carried:
                state[:carried] = out
            return out

        def batch(n):
            jax.block_until_ready(call())
            begin = time.perf_counter()
            for _ in range(n):
                out = call()
            jax.block_until_ready(out)
            return (time.perf_counter() - begin) * 1e3

        jax.block_until_ready(state)
        begin = time.perf_counter()
        jax.block_until_ready(call())
        first = (time.perf_counter() - begin) * 1e3
        times = workloads.measure_batches(batch) if gpu else workloads.measure(lambda: jax.block_until_ready(call()))
        return {"workload": workload.name, "mode": "jax.jit", "first_ms": first, **times}

    for workload in chosen:
        if time.monotonic() > options.deadline:
            break
        try:
            workloads.emit(row_of(workload))
        except Exception as error:  # the others may still be measured
            workloads.skipped("jax.jit", workload.name, error)


if __name__ == "__main__":
    import importlib.util

    if importlib.util.find_spec("jax") is None:
        print("jax_bench.py: jax is not installed: skipped", file=sys.stderr)
        sys.exit(0)
    workloads.main(__doc__, run)
