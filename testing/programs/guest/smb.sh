#!/usr/bin/env bash
# smb.sh KERNEL RELEASE BASE OUT, called by build.sh: makes OUT, an archive for the guest with SMB Direct: the
# kernel's client (cifs) and server (ksmbd), ksmbd's programs, and the ciphers that SMB asks for by name.
# KERNEL is the unpacked kernel package of RELEASE, BASE a tree that has the guest's other modules.
#
# Debian's kernels have neither CONFIG_CIFS_SMB_DIRECT nor CONFIG_SMB_SERVER_SMBDIRECT, so cifs and ksmbd, and
# only these, are built with them from Debian's source of the same kernel against its headers.
set -euo pipefail
kernel=$1 release=$2 base=$3 out=$4
die() { echo "guest: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# Headers, build tools and source of exactly this kernel, unpacked without installing.
headers=linux-headers-$release series=$(cut -d. -f1,2 <<<"$release")
version=$(apt-cache show "$headers" 2>/dev/null | awk '/^Version:/ {print $2; exit}')
[[ $version ]] || die "apt-cache has no $headers: call 'apt-get update'"
mapfile -t more < <(apt-cache depends "$headers" | awk '/Depends: linux-(headers|kbuild)/ {print $2}')
compiler=$(apt-cache depends "$headers" | sed -n 's/.*Depends: linux-compiler-\(gcc-[0-9]*\)-.*/\1/p')
command -v "${compiler:=gcc}" >/dev/null || die "$compiler, which built kernel $release, is not installed"
apt-get -q -o APT::Sandbox::User=root download "$headers=$version" "linux-source-$series=$version" \
  "${more[@]}" ksmbd-tools >/dev/null ||
  die "cannot download the source of kernel $release: SMB's guest needs Debian"
for package in linux-headers-*.deb linux-kbuild-*.deb ksmbd-tools_*.deb; do dpkg -x "$package" .; done
headers=$work/usr/src/$headers
sed -i "s#/usr/src/#$work/usr/src/#" "$headers/Makefile"
# tar reads no further than the last of these: half of the archive.
parts=(fs/internal.h fs/nls fs/smb scripts/asn1_compiler.c)
dpkg --fsys-tarfile linux-source-*.deb | tar -xO "./usr/src/linux-source-$series.tar.xz" |
  xz -dc -T0 | tar -x --strip-components=1 "${parts[@]/#/linux-source-$series/}"

# Two faults, without whose repair nothing can be mounted. ksmbd-tools 3.4.7 leaves payload_sz 0 in its
# descriptions of shares, which newer kernels refuse: the size is taken from the message instead. And ksmbd of
# 6.1.192 releases an oplock that an opened directory does not have.
sed -i '/strnlen(resp->share_name, sizeof(resp->share_name))/i\
\t\tif (!resp->payload_sz)\n\t\t\tresp->payload_sz = entry->msg_sz - sizeof(*resp);' \
  fs/smb/server/transport_ipc.c
sed -i 's/^\tif (\(!atomic_dec_and_test(&opinfo->refcount)\))/\tif (!opinfo || \1)/' fs/smb/server/oplock.c
"$compiler" -O2 -w -I "$(realpath "$work"/usr/src/linux-headers-*-common)/include" \
  -o "$(realpath "$headers/scripts")/asn1_compiler" scripts/asn1_compiler.c

options=(CONFIG_DEBUG_INFO_BTF_MODULES= CONFIG_SMBFS=m CONFIG_CIFS=m CONFIG_CIFS_SMB_DIRECT=y
  CONFIG_SMB_SERVER=m CONFIG_SMB_SERVER_SMBDIRECT=y
  KCFLAGS='-g0 -DCONFIG_CIFS_SMB_DIRECT=1 -DCONFIG_SMB_SERVER_SMBDIRECT=1')
# build PART…: the other modules need the symbols of `common`.
build() {
  make -s -j"$(nproc)" -C "$headers" M="$work/fs/smb/$1" "${@:2}" "${options[@]}" modules >>log 2>&1 ||
    { tail -n 30 log >&2; die "fs/smb/$1 of kernel $release does not build"; }
}
build common
for part in server client; do build $part KBUILD_EXTRA_SYMBOLS="$work/fs/smb/common/Module.symvers"; done

tree=$work/tree
mkdir -p "$tree"/{bin,etc/ksmbd,lib/modules}
cp -r "$base/lib/modules/$release" "$tree/lib/modules/"
for module in cifs ksmbd rdma_cm nls_utf8 ccm gcm cmac ecb ctr ghash_generic sha512_generic aesni_intel; do
  modprobe -d "$kernel" -S "$release" --show-depends "$module" || die "kernel $release has no $module"
done | awk '$1 == "insmod" {print $2}' | sort -u | while read -r path; do
  install -D "$path" "$tree/${path#"$kernel/"}"
done
for module in common/cifs_arc4 common/cifs_md4 server/ksmbd client/cifs; do
  target=$tree/lib/modules/$release/kernel/fs/smb/$module.ko
  rm -f "$target"*
  objcopy --strip-debug "fs/smb/$module.ko" "$target"
done
depmod -b "$tree" "$release"
for program in ksmbd.mountd ksmbd.adduser; do
  path=usr/sbin/$program
  [[ -x $path ]] || die "ksmbd-tools has no $program"
  cp -L "$path" "$tree/bin/"
  libraries=$(ldd "$path")
  [[ $libraries != *'not found'* ]] || die "$program needs more libraries: $libraries"
  grep -oE '/[^ ]+\.so[^ ]*' <<<"$libraries"
done | sort -u | while read -r library; do
  [[ -e $base$library ]] || install -D "$(readlink -f "$library")" "$tree$library"
done
(cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$out"
