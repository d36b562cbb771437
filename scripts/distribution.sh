#!/usr/bin/env bash
# distribution.sh NAME FOLDER: unpacks the RDMA programs of another distribution, and all that they need, into
# FOLDER, for chroot(8). NAME is debian-11, debian-12, debian-13, debian-testing, debian-unstable,
# ubuntu-20.04, ubuntu-22.04 or ubuntu-24.04; debian-12-arm64 and debian-13-arm64 are those of 64-bit ARM,
# with their kernel, to be run by an emulator. A FOLDER that is there and was made by this script as it stands
# is kept.
#
# Packages are chosen by apt with a configuration of its own, verified by the distribution's keyring, and
# unpacked without their scripts, so that this works as root of a user namespace too, where debootstrap, which
# sets owners and makes devices, does not. dpkg's database has them as installed. Mirrors: the one that this
# machine has its own packages from, or DEBIAN_MIRROR and UBUNTU_MIRROR; DEBIAN_KEYRING and UBUNTU_KEYRING say
# where keyrings are that lie elsewhere.
set -euo pipefail
name=$1
# apt's configuration needs a path that is absolute.
folder=$(realpath -m "$2")
die() { echo "distribution: $*" >&2; exit 1; }
. "$(dirname "$0")/other-apt.sh"

architecture=amd64
[[ $name != debian-*-arm64 ]] || architecture=arm64
case ${name%-arm64} in
  debian-11) suite=bullseye ;;
  debian-12) suite=bookworm ;;
  debian-13) suite=trixie ;;
  debian-testing) suite=testing ;;
  debian-unstable) suite=unstable ;;
  ubuntu-20.04) suite=focal ;;
  ubuntu-22.04) suite=jammy ;;
  ubuntu-24.04) suite=noble ;;
  *) die "$name is not known: the head of this script has the names" ;;
esac

case $name in
  debian-*) uri=${DEBIAN_MIRROR:-$(mirror Debian)} variable=DEBIAN_MIRROR components=main
    keyring=${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg} ;;
  ubuntu-*) uri=${UBUNTU_MIRROR:-$(mirror Ubuntu)} variable=UBUNTU_MIRROR components='main universe'
    keyring=${UBUNTU_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg} ;;
esac
[[ $uri ]] || die "no mirror for $name: this machine's apt has none, so set $variable"
# Debian 13 has Ubuntu's keyring as a package, which is fetched where it is not installed.
[[ -r $keyring || $name == ubuntu-* ]] || die "$keyring is missing: install it, or set DEBIAN_KEYRING"

packages=(
  base-files coreutils dash grep libc-bin iproute2        # what programs and scripts take for granted
  dpkg diffutils                                          # to add rockery's packages
  ibverbs-providers ibverbs-utils perftest rdma-core      # rdma-core has the tests that pyverbs runs
  rdmacm-utils ucx-utils libfabric-bin python3-pyverbs
)
# An emulator boots the kernel, with busybox before the distribution is there.
[[ $architecture != arm64 ]] || packages+=(linux-image-arm64 busybox-static)

stamp="$(cat "$0" "$(dirname "$0")/other-apt.sh" | sha256sum) $uri"
if [[ -r $folder/made-by && $(cat "$folder/made-by") == "$stamp" ]]; then
  exit 0
fi
mkdir -p "$(dirname "$folder")"
# One at a time: several tests ask for the same folder.
exec 9>"$folder.lock"
flock 9
if [[ -r $folder/made-by && $(cat "$folder/made-by") == "$stamp" ]]; then
  exit 0
fi
rm -rf "$folder"
apt="$folder/apt"

run() { "$@" >"$folder/log" 2>&1 || { tail -n 20 "$folder/log" >&2; die "$* failed"; }; }
# download PACKAGE…: with all that they need.
download() {
  run apt-get update -q
  run apt-get install -y -q --download-only "$@"
}
unpack() { dpkg-deb --fsys-tarfile "$1" | tar -x --no-same-owner --keep-directory-symlink -C "$2"; }

echo "distribution: getting the programs of $name" >&2
if [[ ! -r $keyring ]]; then
  debian_mirror=${DEBIAN_MIRROR:-$(mirror Debian)}
  debian_keyring=${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
  [[ $debian_mirror && -r $debian_keyring ]] || die "$keyring is missing: install it, or set UBUNTU_KEYRING"
  configure "$apt" "$debian_mirror" trixie main "$debian_keyring" amd64
  download ubuntu-keyring
  mkdir "$folder/keyring"
  unpack "$apt"/cache/archives/ubuntu-keyring_*.deb "$folder/keyring"
  keyring=$folder/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg
  unset APT_CONFIG
fi
configure "$apt" "$uri" "$suite" "$components" "$keyring" "$architecture"
download "${packages[@]}"

# /bin and its like are links to /usr where the distribution has it so, and have to be there first.
unpack "$apt"/cache/archives/base-files_*.deb "$folder"
for link in bin sbin lib lib64; do
  case $suite in
    bullseye | focal | jammy | noble | bookworm)
      mkdir -p "$folder/usr/$link"
      [[ -e $folder/$link ]] || ln -s "usr/$link" "$folder/$link" ;;
  esac
done
# So that dpkg knows what is there: dependencies of packages that are added, and files that two packages have.
dpkg=$folder/var/lib/dpkg
record() { # PACKAGE: marks it as installed
  local name
  name=$(dpkg-deb -f "$1" Package)
  [[ $(dpkg-deb -f "$1" Multi-Arch) != same ]] || name+=:$(dpkg-deb -f "$1" Architecture)
  dpkg-deb --fsys-tarfile "$1" | tar -t | sed -E 's,^\.,,; s,^/$,/.,; s,(.)/$,\1,' >"$dpkg/info/$name.list"
  { dpkg-deb -f "$1" | sed '1a Status: install ok installed'; echo; } >>"$dpkg/status"
}
mkdir -p "$dpkg"/{info,updates,triggers}
for package in "$apt"/cache/archives/*.deb; do
  unpack "$package" "$folder"
  record "$package"
done
rm -rf "$apt" "$folder/keyring"
# The script of Ubuntu's libpsm-infinipath1 makes this link to one of two builds.
for library in "$folder"/usr/lib/libpsm1/libpsm_infinipath.so.1.*; do
  if [[ -e $library ]]; then
    ln -sf "$(realpath --relative-to "$folder/usr/lib/x86_64-linux-gnu" "$library")" \
      "$folder/usr/lib/x86_64-linux-gnu/libpsm_infinipath.so.1"
  fi
done
mkdir -p "$folder"/{rockery,proc,sys,dev,tmp,run,etc}
echo 'root:x:0:0:root:/root:/bin/sh' >"$folder/etc/passwd"
echo 'root:x:0:' >"$folder/etc/group"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$folder/etc/hosts"
# Programs of another processor do not run here; they find what they need without the linker's cache.
[[ $architecture != amd64 ]] || run chroot "$folder" /sbin/ldconfig
echo "$stamp" >"$folder/made-by"
