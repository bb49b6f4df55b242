#!/usr/bin/env bash
# Builds the tests with a sanitizer and runs them in shards: tools/sanitize.sh address|thread [GTEST FILTER]
# `address` is the address, leak and undefined-behaviour sanitizers together. Machine code that Kiln generates, and LLVM, TBB
# and CUDA's libraries, are not built with them: what they do to memory is not seen, what is suppressed for them says
# why in tools/suppressions/. ONLY (a regular expression over test files) builds a part, JOBS is the number of shards.
# Ends with a line a shard; exit code 1 if any failed. Logs: out/sanitize/.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
  address) preset=asan ;;
  thread) preset=tsan ;;
  *) sed -n '2,7p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
# Not what measures, what fills memory, and what a sanitizer cannot follow (threads after a fork, exit in mid-flight).
filter=${2:--Fuzz.*:*MathUlp*:OtherTargets.*:MoreThan*:OutOfMemory.IsADeviceErrorThatSaysWhatWasComputed:Measure.*:*IsFast:ExprPool.InternsInTensOfNanoseconds}
jobs=${JOBS:-$(nproc)}
logs=out/sanitize/$preset
mkdir -p build "$logs"

[[ -n ${SKIP_BUILD:-} ]] || {
  cmake --preset "$preset" ${ONLY:+-DKILN_TEST_ONLY="$ONLY"} >build/configure.log 2>&1 || { cat build/configure.log >&2; exit 1; }
  ninja -C "build/$preset" -j "$jobs" kiln_tests || exit 1
}

here=$PWD/tools/suppressions
export KILN_CACHE=off KILN_CHECK=key KILN_TEST_FUZZ_SECONDS=${KILN_TEST_FUZZ_SECONDS:-5}
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:handle_segv=1:allocator_may_return_null=1:${ASAN_OPTIONS:-}
export LSAN_OPTIONS=suppressions=$here/leak.txt:print_suppressions=0:${LSAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
export TSAN_OPTIONS=suppressions=$here/thread.txt:ignore_noninstrumented_modules=1:history_size=4:${TSAN_OPTIONS:-}

pids=()
for (( i = 0; i < jobs; ++i )); do
  GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$i "build/$preset/bin/kiln_tests" --gtest_brief=1 --gtest_filter="$filter" \
    >"$logs/$i.log" 2>&1 &
  pids+=($!)
done
failed=0
for (( i = 0; i < jobs; ++i )); do
  wait "${pids[$i]}"; code=$?
  [[ $code == 0 ]] || failed=1
  echo "$preset shard $i: $([[ $code == 0 ]] && echo ok || echo "FAILED ($code)") ($logs/$i.log)"
  grep -E "^(SUMMARY|\[  (FAILED|PASSED))|runtime error:" "$logs/$i.log" | sort | uniq -c | head -20
done
exit $failed
