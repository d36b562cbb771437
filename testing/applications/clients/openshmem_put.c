// Each process adds to a counter of process 0 and puts 64 KiB into its neighbour; both are checked.
#include <shmem.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 1 << 16, ADDITIONS = 100 };

static long counter, arrived;
static char received[SIZE], sent[SIZE];

int main(void) {
  shmem_init();
  int own = shmem_my_pe(), all = shmem_n_pes(), next = (own + 1) % all, previous = (own + all - 1) % all;
  memset(sent, 'a' + own, SIZE);
  for (int i = 0; i < ADDITIONS; i++) shmem_long_atomic_inc(&counter, 0);
  shmem_putmem(received, sent, SIZE, next);
  shmem_fence();
  shmem_long_p(&arrived, 1, next);
  shmem_long_wait_until(&arrived, SHMEM_CMP_EQ, 1);
  int is_equal = 1;
  for (int i = 0; i < SIZE; i++) is_equal &= received[i] == 'a' + previous;
  shmem_barrier_all();
  long additions = shmem_long_g(&counter, 0);
  printf("process %d of %d: %s, counter %ld\n", own, all, is_equal ? "equal" : "DIFFERS", additions);
  fflush(stdout);
  shmem_finalize();
  return !is_equal;
}
