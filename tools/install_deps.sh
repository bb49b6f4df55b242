#!/usr/bin/env bash
# Installs what Kiln is built and tested with, from Debian packages (bookworm or later). Does nothing, and says
# nothing, when all of it is there. Uses sudo only if not root.
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache pkg-config
  llvm-19-dev                                     # the CPU's compiler
  clang-format-19                                 # the layout of sources, which a test checks
  zlib1g-dev libzstd-dev libxml2-dev libz3-dev libffi-dev  # that LLVM's CMake package and static libraries name
  libspdlog-dev libxxhash-dev nlohmann-json3-dev libcli11-dev
  libtbb-dev
  libzip-dev                                      # .npz files
  libgtest-dev libbenchmark-dev
  libmpfr-dev libgmp-dev                          # reference values of the math tests
  libpng-dev                                      # examples that write pictures
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps.sh: not root and no sudo; please install: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "install_deps.sh: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The package lists on the machine may be good enough; they are fetched only if not.
if ! "${install[@]}" >"$log" 2>&1; then
  if ! { "${as_root[@]}" apt-get update -qq && "${install[@]}"; } >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
  fi
fi
