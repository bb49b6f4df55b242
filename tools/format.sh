#!/usr/bin/env bash
# Lays out all C++ and CUDA sources by .clang-format: tools/format.sh, or --check, which only names files that are laid out
# otherwise (exit code 1). Versions of clang-format differ, so only version 19 will do; exit code 77: there is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

format=
for name in clang-format-19 clang-format; do
  if "$name" --version 2>/dev/null | grep -q 'version 19\.'; then format=$name && break; fi
done
[[ -n $format ]] || { echo "tools/format.sh: no clang-format 19" >&2; exit 77; }

arguments=(-i)
[[ ${1:-} != --check ]] || arguments=(--dry-run -Werror)
find src include tests bench tools examples kernels_templates \
  \( -name '*.cpp' -o -name '*.h' -o -name '*.cuh' \) -print0 |
  xargs -0 -n 16 -P "$(nproc)" "$format" "${arguments[@]}" || exit 1
