#!/usr/bin/env bash
# arm64.sh FOLDER DISTRIBUTION: makes the guest of 64-bit ARM that the tests boot: vmlinuz and initrd.gz in
# FOLDER, of the kernel and the busybox of DISTRIBUTION, which scripts/distribution.sh has unpacked. All other
# programs of the guest are those of DISTRIBUTION, which it mounts. Does nothing when FOLDER is complete and
# was made by this very script of that DISTRIBUTION.
set -euo pipefail
folder=$(realpath -m "$1") distribution=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
recipe="$(cat "$here/arm64.sh" "$here/init.sh" "$distribution/made-by" | sha256sum)"
[[ -s $folder/recipe && $(<"$folder/recipe") == "$recipe" ]] && exit 0
export PATH=$PATH:/usr/sbin:/sbin
die() { echo "guest: $*" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,sbin,busybox,dev,proc,sys,tmp,run,root,etc}
# Debian 12 has /lib as a folder of its own, later ones have it as a link to /usr/lib.
modules=$distribution/lib/modules
release=$(basename "$modules"/*)
[[ -d $modules/$release ]] || die "$distribution has no kernel with modules"
depmod -b "$distribution" "$release"

# Modules, each with what it needs. busybox loads those that are not compressed.
needed=(virtio_pci virtio_net virtio_blk virtio_console 9pnet_virtio 9p ib_uverbs rdma_ucm rdma_rxe
  crc32_generic)
for module in "${needed[@]}"; do
  modprobe -d "$distribution" -S "$release" --show-depends "$module" || die "kernel $release has no $module"
done | awk '$1 == "insmod" {print $2}' | sort -u | while read -r path; do
  target=$root/lib/modules/$release/${path#*"/$release/"}
  install -D "$path" "$target"
  case $target in
    *.xz) xz -d "$target" ;;
  esac
done
cp "$modules/$release"/modules.{builtin,builtin.modinfo,order} \
  "$root/lib/modules/$release/"
depmod -b "$root" "$release"
cp -L "$distribution/bin/busybox" "$root/bin/busybox"
ln -s ../bin/busybox "$root/sbin/modprobe"   # what the kernel starts when it needs a module
install -m 755 "$here/init.sh" "$root/init"

mkdir -p "$folder"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$folder/initrd.gz"
cp "$distribution"/boot/vmlinuz-* "$folder/vmlinuz"
echo "$recipe" >"$folder/recipe"   # last: a build that was cut short is made anew
