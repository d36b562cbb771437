#!/usr/bin/env bash
# build.sh FOLDER [authenticating|smb]: makes the guest that the tests boot as the other side: vmlinuz (the
# own kernel of the distribution) and initrd.gz (its RoCE device rxe, the programs that speak to it, busybox).
# Does nothing when FOLDER is complete and was made by this very script. `authenticating` takes a kernel whose
# NVMe host can prove who it is, which Debian 12's own cannot. `smb` adds what smb.sh builds. Wants no root:
# packages are unpacked, not installed.
set -euo pipefail
folder=$(realpath -m "$1") kind=${2:-plain}
here=$(cd "$(dirname "$0")" && pwd)
recipes=("$here/build.sh" "$here/init.sh")
[[ $kind != smb ]] || recipes+=("$here/smb.sh")
recipe=$(cat "${recipes[@]}" | sha256sum)
[[ -s $folder/recipe && $(<"$folder/recipe") == "$recipe" ]] && exit 0
export PATH=$PATH:/usr/sbin:/sbin
die() { echo "guest: $*" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,sbin,busybox,dev,proc,sys,tmp,run,etc/libibverbs.d,usr/bin}

# The kernel. Every Debian and Ubuntu has a package that depends on its current one.
newest_kernel() {
  apt-cache pkgnames linux-image- | grep -E '^linux-image-[0-9].*-(amd64-unsigned|generic)$' |
    grep -vE 'cloud|rt-amd64|-dbg' | sort -V | tail -n 1
}
fetch_kernel() {
  local meta image modules
  for meta in linux-image-amd64 linux-image-generic; do
    [[ $kind == authenticating ]] && image=$(newest_kernel) && break
    image=$(apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image/ {print $2; exit}')
    [[ -n $image ]] && break
  done
  [[ -n ${image:-} ]] || die "apt-cache knows no kernel: call 'apt-get update'"
  modules=$(apt-cache depends "$image" | awk '/Depends: linux-modules/ {print $2}')
  # In a user namespace apt cannot become the user that it otherwise downloads as.
  (cd "$work" && apt-get -q -o APT::Sandbox::User=root download "$image" $modules >/dev/null) ||
    die "cannot download $image"
  for package in "$work"/*.deb; do dpkg -x "$package" "$work/kernel"; done
}
fetch_kernel
release=$(basename "$work"/kernel/lib/modules/*)
[[ $kind != authenticating ]] || find "$work/kernel/lib" -name 'nvme-auth.ko*' | grep -q . ||
  die "kernel $release has no NVMe authentication, and it is the newest that apt-cache knows"
depmod -b "$work/kernel" "$release"

# Modules, each with what it needs, in the kernel's own layout so that modprobe finds them.
modules=(virtio_pci virtio_net virtio_blk virtio_console ib_uverbs rdma_ucm rdma_rxe
  crc32_generic crc32_pclmul)
for module in "${modules[@]}"; do
  modprobe -d "$work/kernel" -S "$release" --show-depends "$module" || die "kernel $release has no $module"
done | awk '$1 == "insmod" {print $2}' | sort -u | while read -r path; do
  install -D "$path" "$root/${path#"$work/kernel/"}"
done
cp "$work/kernel/lib/modules/$release"/modules.{builtin,builtin.modinfo,order} "$root/lib/modules/$release/"
depmod -b "$root" "$release"

# Programs, and the libraries that they load, at the same paths as here.
programs=(ibv_devices ibv_devinfo ibv_{rc,uc,ud,srq,xsrq}_pingpong ib_{send,write,read,atomic}_{bw,lat}
  rping ucmatose udaddy rdma_{server,client} ip rdma kmod)
plugins=(/usr/lib/*/libibverbs/librxe-rdmav*.so)
for program in "${programs[@]}"; do
  path=$(command -v "$program") || die "$program is not installed"
  cp -L "$path" "$root/bin/$program"
  echo "$path"
done >"$work/loaders"
# Of openssl, only what rockery loads as well.
printf '%s\n' "${plugins[@]}" "$(command -v openssl)" >>"$work/loaders"
{
  xargs -n 1 ldd <"$work/loaders" | grep -oE '/[^ ]+\.so[^ ]*'
  printf '%s\n' "${plugins[@]}" /lib/*/libgcc_s.so.1   # the last is loaded by pthread_exit
} | sort -u | while read -r library; do
  install -D "$(readlink -f "$library")" "$root$library"
done
echo 'driver rxe' >"$root/etc/libibverbs.d/rxe.driver"
cp "$(command -v busybox)" "$root/bin/busybox"
for name in modprobe insmod; do ln -s kmod "$root/bin/$name"; done
ln -s ../bin/kmod "$root/sbin/modprobe"
ln -s ../proc/mounts "$root/etc/mtab"
install -m 755 "$here/init.sh" "$root/init"

mkdir -p "$folder"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$folder/initrd.gz"

# A second archive, for guests that use or offer storage: fio alone brings 60 MB of libraries.
storage=$work/storage
mkdir -p "$storage"/{bin,lib/modules/"$release"} "$storage/sys"
cp -r "$root/lib/modules/$release" "$storage/lib/modules/"
for module in nvme_tcp nvme_rdma nvmet nvmet_tcp nvmet_rdma nbd loop ext4 crc32c_generic sch_netem tls gcm \
  ctr ghash_generic; do
  modprobe -d "$work/kernel" -S "$release" --show-depends "$module" || die "kernel $release has no $module"
done | awk '$1 == "insmod" {print $2}' | sort -u | while read -r path; do
  install -D "$path" "$storage/${path#"$work/kernel/"}"
done
depmod -b "$storage" "$release"
for program in nvme nbd-client fio mkfs.ext4 fsck.ext4 tc openssl; do
  path=$(command -v "$program") || die "$program is not installed"
  cp -L "$path" "$storage/bin/$program"
  ldd "$path" | grep -oE '/[^ ]+\.so[^ ]*'
done | sort -u | while read -r library; do
  [[ -e $root$library ]] || install -D "$(readlink -f "$library")" "$storage$library"
done
(cd "$storage" && find . | cpio -o -H newc --quiet | gzip -1) >"$folder/storage.gz"
if [[ $kind == smb ]]; then
  "$here/smb.sh" "$work/kernel" "$release" "$storage" "$folder/smb.gz"
fi
cp "$work"/kernel/boot/vmlinuz-* "$folder/vmlinuz"
echo "$recipe" >"$folder/recipe"   # last: a build that was cut short is made anew
