# The addresses, routes and neighbours of sources.c on eth0, a command per line. Neighbours need not answer.
/bin/ip address add 10.88.0.101/24 dev eth0
/bin/ip address add 10.89.0.1/24 dev eth0
/bin/ip route add 10.90.0.0/24 dev eth0 src 10.89.0.1
/bin/ip -6 address add fd12::1/64 dev eth0 nodad
/bin/ip -6 address add fd12::101/128 dev eth0 nodad
/bin/ip -6 route add fd13::/64 dev eth0 src fd12::101
/bin/ip neighbour replace 10.88.0.7 lladdr 2:0:0:0:0:7 dev eth0 nud permanent
/bin/ip neighbour replace 10.89.0.7 lladdr 2:0:0:0:0:7 dev eth0 nud permanent
/bin/ip neighbour replace 10.90.0.7 lladdr 2:0:0:0:0:7 dev eth0 nud permanent
/bin/ip neighbour replace fd12::7 lladdr 2:0:0:0:0:7 dev eth0 nud permanent
/bin/ip neighbour replace fd13::7 lladdr 2:0:0:0:0:7 dev eth0 nud permanent
