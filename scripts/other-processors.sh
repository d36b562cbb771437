#!/usr/bin/env bash
# other-processors.sh: everything, tests included, compiles for 64-bit ARM; RISC-V and POWER are refused with
# a sentence, and big-endian processors by a compile error.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { echo "other-processors: $*" >&2; exit 1; }

# The compiler of C and OpenSSL for ARM, as for packages.
ARCH=aarch64 scripts/dist.sh --tools
export CARGO_TARGET_DIR=$PWD/target/dist
OPENSSL_STATIC=1 OPENSSL_DIR=$CARGO_TARGET_DIR/openssl-aarch64 PATH=$CARGO_TARGET_DIR/tools/bin:$PATH \
  cargo-zigbuild check --locked --workspace --all-targets --target aarch64-unknown-linux-gnu.2.28

# refused TARGET TEXT: what everything else stands on does not compile for the target, and the reason is TEXT.
refused() {
  local said
  if [[ ! -d $(rustc --print target-libdir --target "$1") ]]; then
    rustup target add "$1" || die "the compiler has no standard library for $1"
  fi
  if said=$(cargo check --locked -p rockery-os --target "$1" 2>&1); then
    die "rockery-os compiles for $1"
  fi
  grep -qF "error: $2" <<<"$said" || die "rockery-os for $1 fails without a sentence:
$said"
  echo "other-processors: $1 is refused: $2"
}
for target in riscv64gc-unknown-linux-gnu powerpc64le-unknown-linux-gnu; do
  refused "$target" "rockery is for x86-64 and 64-bit ARM"
done
refused s390x-unknown-linux-gnu "rockery is for little-endian processors"
