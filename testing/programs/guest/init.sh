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

# On the kernel's command line: rockery.addr=ADDRESS/LENGTH (twice, IPv4 and IPv6) and rockery.mtu=BYTES.
for word in $(cat /proc/cmdline); do
  case $word in
    rockery.addr=*) addresses="$addresses ${word#*=}" ;;
    rockery.mtu=*) mtu=${word#*=} ;;
  esac
done
for module in virtio_pci virtio_net virtio_blk virtio_console ib_uverbs rdma_ucm rdma_rxe; do
  modprobe $module
done
# Duplicate address detection would keep the IPv6 addresses, and so their GIDs, away for a second.
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
/bin/ip link set lo up
/bin/ip link set eth0 mtu "$mtu" up
for address in $addresses; do /bin/ip address add "$address" dev eth0; done
rdma link add rxe0 type rxe netdev eth0

port=/dev/vport0p1
while [ ! -e "$port" ]; do
  for found in /dev/vport*p1; do [ -e "$found" ] && port=$found; done
  sleep 0.05
done
exec 3<>"$port"
echo "=0" >&3
while read -r command <&3; do
  sh -c "$command" </dev/null >/tmp/answer 2>&1
  status=$?
  sed 's/^/|/' /tmp/answer >&3
  [ -s /tmp/answer ] && [ "$(tail -c 1 /tmp/answer | wc -l)" = 0 ] && echo >&3
  echo "=$status" >&3
done
poweroff -f
