#!/usr/bin/env bash
# playground.sh [OUT]: builds the playground, a page of static files for any file server, in OUT
# (dist/playground). It holds the simulator as WebAssembly.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${1:-$root/dist/playground}")
cd "$root"
target=wasm32-unknown-unknown
# Of everything together: a page that opens at once.
bytes_max=3900000
die() { echo "playground: $*" >&2; exit 1; }

if [[ ! -d $(rustc --print target-libdir --target $target) ]]; then
  rustup target add $target || die "the compiler has no standard library for $target: call 'rustup target" \
    "add $target', or install libstd-rust-dev-wasm32 and lld where Debian's own rustc is used"
fi
export CARGO_TARGET_DIR=$root/target/playground
registry=${CARGO_HOME:-$HOME/.cargo}
# No path of this machine is in what is built.
export RUSTFLAGS="--remap-path-prefix=$root=/rockery --remap-path-prefix=$registry=/cargo"
# The linker keeps the names of functions, a tenth of the size, unless it is told.
"${CARGO:-cargo}" rustc --locked --quiet --profile playground --target $target -p rockery-playground --lib \
  --crate-type cdylib -- -C link-arg=--strip-all

rm -rf "$out"
mkdir -p "$out"
static=apps/playground/static
for file in "$static"/*; do
  case ${file##*/} in
    engine-wasm.js) cp "$file" "$out/engine.js" ;;
    engine-server.js | live.js | devices.js | storage.js | labs.js) ;;     # for `rockery web`
    *) cp "$file" "$out/" ;;
  esac
done
cp network/report/src/copy.js "$out/"
cp "$CARGO_TARGET_DIR/$target/playground/rockery_playground.wasm" "$out/playground.wasm" 2>/dev/null ||
  cp "$CARGO_TARGET_DIR/$target/playground/playground.wasm" "$out/"
bytes=$(cat "$out"/* | wc -c)
((bytes <= bytes_max)) || die "the page has $bytes bytes, and $bytes_max are the most"
echo "$out: $bytes bytes; serve it with 'python3 -m http.server --directory $out'"
