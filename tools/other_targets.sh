#!/usr/bin/env bash
# The test suite for targets that the machine is not. One or more of
#   sse4.2, avx2   the whole suite with code for a lower instruction set (KILN_CPU)
#   aarch64        every kernel of the suite compiles for AArch64 with NEON
#   cuda           every kernel of the suite, planned for a GPU, compiles with NVRTC for sm_75 … sm_120
# FILTER (GoogleTest's) runs a part; PRESET chooses the build. Ends with a line a target; exit code 1 if any failed.
#   tools/other_targets.sh sse4.2 avx2
#   FILTER='Reduce*:Scan*' tools/other_targets.sh cuda
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# -gt 0 ]] || set -- sse4.2 avx2 aarch64 cuda

tests=build/${PRESET:-release}/bin/kiln_tests
filter=${FILTER:--Fuzz.*:*MathUlp*:OtherTargets.*}
logs=out/other_targets
mkdir -p "$logs"
export KILN_CACHE=off KILN_CHECK=key
failed=0

for target in "$@"; do
  log=$logs/$target.log
  case $target in
    sse4.2 | avx2 | avx512) KILN_CPU=$target "$tests" --gtest_brief=1 --gtest_filter="$filter" >"$log" 2>&1 ;;
    aarch64) KILN_TEST_AARCH64=1 "$tests" --gtest_brief=1 --gtest_filter="$filter" >"$log" 2>&1 ;;
    cuda)
      rm -rf "$logs/cuda"
      KILN_TIER=vm KILN_TEST_CUDA_SOURCES=$logs/cuda "$tests" --gtest_brief=1 --gtest_filter="$filter" >"$log" 2>&1
      KILN_TEST_CUDA_MATRIX=1 KILN_TEST_CUDA_SOURCES=$logs/cuda "$tests" --gtest_brief=1 \
        --gtest_filter=OtherTargets.CollectedSourcesCompile >>"$log" 2>&1
      ;;
    *)
      sed -n '2,9p' "${BASH_SOURCE[0]}"
      exit 2
      ;;
  esac
  code=$?
  [[ $code == 0 ]] || failed=1
  echo "$target: $([[ $code == 0 ]] && echo ok || echo FAILED) ($log)"
  grep -E "^(for AArch64|CUDA C|sm_[0-9]+|[0-9]+ sources)|^\[  (PASSED|FAILED)" "$log"
done
exit $failed
