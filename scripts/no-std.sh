#!/usr/bin/env bash
# Builds wire, rnic, fabric and infiniband for a machine without an operating system: what they and their
# dependencies use is core and alloc alone.
set -euo pipefail
cd "$(dirname "$0")/.."
target=x86_64-unknown-none
if [[ ! -d $(rustc --print sysroot)/lib/rustlib/$target ]]; then
  rustup target add "$target" || { echo "no-std: call 'rustup target add $target'" >&2; exit 1; }
fi
for package in wire rnic fabric infiniband; do
  "${CARGO:-cargo}" build --quiet --target "$target" -p "rockery-$package" --no-default-features
done
