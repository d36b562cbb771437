#!/bin/busybox sh
# The guest's first and only process of its own. It brings up eth0 with rxe0 on it, then serves the control
# port: a line in is a shell command; what it prints goes out with '|' before each line, then '=STATUS'.
/bin/busybox --install -s /busybox
export PATH=/bin:/sbin:/busybox HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm

# On the kernel's command line: rockery.addr=ADDRESS/LENGTH (twice, IPv4 and IPv6), rockery.mtu=BYTES, and
# rockery.distribution where the programs are those of a folder of the host.
for word in $(cat /proc/cmdline); do
  case $word in
    rockery.addr=*) addresses="$addresses ${word#*=}" ;;
    rockery.mtu=*) mtu=${word#*=} ;;
    rockery.distribution) distribution=/root ;;
  esac
done
for module in virtio_pci virtio_net virtio_blk virtio_console ib_uverbs rdma_ucm rdma_rxe; do
  modprobe $module
done

# inside COMMAND: runs a line of shell where the programs are.
inside() { sh -c "$1"; }
if [ "$distribution" ]; then
  inside() {
    chroot "$distribution" /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin /bin/sh -c "$1"
  }
  modprobe 9pnet_virtio
  modprobe 9p
  shared=trans=virtio,version=9p2000.L,cache=loose,msize=262144,ro
  mount -t 9p -o $shared distribution "$distribution"
  mount -t 9p -o $shared rockery "$distribution/rockery"
  for folder in proc sys dev tmp; do mount --rbind /$folder "$distribution/$folder"; done
  mount -t tmpfs run "$distribution/run"
fi
# Duplicate address detection would keep the IPv6 addresses, and so their GIDs, away for a second.
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
inside "/bin/ip link set lo up"
inside "/bin/ip link set eth0 mtu $mtu up"
for address in $addresses; do inside "/bin/ip address add $address dev eth0"; done
inside "rdma link add rxe0 type rxe netdev eth0"

port=/dev/vport0p1
while [ ! -e "$port" ]; do
  for found in /dev/vport*p1; do [ -e "$found" ] && port=$found; done
  sleep 0.05
done
exec 3<>"$port"
echo "=0" >&3
while read -r command <&3; do
  inside "$command" </dev/null >/tmp/answer 2>&1
  status=$?
  sed 's/^/|/' /tmp/answer >&3
  [ -s /tmp/answer ] && [ "$(tail -c 1 /tmp/answer | wc -l)" = 0 ] && echo >&3
  echo "=$status" >&3
done
poweroff -f
