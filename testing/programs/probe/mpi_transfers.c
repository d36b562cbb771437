// MPI between two to eight ranks, every byte checked: messages of all protocols' sizes, to and fro at once,
// collectives, and one-sided windows.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 4 << 20, WINDOW = 1 << 20, RANKS_MAX = 8 };

static const int sizes[] = {0, 1, 7, 64, 1000, 4096, 8191, 65536, 300001, MOST};
#define SIZES ((int)(sizeof sizes / sizeof *sizes))

static int rank, ranks, peer;

static void fail(const char *what, int size, int at) {
  fprintf(stderr, "rank %d: %s of %d bytes is wrong at %d\n", rank, what, size, at);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char pattern(int from, int round, int at) {
  return (unsigned char)(at * 31 + (at >> 8) + from * 97 + round * 13);
}

static void fill(unsigned char *bytes, int round, int size) {
  for (int i = 0; i < size; i++) bytes[i] = pattern(rank, round, i);
}

static void check(const char *what, const unsigned char *bytes, int round, int size) {
  for (int i = 0; i < size; i++)
    if (bytes[i] != pattern(peer, round, i)) fail(what, size, i);
}

static void messages(unsigned char *out, unsigned char *in) {
  for (int round = 0; round < 3 * SIZES; round++) {
    int size = sizes[round % SIZES];
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int got;
    fill(out, round, size);
    MPI_Irecv(in, MOST, MPI_BYTE, peer, round, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, size, MPI_BYTE, peer, round, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    MPI_Get_count(&statuses[0], MPI_BYTE, &got);
    if (got != size) fail("length of a message", size, got);
    check("message", in, round, size);
  }
}

static void collectives(unsigned char *out, unsigned char *in) {
  long sum = 0, mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (sum != ranks * (ranks + 1) / 2) fail("sum", (int)sum, 0);
  fill(out, 7, ranks * WINDOW);
  MPI_Alltoall(out, WINDOW, MPI_BYTE, in, WINDOW, MPI_BYTE, MPI_COMM_WORLD);
  for (int from = 0; from < ranks; from++)
    for (int i = 0; i < WINDOW; i++)
      if (in[from * WINDOW + i] != pattern(from, 7, rank * WINDOW + i))
        fail("part of an alltoall", WINDOW, i);
}

static void windows(unsigned char *out, unsigned char *in) {
  unsigned char *shared;
  MPI_Win window;
  MPI_Win_allocate(WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &window);
  for (int round = 0; round < 4; round++) {
    fill(out, round, WINDOW);
    MPI_Win_fence(0, window);
    MPI_Put(out, WINDOW, MPI_BYTE, peer, 0, WINDOW, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    check("what was put", shared, round, WINDOW);
    MPI_Win_fence(0, window);
    fill(shared, round + 100, WINDOW);
    MPI_Win_fence(0, window);
    MPI_Get(in, WINDOW, MPI_BYTE, peer, 0, WINDOW, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    check("what was got", in, round + 100, WINDOW);
  }
  MPI_Win_free(&window);
}

int main(int count, char **words) {
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  // Neighbours, two by two.
  peer = rank ^ 1;
  size_t room = ranks * WINDOW > MOST ? (size_t)ranks * WINDOW : MOST;
  unsigned char *out = malloc(room), *in = malloc(room);
  if (ranks % 2 || ranks > RANKS_MAX || !out || !in) MPI_Abort(MPI_COMM_WORLD, 2);
  messages(out, in);
  collectives(out, in);
  windows(out, in);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("all %d ranks are right\n", ranks);
  MPI_Finalize();
  return 0;
}
