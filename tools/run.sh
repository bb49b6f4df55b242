#!/usr/bin/env bash
# Installs what is missing, builds the tool `kiln` and runs its benchmark: tools/run.sh [kiln bench arguments].
# Everything it makes lies under out/: the table, a picture of it and every stage of every kernel that was compiled.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tools/build.sh bin/kiln

rm -rf out/bench.txt out/bench.svg out/kernels
mkdir -p out/kernels
# A cache of its own: with a warm one nothing would be compiled, so nothing dumped.
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
KILN_CACHE_DIR=$cache/kiln KILN_DUMP=out/kernels build/release/bin/kiln bench --svg out/bench.svg "$@" | tee out/bench.txt

echo
echo "table:    out/bench.txt"
[[ ! -f out/bench.svg ]] || echo "picture:  out/bench.svg"
echo "kernels:  out/kernels ($(find out/kernels -type f | wc -l) files)"
