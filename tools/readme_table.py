"""The README's tables of figures, made from what `kiln bench --json FILE` wrote: the CPU's, or with --device cuda the GPU's.

    build/release/bin/kiln bench --json bench.json
    python3 tools/readme_table.py bench.json            # prints the table
    python3 tools/readme_table.py bench.json --write    # puts it into README.md

Rows of `bench/peers/side_by_side.py --json FILE` do as well: then there are columns for PyTorch and JAX.
"""
import argparse
import json
import pathlib
import re

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = r"<!-- {}figures: begin .*-->\n", r"<!-- {}figures: end -->"
SHOWN = ["chain10_f32_16M", "softmax_f32_16384x1024", "layernorm_f32_16384x1024", "black_scholes_f32_8M", "sum_sq_f32_64M",
         "linear_gelu_f32_2048x1024x4096", "chain50_f32_16M", "image_pipeline_u8_512x512x3", "digits_forward_f32_1797",
         "small_chain10_f32_1024", "small_scalar_chain_f32_16"]
SHOWN_GPU = ["chain10_f32_64M", "softmax_bf16_16384x4096", "rmsnorm_residual_bf16_16384x4096", "layernorm_f32_32768x2048",
             "sum_all_f32_256M", "black_scholes_f32_32M", "linear_gelu_bf16_8192x4096x4096", "swiglu_bf16_8192x4096x11008",
             "attention_causal_bf16_4x32x4096x128", "conv_bn_relu_bf16_nhwc_64x56x56x256_3x3",
             "llama_layer_bf16_B4_S2048_D4096_H32_F11008", "adamw_148tensors_124M_f32", "chain50_f32_16M",
             "cumsum_f32_64M", "scatter_add_f32_16384x768", "sort_f32_16M", "small_chain10_f32_1024", "small_mlp4_bf16_64x256"]
PEERS = ["torch eager", "torch.compile", "reduce-overhead", "max-autotune", "jax.jit"]


def duration(ms):
    if ms is None:
        return "–"
    value, unit = (ms, "ms") if ms >= 1 else (ms * 1e3, "µs")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def described(machine):
    if "gpu" in machine:
        return (f"{machine['gpu']}: copy {machine['copy_gbps']:.0f} GB/s, bfloat16 product {machine['product_tflops']:.0f} TFLOP/s, "
                f"empty launch {machine['launch_us']:.1f} µs.")
    return (f"{machine['cpu']}, {machine.get('threads')} threads: copy {machine['copy_gbps']:.1f} GB/s, read "
            f"{machine['read_gbps']:.1f} GB/s, float32 multiply-add {machine['fma_gflops']:.0f} GFLOP/s.")


def table(document):
    by_workload = {}
    for row in document["rows"]:
        by_workload.setdefault(row["workload"], {})[row["mode"].removeprefix("kiln ")] = row
    peers = [peer for peer in PEERS if any(peer in modes for modes in by_workload.values())]
    machine = document["machine"]
    head = ["workload", "eager", "fused", "speed-up", "floor", "share of the floor", "kernels"] + peers
    lines = [
        described(machine) + " Medians.", "",
        "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name in SHOWN_GPU if "gpu" in machine else SHOWN:
        modes = by_workload.get(name, {})
        if "fused" not in modes:
            continue
        fused, eager = modes["fused"], modes.get("eager", {"median_ms": None})  # side_by_side.py --quick has no eager
        floor = fused["floor_ms"]
        cells = [f"`{name}`", duration(eager["median_ms"]), duration(fused["median_ms"]),
                 f"{eager['median_ms'] / fused['median_ms']:.1f}×" if eager["median_ms"] else "–", duration(floor),
                 f"{100 * floor / fused['median_ms']:.0f} %" if floor else "–", str(fused["kernels"])]
        cells += [duration(modes[peer]["median_ms"]) if peer in modes else "–" for peer in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="replace the block in README.md")
    options = parser.parse_args()
    document = json.loads(options.json.read_text())
    text = table(document)
    kind = "GPU " if "gpu" in document["machine"] else ""
    if not options.write:
        print(text, end="")
        return
    readme = README.read_text()
    block = re.compile(f"({BEGIN.format(kind)})(?:(?!<!--).)*({END.format(kind)})", re.DOTALL)
    if not block.search(readme):
        raise SystemExit(f"README.md has no block of {kind}figures")
    README.write_text(block.sub(lambda found: found[1] + text + found[2], readme))


if __name__ == "__main__":
    main()
