// device.h: the device that a probe works with.
#pragma once
#include "meeting.h"

#include <infiniband/verbs.h>

// The device of that name, or the first one.
static inline struct ibv_context *open_device(const char *name) {
  struct ibv_context *context = NULL;
  struct ibv_device **list = have(ibv_get_device_list(NULL), "ibv_get_device_list");
  for (int i = 0; list[i] && !context; i++)
    if (!name || !strcmp(name, ibv_get_device_name(list[i]))) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  if (!context) fail("no device %s", name ? name : "at all");
  return context;
}
