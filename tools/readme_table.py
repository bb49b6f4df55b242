"""The README's table of figures, made from what `kiln bench --json FILE` wrote.

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
BEGIN, END = r"<!-- figures: begin .*-->\n", r"<!-- figures: end -->"
SHOWN = ["chain10_f32_16M", "softmax_f32_16384x1024", "layernorm_f32_16384x1024", "black_scholes_f32_8M", "sum_sq_f32_64M",
         "linear_gelu_f32_2048x1024x4096", "chain50_f32_16M", "image_pipeline_u8_512x512x3", "digits_forward_f32_1797",
         "small_chain10_f32_1024", "small_scalar_chain_f32_16"]
PEERS = ["torch eager", "torch.compile", "jax.jit"]


def duration(ms):
    if ms is None:
        return "–"
    value, unit = (ms, "ms") if ms >= 1 else (ms * 1e3, "µs")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def table(document):
    by_workload = {}
    for row in document["rows"]:
        by_workload.setdefault(row["workload"], {})[row["mode"].removeprefix("kiln ")] = row
    peers = [peer for peer in PEERS if any(peer in modes for modes in by_workload.values())]
    machine = document["machine"]
    threads = machine.get("threads")
    head = ["workload", "eager", "fused", "speed-up", "floor", "share of the floor", "kernels"] + peers
    lines = [
        f"{machine['cpu']}, {threads} threads: copy {machine['copy_gbps']:.1f} GB/s, read {machine['read_gbps']:.1f} GB/s, "
        f"float32 multiply-add {machine['fma_gflops']:.0f} GFLOP/s. Medians.", "",
        "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name in SHOWN:
        modes = by_workload.get(name, {})
        if "fused" not in modes or "eager" not in modes:
            continue
        fused, eager = modes["fused"], modes["eager"]
        floor = fused["floor_ms"]
        cells = [f"`{name}`", duration(eager["median_ms"]), duration(fused["median_ms"]),
                 f"{eager['median_ms'] / fused['median_ms']:.1f}×", duration(floor),
                 f"{100 * floor / fused['median_ms']:.0f} %" if floor else "–", str(fused["kernels"])]
        cells += [duration(modes[peer]["median_ms"]) if peer in modes else "–" for peer in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="replace the block in README.md")
    options = parser.parse_args()
    text = table(json.loads(options.json.read_text()))
    if not options.write:
        print(text, end="")
        return
    readme = README.read_text()
    block = re.compile(f"({BEGIN}).*?({END})", re.DOTALL)
    if not block.search(readme):
        raise SystemExit("README.md has no block of figures")
    README.write_text(block.sub(lambda found: found[1] + text + found[2], readme))


if __name__ == "__main__":
    main()
