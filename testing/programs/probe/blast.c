/* blast FILE RATE SECONDS: sends the packets in FILE (IPv4, IPv6 or ARP, each after its length, two bytes,
 * little endian; ARP is broadcast on eth0) round robin through raw sockets, RATE packets a second, for
 * SECONDS, and prints how many it sent. Source addresses are those in the packets, so the program needs
 * CAP_NET_RAW: the tests give it a network namespace. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 2048, PAUSE_US = 500 };

struct packet {
	uint16_t length;
	unsigned char bytes[ROOM];
};

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static struct packet *read_all(const char *path, size_t *count)
{
	FILE *file = fopen(path, "rb");
	struct packet *packets = NULL;
	unsigned char length[2];
	if (!file)
		return NULL;
	for (*count = 0; fread(length, 1, 2, file) == 2; ++*count) {
		packets = realloc(packets, (*count + 1) * sizeof *packets);
		struct packet *packet = &packets[*count];
		packet->length = (uint16_t)(length[0] | length[1] << 8);
		if (packet->length < 20 || packet->length > ROOM ||
		    fread(packet->bytes, 1, packet->length, file) != packet->length) {
			fprintf(stderr, "blast: %s: packet %zu is cut off or has a length of %u\n", path, *count,
				packet->length);
			exit(2);
		}
	}
	fclose(file);
	return packets;
}

struct sockets {
	int v4, v6, arp;
	unsigned interface;
};

static ssize_t send_one(const struct sockets *raw, const struct packet *packet)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_scope_id = raw->interface};
	struct sockaddr_ll arp = {.sll_family = AF_PACKET, .sll_protocol = htons(ETHERTYPE_ARP), .sll_halen = 6};
	switch (packet->bytes[0] >> 4) {
	case 0:
		arp.sll_ifindex = (int)raw->interface;
		memset(arp.sll_addr, 0xff, 6);
		return sendto(raw->arp, packet->bytes, packet->length, 0, (struct sockaddr *)&arp, sizeof arp);
	case 6:
		memcpy(&v6.sin6_addr, packet->bytes + 24, 16);
		return sendto(raw->v6, packet->bytes, packet->length, 0, (struct sockaddr *)&v6, sizeof v6);
	default:
		memcpy(&v4.sin_addr, packet->bytes + 16, 4);
		return sendto(raw->v4, packet->bytes, packet->length, 0, (struct sockaddr *)&v4, sizeof v4);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "blast FILE RATE SECONDS\n");
		return 2;
	}
	size_t count = 0;
	struct packet *packets = read_all(argv[1], &count);
	struct sockets raw = {socket(AF_INET, SOCK_RAW, IPPROTO_RAW), socket(AF_INET6, SOCK_RAW, IPPROTO_RAW),
			      socket(AF_PACKET, SOCK_DGRAM, 0), if_nametoindex("eth0")};
	if (!packets || !count || raw.v4 < 0 || raw.v6 < 0 || raw.arp < 0) {
		fprintf(stderr, "blast: no packets in %s, or no raw socket: %s\n", argv[1], strerror(errno));
		return 2;
	}
	double rate = atof(argv[2]), limit = atof(argv[3]), begin = seconds();
	unsigned long sent = 0, refused = 0;
	for (double passed = 0; passed < limit; passed = seconds() - begin) {
		if (sent + refused >= passed * rate) {
			usleep(PAUSE_US);
			continue;
		}
		const struct packet *packet = &packets[(sent + refused) % count];
		if (send_one(&raw, packet) < 0)
			refused++;
		else
			sent++;
	}
	printf("sent %lu refused %lu\n", sent, refused);
	return sent ? 0 : 1;
}
