/* ask ADDRESS PORT FILE: sends the IPv4 packet in FILE from a raw socket, and prints the first UDP datagram
 * that arrives at ADDRESS and PORT within two seconds, in hexadecimal; nothing if none does. */
#include <arpa/inet.h>
#include <netinet/ip.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

int main(int argc, char **argv)
{
	static unsigned char packet[65536], answer[65536];
	struct sockaddr_in own = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
	struct timeval wait = {.tv_sec = 2};
	FILE *file = argc == 4 ? fopen(argv[3], "rb") : NULL;
	if (!file || inet_pton(AF_INET, argv[1], &own.sin_addr) != 1) {
		fprintf(stderr, "ask ADDRESS PORT FILE\n");
		return 2;
	}
	size_t length = fread(packet, 1, sizeof packet, file);
	own.sin_port = htons((unsigned short)atoi(argv[2]));
	memcpy(&to.sin_addr, packet + offsetof(struct iphdr, daddr), sizeof to.sin_addr);
	int raw = socket(AF_INET, SOCK_RAW, IPPROTO_RAW), udp = socket(AF_INET, SOCK_DGRAM, 0);
	if (raw < 0 || udp < 0 || bind(udp, (struct sockaddr *)&own, sizeof own) ||
	    setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) ||
	    sendto(raw, packet, length, 0, (struct sockaddr *)&to, sizeof to) < 0) {
		perror("ask");
		return 1;
	}
	ssize_t got = recv(udp, answer, sizeof answer, 0);
	for (ssize_t index = 0; index < got; index++)
		printf("%02x", answer[index]);
	printf("\n");
	return 0;
}
