#!/usr/bin/env bash
# packages.sh [build|dist|demo|all]: installs what building, packaging, the demonstration or the tests (all,
# the default) use, if anything is missing: programs of other projects, the kernel's tools, a C compiler, and
# Rust. Debian and Ubuntu; elsewhere the script names what to install.
set -euo pipefail

build=(
  build-essential ca-certificates curl pkg-config         # a C compiler; rustup comes by curl
  openssl libssl-dev                                      # TLS, and a program that speaks it
)
dist=(
  rpm python3-venv                                        # rpmbuild; the linker comes from PyPI
)
demo=(
  perftest iproute2 iputils-ping procps iperf3            # RDMA programs, namespaces, TCP beside them
)
tests=(
  ibverbs-utils libibverbs-dev librdmacm-dev              # more programs that rockery runs, and their headers
  ibverbs-providers rdma-core python3-pyverbs             # what they need, and rdma-core's own tests
  libclang-dev                                            # to build an example that uses the crate sideway
  rdmacm-utils                                            # sockets over RDMA, and what turns others into them
  infiniband-diags ucx-utils openmpi-bin libopenmpi-dev   # programs that look for devices in /sys and /dev
  opensm                                                  # a subnet manager of InfiniBand, and its tests
  ibutils                                                 # a checker of its tables
  libfabric-bin qperf                                     # programs whose connections come by RDMA-CM
  qemu-system-x86 busybox-static cpio kmod                # the guest with the Linux kernel as the other side
  qemu-system-arm qemu-user-static                        # a guest of 64-bit ARM, and its programs alone
  nvme-cli fio e2fsprogs                                  # the kernel as a host of NVMe
  libnbd-bin python3-libnbd nbd-client nbdkit             # NBD clients, and a peer
  python3-prometheus-client                               # Prometheus' own reader of metrics
  tshark                                                  # a dissector of another project
  jq                                                      # reads the JSON of generated configurations
  nftables                                                # routers that drop packets or change their marks
  samba smbclient samba-testsuite                         # SMB: a server, a client and their tests
  libuid-wrapper                                          # runs Samba without root
  systemd                                                 # systemd-analyze checks the units of the examples
  python3-distributed                                     # Dask: sweeps on several machines
  podman runc                                           # containers
  python3-grpcio python3-protobuf                         # a kubelet's side of gRPC
  python3-yaml python3-jsonschema                         # the Helm chart, and the schema of its values
  netpipe-tcp                                             # TCP by message size
  tgt libiscsi-bin qemu-utils qemu-block-extra            # iSER: a target, and two initiators with libiscsi
  golang-go                                               # an example in Go
  libjemalloc2                                            # an allocator that is preloaded beside rockery
  chromium firefox-esr                                    # browsers
  python3-venv                                            # pandas, pyarrow and Dask of PyPI
)
# The command for another processor writes its own manual pages; OpenSSL and the C library are Debian's.
[[ ${ARCH:-} != *aarch64* ]] || dist+=(qemu-user-static debian-archive-keyring)
die() { echo "packages: $*" >&2; exit 1; }

# as_root COMMAND…: directly, or with sudo.
as_root() {
  if ((EUID == 0)); then "$@"
  elif command -v sudo >/dev/null; then sudo --preserve-env=DEBIAN_FRONTEND "$@"
  else die "neither root nor sudo: ask whoever is to install ${missing[*]}"; fi
}

# twice COMMAND…: mirrors have bad minutes.
twice() { "$@" || { sleep 5; "$@"; }; }

case ${1:-all} in
  build) packages=("${build[@]}") ;;
  dist) packages=("${build[@]}" "${dist[@]}") ;;
  demo) packages=("${build[@]}" "${demo[@]}") ;;
  all) packages=("${build[@]}" "${dist[@]}" "${demo[@]}" "${tests[@]}") ;;
  *) die "'$1': call packages.sh build, dist, demo or all" ;;
esac

missing=()
if command -v dpkg-query >/dev/null; then
  for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status == installed ]] || missing+=("$package")
  done
else
  die "neither Debian nor Ubuntu: install what these hold, then call cargo yourself: ${packages[*]}"
fi
if ((${#missing[@]})); then
  echo "packages: installing ${missing[*]}" >&2
  twice as_root apt-get update -q
  export DEBIAN_FRONTEND=noninteractive
  twice as_root apt-get install -y -q --no-install-recommends "${missing[@]}" ||
    die "apt-get could not install ${missing[*]}"
fi

# Rust: what is there, if it is new enough; else from rustup, which is a package of Debian from version 13 on.
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
new_enough() {
  local found
  found=$(cargo --version 2>/dev/null | awk '{print $2}')
  [[ -n $found && $(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1) == "$wanted" ]]
}
if ! new_enough; then
  echo "packages: installing Rust, at least $wanted" >&2
  if ! command -v rustup >/dev/null && apt-cache show rustup >/dev/null 2>&1 &&
    { ((EUID == 0)) || command -v sudo >/dev/null; }; then
    twice as_root apt-get install -y -q --no-install-recommends rustup || true
  fi
  if ! command -v rustup >/dev/null; then
    curl --proto '=https' --tlsv1.2 -sSf --retry 2 https://sh.rustup.rs |
      sh -s -- -y --profile minimal -c clippy -c rustfmt --no-modify-path ||
      die "no Rust $wanted or newer, and https://sh.rustup.rs cannot be reached: install Rust, then try again"
  else
    rustup toolchain install stable --profile minimal -c clippy -c rustfmt && rustup default stable
  fi
  new_enough || die "cargo is older than $wanted: call 'rustup update stable'"
fi
