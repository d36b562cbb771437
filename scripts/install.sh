#!/usr/bin/env bash
# install.sh PREFIX [FOLDER]: puts what cargo built in FOLDER (a release build where none is named) below
# PREFIX: bin/rockery, the programs that it starts, lib/rockery, completions, man pages, documents, examples.
# EMULATOR runs the command where it is for another processor than this machine's.
set -euo pipefail
prefix=$1
built=${2:-${CARGO_TARGET_DIR:-target}/release}
install -Dm755 "$built/rockery" "$prefix/bin/rockery"
# What `rockery bench` and `rockery device-plugin` start.
install -Dm755 "$built/rockery-bench" "$prefix/bin/rockery-bench"
install -Dm755 "$built/rockery-device-plugin" "$prefix/bin/rockery-device-plugin"
# The libraries lie in a folder of their own: only programs that `rockery run` starts are to find them.
install -Dm755 "$built/libibverbs.so" "$prefix/lib/rockery/libibverbs.so.1"
install -Dm755 "$built/libpreload_sysfs.so" "$prefix/lib/rockery/librockery-view.so"
install -Dm755 "$built/libpreload_sockets.so" "$prefix/lib/rockery/librspreload.so"
install -Dm755 "$built/libpreload_clock.so" "$prefix/lib/rockery/librockery-clocks.so"
if [[ -e $built/librdmacm.so ]]; then
  install -Dm755 "$built/librdmacm.so" "$prefix/lib/rockery/librdmacm.so.1"
  ln -sf librdmacm.so.1 "$prefix/lib/rockery/librdmacm.so"
fi
if [[ -e $built/libdv_stubs.so ]]; then
  install -Dm755 "$built/libdv_stubs.so" "$prefix/lib/rockery/librockery-providers.so"
  for provider in mlx5 mlx4 efa hns mana ionic; do
    ln -sf librockery-providers.so "$prefix/lib/rockery/lib$provider.so.1"
    ln -sf "lib$provider.so.1" "$prefix/lib/rockery/lib$provider.so"
  done
fi
# Some programs load the libraries by their names without a number.
ln -sf libibverbs.so.1 "$prefix/lib/rockery/libibverbs.so"
# The command writes its completions and manual pages.
read -ra run <<<"${EMULATOR:-}"
run+=("$built/rockery")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
completions() {
  "${run[@]}" completions "$1" >"$work/$1"
  install -Dm644 "$work/$1" "$prefix/share/$2"
}
completions bash bash-completion/completions/rockery
completions zsh zsh/site-functions/_rockery
completions fish fish/vendor_completions.d/rockery.fish
mkdir "$work/man"
"${run[@]}" man "$work/man"
install -Dm644 -t "$prefix/share/man/man1" "$work"/man/*.1
# The documentation, whose links and those of findings are relative to the README, and the examples.
root=$(dirname "$0")/..
documents=$prefix/share/doc/rockery
mkdir -p "$documents"
rm -rf "$documents/docs" "$documents/examples"
tar -C "$root" --exclude=target --exclude=__pycache__ -c \
  README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE-APACHE LICENSE-MIT docs examples |
  tar -C "$documents" --no-same-owner -x
chmod -R u+rwX,go+rX,go-w "$documents"
# Units start the command of this installation: below DESTDIR its path is the one without it.
command=$(realpath -m "${UNIT_PREFIX:-${prefix#"${DESTDIR:-}"}}/bin/rockery")
find "$documents/examples" -name '*.service' -exec \
  sed -i "s|^ExecStart=[^ ]*/rockery |ExecStart=$command |" {} +
echo "installed in $prefix: try '$prefix/bin/rockery run -- ibv_devices'"
