#!/usr/bin/env bash
# Installs what is missing, configures a preset (PRESET, else release) and builds it: tools/build.sh [ninja targets].
# Compiles as many files at a time as there are cores and gigabytes (LLVM's headers take about one a compiler).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash tools/install_deps.sh

gigabytes=$(awk '/^MemAvailable:/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
(( jobs <= gigabytes )) || jobs=$(( gigabytes > 1 ? gigabytes : 1 ))

mkdir -p build
preset=${PRESET:-release}
cmake --preset "$preset" >build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }
ninja -C "build/$preset" -j "$jobs" "$@"
