"""The workloads in PyTorch, eager and through torch.compile: prints a JSON row a line. Does nothing without torch."""
import sys
import time

import workloads

MODES = {  # by the name of their column: torch.compile's mode
    "torch.compile": "default",
    "torch eager": None,
    "reduce-overhead": "reduce-overhead",
    "max-autotune": "max-autotune-no-cudagraphs",
}


def wanted_modes(options):
    if options.device == "cpu":
        return ["torch.compile"] if options.quick else ["torch eager", "torch.compile"]
    return ["torch.compile"] if options.quick else list(MODES)


def suits(mode, workload):
    """max-autotune tries variants of products; reduce-overhead records a graph, and takes long over many tensors."""
    return (mode != "max-autotune" or workload.matrices) and (mode != "reduce-overhead" or not workload.carried)


def run(chosen, options):
    import torch

    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    gpu = options.device == "cuda"

    class Ops:
        tanh, sigmoid, relu, abs, exp, sqrt, rsqrt, log, erf = (
            torch.tanh, torch.sigmoid, torch.relu, torch.abs, torch.exp, torch.sqrt, torch.rsqrt, torch.log, torch.erf)
        max = staticmethod(lambda x: torch.amax(x, -1, keepdim=True))
        sum = staticmethod(lambda x: torch.sum(x, -1, keepdim=True))
        mean = staticmethod(lambda x: torch.mean(x, -1, keepdim=True))
        var = staticmethod(lambda x: torch.var(x, -1, correction=0, keepdim=True))
        sum_all = staticmethod(torch.sum)
        where, exp2, cos, sin = torch.where, torch.exp2, torch.cos, torch.sin
        concat = staticmethod(lambda parts: torch.cat(parts, -1))
        conv_nhwc = staticmethod(lambda x, w: torch.nn.functional.conv2d(
            x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=1).permute(0, 2, 3, 1))
        arange = staticmethod(lambda n: torch.arange(n, device=options.device))
        cumsum = staticmethod(lambda x: torch.cumsum(x, 0))
        sort = staticmethod(lambda x: torch.sort(x).values)
        scatter_add = staticmethod(lambda x, at, values: x.index_add(0, at, values))
        int32 = staticmethod(lambda x: x.to(torch.int32))
        gelu = staticmethod(torch.nn.functional.gelu)
        silu = staticmethod(torch.nn.functional.silu)
        minimum = staticmethod(lambda x, y: torch.clamp(x, max=y))
        f32 = staticmethod(lambda x: x.to(torch.float32))
        bf16 = staticmethod(lambda x: x.to(torch.bfloat16))

        relu6 = staticmethod(torch.nn.functional.relu6)
        conv = staticmethod(lambda x, weight, groups: torch.nn.functional.conv2d(
            x, weight, padding=weight.shape[-1] // 2, groups=groups))
        batch_norm = staticmethod(lambda x, mean, var, weight, bias: torch.nn.functional.batch_norm(
            x, mean, var, weight, bias, eps=1e-5))

        @staticmethod
        def repeat(n, step, state):  # torch.compile unrolls it into one kernel
            for _ in range(n):
                state = step(state)
            return state

    def make(shape, low, high, dtype="float32"):
        return (torch.rand(shape, device=options.device) * (high - low) + low).to(getattr(torch, dtype))

    def batch_of(call):
        def batch(n):
            call()  # the stream has work when the first event is enqueued behind it: the host is ahead
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(n):
                call()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end)

        return batch

    def wait():
        if gpu:
            torch.cuda.synchronize()

    def row_of(workload, column):
        torch._dynamo.reset()
        arguments = [make(*description) for description in workload.inputs]
        function = workload.function
        program = lambda *args: function(Ops, *args)
        row = {"workload": workload.name, "mode": column}
        if MODES[column] is None:
            call = lambda: program(*arguments)
        else:
            compiled = torch.compile(program, mode=MODES[column])
            if column == "reduce-overhead":
                for argument in arguments:
                    torch._dynamo.mark_static_address(argument)  # else the graph copies its inputs at every call
            call = lambda: compiled(*arguments)
            if column == "reduce-overhead":
                replay = call

                def call():
                    torch.compiler.cudagraph_mark_step_begin()
                    return replay()
        wait()
        begin = time.perf_counter()
        call()
        wait()
        row["first_ms"] = (time.perf_counter() - begin) * 1e3
        return row | (workloads.measure_batches(batch_of(call)) if gpu else workloads.measure(call))

    for column in wanted_modes(options):
        for workload in chosen:
            if not suits(column, workload) or time.monotonic() > options.deadline:
                continue
            try:
                workloads.emit(row_of(workload, column))
            except Exception as error:  # the others may still be measured
                workloads.skipped(column, workload.name, error)


if __name__ == "__main__":
    try:
        import torch  # noqa: F401
    except ImportError:
        print("torch_bench.py: torch is not installed: skipped", file=sys.stderr)
        sys.exit(0)
    workloads.main(__doc__, run)
