"""The workloads in PyTorch, eager and through torch.compile: prints JSON rows. Does nothing without torch."""
import sys
import time

import workloads


def run(chosen, threads):
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)

    class Ops:
        tanh, sigmoid, relu, abs, exp, sqrt, log, erf = (
            torch.tanh, torch.sigmoid, torch.relu, torch.abs, torch.exp, torch.sqrt, torch.log, torch.erf)
        max = staticmethod(lambda x: torch.amax(x, -1, keepdim=True))
        sum = staticmethod(lambda x: torch.sum(x, -1, keepdim=True))
        mean = staticmethod(lambda x: torch.mean(x, -1, keepdim=True))
        var = staticmethod(lambda x: torch.var(x, -1, correction=0, keepdim=True))
        sum_all = staticmethod(torch.sum)
        gelu = staticmethod(torch.nn.functional.gelu)
        minimum = staticmethod(lambda x, y: torch.clamp(x, max=y))

    rows = []
    for name, inputs, function in chosen:
        arguments = [torch.rand(shape) * (high - low) + low for shape, low, high in inputs]
        eager = lambda: function(Ops, *arguments)
        rows.append({"workload": name, "mode": "torch eager", **workloads.measure(eager)})
        torch._dynamo.reset()
        compiled = torch.compile(lambda *args: function(Ops, *args))
        begin = time.perf_counter()
        compiled(*arguments)
        first = (time.perf_counter() - begin) * 1e3
        rows.append({"workload": name, "mode": "torch.compile", "first_ms": first,
                     **workloads.measure(lambda: compiled(*arguments))})
    return rows


if __name__ == "__main__":
    try:
        import torch  # noqa: F401
    except ImportError:
        print("[]")
        print("torch_bench.py: torch is not installed: skipped", file=sys.stderr)
        sys.exit(0)
    workloads.main(__doc__, run)
