// badwire SEED LOST REORDERED DOUBLED DAMAGED: the wire between interfaces `wire1` and `wire2`, which treats
// so many of a thousand frames badly, each with its own dice. A frame that is reordered is held back until
// eight others went by, or 20 ms. One bit of a frame that is damaged is turned over, behind its Ethernet
// header.
// badwire whole INTERFACE: nothing is left to a network card that is not there: checksums are computed, and
// segments are cut, before a frame reaches the wire.
#include <arpa/inet.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUIRE(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)
enum { FRAME = 65536, HELD_FRAMES = 8, HELD_MS = 20 };

struct direction {
  int in, out;
  unsigned char held[FRAME];
  ssize_t held_length;
  int passed;
};

static uint64_t state;
static unsigned chances[4];
enum { LOST, REORDERED, DOUBLED, DAMAGED };

static uint32_t dice(void) {  // xorshift*: Vigna, "An experimental exploration", 2016
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1dULL >> 32;
}

static int happens(int what) { return dice() % 1000 < chances[what]; }

static int port(const char *name) {
  int fd = socket(AF_PACKET, SOCK_RAW, 0), one = 1, bytes = 32 << 20;
  REQUIRE(fd >= 0);
  REQUIRE(setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) == 0);
  // Beyond what the system allows users, where that is allowed.
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes))
    REQUIRE(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
  struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
  REQUIRE((address.sll_ifindex = if_nametoindex(name)) != 0);
  REQUIRE(bind(fd, (void *)&address, sizeof address) == 0);
  return fd;
}

// A link that is down loses what is sent: that is no error of the wire.
static void give(int fd, const void *frame, ssize_t length) { (void)!send(fd, frame, length, 0); }

static void release(struct direction *way) {
  if (way->held_length > 0) give(way->out, way->held, way->held_length);
  way->held_length = 0;
}

static void carry(struct direction *way) {
  static unsigned char frame[FRAME];
  for (;;) {
    ssize_t length = recv(way->in, frame, sizeof frame, MSG_DONTWAIT);
    if (length <= ETH_HLEN) return;
    if (happens(LOST)) continue;
    if (happens(DAMAGED)) {
      uint32_t bit = dice() % (8 * (length - ETH_HLEN));
      frame[ETH_HLEN + bit / 8] ^= 1 << bit % 8;
    }
    if (way->held_length == 0 && happens(REORDERED)) {
      memcpy(way->held, frame, length);
      way->held_length = length;
      way->passed = 0;
      continue;
    }
    give(way->out, frame, length);
    if (happens(DOUBLED)) give(way->out, frame, length);
    if (way->held_length && ++way->passed == HELD_FRAMES) release(way);
  }
}

static int make_whole(const char *name) {
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  struct ethtool_value off = {.cmd = ETHTOOL_STXCSUM, .data = 0};
  struct ifreq request = {.ifr_data = (void *)&off};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  REQUIRE(fd >= 0 && ioctl(fd, SIOCETHTOOL, &request) == 0);
  return 0;
}

int main(int count, char **words) {
  if (count == 3 && !strcmp(words[1], "whole")) return make_whole(words[2]);
  REQUIRE(count == 6);
  state = strtoull(words[1], NULL, 0) | 1;
  for (int index = 0; index < 4; index++) chances[index] = strtoul(words[2 + index], NULL, 0);
  static struct direction ways[2];
  int a = port("wire1"), b = port("wire2");
  ways[0].in = ways[1].out = a;
  ways[1].in = ways[0].out = b;
  puts("carrying");
  fflush(stdout);
  struct pollfd polled[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
  for (;;) {
    int ready = poll(polled, 2, HELD_MS);
    for (int index = 0; index < 2; index++) {
      // A link that went down says so once.
      if (polled[index].revents & POLLERR) {
        int error;
        socklen_t size = sizeof error;
        getsockopt(polled[index].fd, SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (polled[index].revents & POLLIN) carry(&ways[index]);
      if (ready == 0) release(&ways[index]);
    }
  }
}
