// What a process holds, and the agent of its network namespace: to find what is left behind.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct holdings { long descriptors, kib, mappings, agent_descriptors, agent_kib, names; };

// Entries of a folder.
static long count(const char *path) {
  long entries = 0;
  DIR *folder = opendir(path);
  while (folder && readdir(folder)) entries++;
  if (folder) closedir(folder);
  return entries;
}

// Lines of a file with a word in them, or the number that follows the word.
static long word_in(const char *path, const char *word, int number) {
  char line[512];
  long found = 0;
  FILE *file = fopen(path, "r");
  while (file && fgets(line, sizeof line, file)) {
    const char *at = strstr(line, word);
    if (at) found += number ? atol(at + strlen(word)) : 1;
  }
  if (file) fclose(file);
  return found;
}

// The agent of our network namespace.
static void look_at_agent(struct holdings *holdings) {
  struct stat ours, theirs;
  char path[300];
  stat("/proc/self/ns/net", &ours);
  DIR *processes = opendir("/proc");
  for (struct dirent *entry; (entry = readdir(processes)); ) {
    snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
    if (word_in(path, "rockery-agent", 0) == 0) continue;
    snprintf(path, sizeof path, "/proc/%s/ns/net", entry->d_name);
    if (stat(path, &theirs) || theirs.st_ino != ours.st_ino) continue;
    snprintf(path, sizeof path, "/proc/%s/fd", entry->d_name);
    holdings->agent_descriptors = count(path);
    snprintf(path, sizeof path, "/proc/%s/status", entry->d_name);
    holdings->agent_kib = word_in(path, "RssAnon:", 1);
  }
  closedir(processes);
}

static struct holdings look(void) {
  struct holdings holdings = {
    .descriptors = count("/proc/self/fd"),
    .kib = word_in("/proc/self/status", "RssAnon:", 1),
    .mappings = word_in("/proc/self/maps", "memfd:rockery", 0),
    .names = word_in("/proc/net/unix", "@rockery-", 0),
  };
  look_at_agent(&holdings);
  return holdings;
}

static void print_holdings(const char *when, struct holdings holdings) {
  printf("%s: descriptors %ld, KiB %ld, mappings %ld, the agent's descriptors %ld, its KiB %ld, names %ld\n",
         when, holdings.descriptors, holdings.kib, holdings.mappings, holdings.agent_descriptors,
         holdings.agent_kib, holdings.names);
}
