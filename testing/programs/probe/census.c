// census: how many devices a program finds. One of the tests runs it with its owner's rights (set-user-ID).
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/auxv.h>

int main(void) {
  int count = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  if (list)
    ibv_free_device_list(list);
  printf("%s rights, %d devices\n", getauxval(AT_SECURE) ? "more" : "no more", count);
  return 0;
}
