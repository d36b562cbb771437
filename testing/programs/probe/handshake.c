/* handshake IDENTITY KEY: makes TLS 1.3 handshakes for the kernel (net/handshake), as tlshd does, which
 * Debian 12 does not have. The kernel's NVMe host finds IDENTITY in its keyring, its target takes whom this
 * program believes; either hands out a connected socket, and gets it back with the kernel's TLS on it. KEY
 * is in hexadecimal digits. Prints a line for each handshake. */
#include <errno.h>
#include <fcntl.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/tls.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/handshake.h, which came after Debian 12's headers. */
enum { READY = 1, ACCEPT, DONE };
enum { ACCEPT_SOCKFD = 1, ACCEPT_HANDLER_CLASS, ACCEPT_MESSAGE_TYPE };
enum { CLIENT_HELLO = 1, SERVER_HELLO };
enum { DONE_STATUS = 1, DONE_SOCKFD, DONE_REMOTE_AUTH };
enum { CLASS_TLSHD = 1 };

#define SOL_TCP_LEVEL 6
#define TCP_ULP_OPTION 31
#define SOL_TLS_LEVEL 282

static const char *identity;
static unsigned char key[48];
static size_t key_length;
static int key_serial;
static unsigned char secrets[2][48]; /* of the client, of the server */

static void fail(const char *what)
{
	fprintf(stderr, "handshake: %s: %s\n", what, strerror(errno));
	exit(1);
}

static size_t from_hex(const char *text, unsigned char *bytes, size_t room)
{
	size_t length = 0;
	for (; text[0] && text[1] && length < room; text += 2)
		if (sscanf(text, "%2hhx", &bytes[length++]) != 1)
			break;
	return length;
}

/* ---- netlink ---- */

static int netlink;

struct message {
	struct nlmsghdr head;
	struct genlmsghdr generic;
	char attributes[4096];
};

static void put(struct message *message, int type, const void *value, size_t length)
{
	struct nlattr *attribute = (void *)((char *)message + NLMSG_ALIGN(message->head.nlmsg_len));
	attribute->nla_type = type;
	attribute->nla_len = NLA_HDRLEN + length;
	memcpy((char *)attribute + NLA_HDRLEN, value, length);
	message->head.nlmsg_len = NLMSG_ALIGN(message->head.nlmsg_len) + NLA_ALIGN(attribute->nla_len);
}

static struct message begin(int family, int command)
{
	struct message message = {0};
	message.head.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
	message.head.nlmsg_type = family;
	message.head.nlmsg_flags = NLM_F_REQUEST;
	message.generic.cmd = command;
	message.generic.version = 1;
	return message;
}

static void give(struct message *message)
{
	if (send(netlink, message, message->head.nlmsg_len, 0) < 0)
		fail("send");
}

/* The next message of this type. */
static struct message take(int type, int command)
{
	for (;;) {
		struct message message = {0};
		if (recv(netlink, &message, sizeof message, 0) < 0)
			fail("recv");
		if (message.head.nlmsg_type == NLMSG_ERROR) {
			struct nlmsgerr *error = NLMSG_DATA(&message.head);
			if (error->error) {
				errno = -error->error;
				fail("netlink");
			}
			continue;
		}
		if (message.head.nlmsg_type == type && message.generic.cmd == command)
			return message;
	}
}

static const void *find_in(const void *begin, size_t length, int type, size_t *found)
{
	const char *at = begin, *end = at + length;
	while (at + NLA_HDRLEN <= end) {
		const struct nlattr *attribute = (const void *)at;
		if (attribute->nla_len < NLA_HDRLEN)
			break;
		if ((attribute->nla_type & NLA_TYPE_MASK) == type) {
			*found = attribute->nla_len - NLA_HDRLEN;
			return at + NLA_HDRLEN;
		}
		at += NLA_ALIGN(attribute->nla_len);
	}
	return NULL;
}

static const void *find(const struct message *message, int type, size_t *length)
{
	return find_in(message->attributes, message->head.nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN), type, length);
}

/* Looks up the family, and joins its only group that has listeners. */
static int join(void)
{
	struct sockaddr_nl own = {.nl_family = AF_NETLINK};
	netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	if (netlink < 0 || bind(netlink, (void *)&own, sizeof own))
		fail("netlink");
	struct message ask = begin(GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
	put(&ask, CTRL_ATTR_FAMILY_NAME, "handshake", sizeof "handshake");
	give(&ask);
	struct message said = take(GENL_ID_CTRL, CTRL_CMD_NEWFAMILY);
	size_t length;
	const uint16_t *family = find(&said, CTRL_ATTR_FAMILY_ID, &length);
	size_t groups_length;
	const char *groups = find(&said, CTRL_ATTR_MCAST_GROUPS, &groups_length);
	if (!family || !groups)
		fail("no handshake family");
	for (int number = 1; number < 8; number++) {
		size_t group_length;
		const void *group = find_in(groups, groups_length, number, &group_length);
		const char *name = group ? find_in(group, group_length, CTRL_ATTR_MCAST_GRP_NAME, &length) : NULL;
		const uint32_t *id = group ? find_in(group, group_length, CTRL_ATTR_MCAST_GRP_ID, &length) : NULL;
		if (name && id && !strcmp(name, "tlshd")) {
			int joined = *id;
			if (setsockopt(netlink, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &joined, sizeof joined))
				fail("the group");
		}
	}
	return *family;
}

/* ---- keys ---- */

/* Puts the key where the kernel's NVMe host looks for it. */
static void keep(void)
{
	char line[512];
	int ring = 0;
	FILE *keys = fopen("/proc/keys", "r");
	while (keys && fgets(line, sizeof line, keys))
		if (strstr(line, "keyring") && strstr(line, " .nvme"))
			ring = strtol(line, NULL, 16);
	key_serial = syscall(SYS_add_key, "psk", identity, key, key_length, ring);
	if (!ring || key_serial < 0)
		fail("the keyring .nvme");
}

static SSL_SESSION *session_of_key(SSL *ssl)
{
	const unsigned char number[2] = {0x13, key_length == 48 ? 2 : 1};
	SSL_SESSION *session = SSL_SESSION_new();
	SSL_SESSION_set1_master_key(session, key, key_length);
	SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, number));
	SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
	return session;
}

/* The server's side: whose key is it? */
static int recognize(SSL *ssl, const unsigned char *name, size_t length, SSL_SESSION **session)
{
	int is_known = length == strlen(identity) && !memcmp(name, identity, length);
	*session = is_known ? session_of_key(ssl) : NULL;
	return 1;
}

/* The client's side. */
static int choose(SSL *ssl, const EVP_MD *hash, const unsigned char **name, size_t *length,
		  SSL_SESSION **session)
{
	(void)hash;
	*session = session_of_key(ssl);
	*name = (const unsigned char *)identity;
	*length = strlen(identity);
	return 1;
}

static void listen_to_secrets(const SSL *ssl, const char *line)
{
	(void)ssl;
	const char *names[] = {"CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 "};
	for (int side = 0; side < 2; side++)
		if (!strncmp(line, names[side], strlen(names[side])))
			from_hex(strrchr(line, ' ') + 1, secrets[side], sizeof secrets[side]);
}

/* HKDF-Expand-Label without context (RFC 8446, 7.1); what is asked for is no longer than the hash. */
static void expand(const unsigned char *secret, const char *label, unsigned char *out, size_t length)
{
	unsigned char info[64] = {0, length, 6 + strlen(label)}, made[64];
	size_t end = 3 + sprintf((char *)info + 3, "tls13 %s", label);
	info[end++] = 0;
	info[end++] = 1;
	HMAC(key_length == 48 ? EVP_sha384() : EVP_sha256(), secret, key_length, info, end, made, NULL);
	memcpy(out, made, length);
}

/* Gives the kernel the keys of one direction. */
static int give_keys(int fd, int direction, const unsigned char *secret)
{
	unsigned char iv[12];
	expand(secret, "iv", iv, sizeof iv);
	if (key_length == 48) {
		struct tls12_crypto_info_aes_gcm_256 it = {.info = {TLS_1_3_VERSION, TLS_CIPHER_AES_GCM_256}};
		expand(secret, "key", it.key, sizeof it.key);
		memcpy(it.salt, iv, 4);
		memcpy(it.iv, iv + 4, 8);
		return setsockopt(fd, SOL_TLS_LEVEL, direction, &it, sizeof it);
	}
	struct tls12_crypto_info_aes_gcm_128 it = {.info = {TLS_1_3_VERSION, TLS_CIPHER_AES_GCM_128}};
	expand(secret, "key", it.key, sizeof it.key);
	memcpy(it.salt, iv, 4);
	memcpy(it.iv, iv + 4, 8);
	return setsockopt(fd, SOL_TLS_LEVEL, direction, &it, sizeof it);
}

static int handshake(int fd, int is_server)
{
	SSL_CTX *context = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
	SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
	SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256");
	SSL_CTX_set_psk_use_session_callback(context, choose);
	SSL_CTX_set_psk_find_session_callback(context, recognize);
	/* A ticket would be a record that the peer does not expect. */
	SSL_CTX_set_num_tickets(context, 0);
	SSL_CTX_set_keylog_callback(context, listen_to_secrets);
	SSL *ssl = SSL_new(context);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	SSL_set_fd(ssl, fd);
	int status = (is_server ? SSL_accept(ssl) : SSL_connect(ssl)) == 1 && SSL_session_reused(ssl) ? 0 : EACCES;
	printf("%s %s\n", status ? "refused" : SSL_get_cipher(ssl), identity);
	fflush(stdout);
	if (!status && (setsockopt(fd, SOL_TCP_LEVEL, TCP_ULP_OPTION, "tls", sizeof "tls") ||
			give_keys(fd, TLS_TX, secrets[is_server]) || give_keys(fd, TLS_RX, secrets[!is_server]))) {
		status = errno;
		printf("the kernel's TLS: %s\n", strerror(errno));
		fflush(stdout);
	}
	/* Without a word to the peer: the kernel goes on. */
	SSL_set_quiet_shutdown(ssl, 1);
	SSL_free(ssl);
	SSL_CTX_free(context);
	return status;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	identity = argv[1];
	key_length = from_hex(argv[2], key, sizeof key);
	keep();
	int family = join();
	puts("ready");
	fflush(stdout);
	for (;;) {
		take(family, READY);
		struct message accept = begin(family, ACCEPT);
		uint32_t class = CLASS_TLSHD;
		put(&accept, ACCEPT_HANDLER_CLASS, &class, sizeof class);
		give(&accept);
		struct message said = take(family, ACCEPT);
		size_t length;
		const int32_t *fd = find(&said, ACCEPT_SOCKFD, &length);
		const uint32_t *type = find(&said, ACCEPT_MESSAGE_TYPE, &length);
		if (!fd || !type)
			continue;
		uint32_t status = handshake(*fd, *type == SERVER_HELLO), serial = key_serial;
		struct message done = begin(family, DONE);
		put(&done, DONE_STATUS, &status, sizeof status);
		put(&done, DONE_SOCKFD, fd, sizeof *fd);
		if (!status)
			put(&done, DONE_REMOTE_AUTH, &serial, sizeof serial);
		give(&done);
		close(*fd);
	}
}
