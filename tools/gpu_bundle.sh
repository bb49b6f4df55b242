#!/usr/bin/env bash
# Makes a relocatable folder for a machine that has a GPU but not the packages Kiln is built with: the tests, the tool and
# the shared libraries they need, stripped. All share one libkiln.so, which has the parts of LLVM that it needs inside.
#   tools/gpu_bundle.sh [FOLDER]     default: build/gpu_bundle
# There: FOLDER/run.sh kiln_tests …, FOLDER/run.sh kiln bench --device cuda, FOLDER/checks.sh (tools/gpu_checks.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-build/gpu_bundle}

bash tools/install_deps.sh
mkdir -p build
cmake --preset release -B build/bundle -DKILN_STATIC_LLVM=ON -DBUILD_SHARED_LIBS=ON -DKILN_BUILD_EXAMPLES=OFF >build/configure.log 2>&1 ||
  { cat build/configure.log >&2; exit 1; }
ninja -C build/bundle -j "$(nproc)" kiln_tests kiln_tool kiln_micro

rm -rf "$folder"
mkdir -p "$folder/lib"
for program in kiln_tests kiln kiln_micro; do
  cp "build/bundle/bin/$program" "$folder/"
  strip --strip-all "$folder/$program"
  # Everything but the C and C++ runtimes, which every machine has.
  ldd "build/bundle/bin/$program" | awk '$3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libmvec|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux[^/]*)\.so' |
    while read -r library; do cp -Ln "$library" "$folder/lib/"; done
done
strip --strip-unneeded "$folder"/lib/*.so* 2>/dev/null || true
cat >"$folder/run.sh" <<'RUN'
#!/usr/bin/env bash
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$1; shift
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/$program" "$@"
RUN
chmod +x "$folder/run.sh"
cp tools/gpu_checks.sh "$folder/checks.sh"
du -sh "$folder" | awk '{print "gpu_bundle.sh: " $1 " in '"$folder"'"}'
