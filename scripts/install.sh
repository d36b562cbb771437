#!/usr/bin/env bash
# install.sh PREFIX: puts what `cargo build --release` made there: bin/rockery, lib/rockery, and completions.
set -euo pipefail
prefix=$1
built=${CARGO_TARGET_DIR:-target}/release
install -Dm755 "$built/rockery" "$prefix/bin/rockery"
# The libraries lie in a folder of their own: only programs that `rockery run` starts are to find them.
install -Dm755 "$built/libibverbs.so" "$prefix/lib/rockery/libibverbs.so.1"
install -Dm755 "$built/libview.so" "$prefix/lib/rockery/librockery-view.so"
install -Dm755 "$built/libsockets.so" "$prefix/lib/rockery/librspreload.so"
if [[ -e $built/librdmacm.so ]]; then
  install -Dm755 "$built/librdmacm.so" "$prefix/lib/rockery/librdmacm.so.1"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
completions() {
  "$built/rockery" completions "$1" >"$work/$1"
  install -Dm644 "$work/$1" "$prefix/share/$2"
}
completions bash bash-completion/completions/rockery
completions zsh zsh/site-functions/_rockery
completions fish fish/vendor_completions.d/rockery.fish
echo "installed in $prefix: try '$prefix/bin/rockery run -- ibv_devices'"
