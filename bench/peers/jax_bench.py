"""The workloads through jax.jit on the CPU: prints JSON rows. Does nothing without jax."""
import os
import sys
import time

import workloads


def run(chosen, threads):
    import jax
    import jax.numpy as jnp
    import numpy

    class Ops:
        tanh, abs, exp, sqrt, log, minimum = jnp.tanh, jnp.abs, jnp.exp, jnp.sqrt, jnp.log, jnp.minimum
        sigmoid, relu, erf = jax.nn.sigmoid, jax.nn.relu, jax.scipy.special.erf
        max = staticmethod(lambda x: jnp.max(x, -1, keepdims=True))
        sum = staticmethod(lambda x: jnp.sum(x, -1, keepdims=True))
        mean = staticmethod(lambda x: jnp.mean(x, -1, keepdims=True))
        var = staticmethod(lambda x: jnp.var(x, -1, keepdims=True))
        sum_all = staticmethod(jnp.sum)
        gelu = staticmethod(lambda x: jax.nn.gelu(x, approximate=False))

    random = numpy.random.default_rng(0)
    rows = []
    for name, inputs, function in chosen:
        arguments = [jnp.asarray(random.uniform(low, high, shape).astype(numpy.float32)) for shape, low, high in inputs]
        jitted = jax.jit(lambda *args: function(Ops, *args))
        begin = time.perf_counter()
        jax.block_until_ready(jitted(*arguments))
        first = (time.perf_counter() - begin) * 1e3
        rows.append({"workload": name, "mode": "jax.jit", "first_ms": first,
                     **workloads.measure(lambda: jax.block_until_ready(jitted(*arguments)))})
    return rows


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        import jax  # noqa: F401
    except ImportError:
        print("[]")
        print("jax_bench.py: jax is not installed: skipped", file=sys.stderr)
        sys.exit(0)
    workloads.main(__doc__, run)
