// agent.h: finds rockery's agent, for probes that stop it.
#pragma once
#include "meeting.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>

static inline int in_this_namespace(const char *process) {
  struct stat theirs, ours;
  char path[320];
  snprintf(path, sizeof path, "/proc/%s/ns/net", process);
  return !stat(path, &theirs) && !stat("/proc/self/ns/net", &ours) && theirs.st_ino == ours.st_ino;
}

// The agent of this network namespace.
static inline pid_t agent(void) {
  DIR *all = have(opendir("/proc"), "/proc");
  for (struct dirent *entry; (entry = readdir(all));) {
    char path[320], name[32] = "";
    snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    int found = fscanf(file, "%31s", name) == 1 && !strcmp(name, "rockery-agent");
    fclose(file);
    if (found && in_this_namespace(entry->d_name)) {
      pid_t process = atoi(entry->d_name);
      closedir(all);
      return process;
    }
  }
  fail("no agent");
}
