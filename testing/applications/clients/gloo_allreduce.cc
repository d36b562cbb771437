// gloo_allreduce RANK RANKS FOLDER DEVICE GID_INDEX: one of several processes that sum vectors and broadcast
// one with Gloo over its transport `ibverbs`, and compare every element.
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

// Algorithms and their vectors are never freed: Gloo ends a program that destroys a buffer whose last request
// has no completion yet.
template <typename T>
static std::vector<T> &vector_of(size_t count) {
  return *new std::vector<T>(count);
}

// Gloo's algorithms with bound buffers, which are those that its transport `ibverbs` has.
static bool sums(const std::shared_ptr<gloo::Context> &context, size_t count) {
  auto &values = vector_of<float>(count);
  for (size_t i = 0; i < count; i++) values[i] = static_cast<float>((context->rank + 1) * (i % 1000));
  (new gloo::AllreduceRingChunked<float>(context, {values.data()}, static_cast<int>(count)))->run();
  const int ranks = context->size, all = ranks * (ranks + 1) / 2;
  for (size_t i = 0; i < count; i++)
    if (values[i] != static_cast<float>(all * (i % 1000))) return false;
  return true;
}

static bool broadcasts(const std::shared_ptr<gloo::Context> &context, size_t count) {
  auto &values = vector_of<int>(count);
  for (size_t i = 0; i < count; i++) values[i] = context->rank == 0 ? static_cast<int>(7 * i + 1) : 0;
  (new gloo::BroadcastOneToAll<int>(context, {values.data()}, static_cast<int>(count), 0))->run();
  for (size_t i = 0; i < count; i++)
    if (values[i] != static_cast<int>(7 * i + 1)) return false;
  return true;
}

int main(int argc, char **argv) {
  if (argc != 6) return fprintf(stderr, "gloo_allreduce RANK RANKS FOLDER DEVICE GID_INDEX\n"), 2;
  const int rank = atoi(argv[1]), ranks = atoi(argv[2]);
  gloo::transport::ibverbs::attr attr;
  attr.name = argv[4];
  attr.port = 1;
  attr.index = atoi(argv[5]);
  auto device = gloo::transport::ibverbs::CreateDevice(attr);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(argv[3]);
  context->connectFullMesh(store, device);
  const size_t counts[] = {1, 1000, 1 << 20};
  for (size_t count : counts) {
    if (!sums(context, count)) return printf("rank %d: a sum of %zu is wrong\n", rank, count), 1;
    if (!broadcasts(context, count)) return printf("rank %d: a broadcast of %zu is wrong\n", rank, count), 1;
  }
  printf("rank %d of %d: equal\n", rank, ranks);
  fflush(stdout);
  (new gloo::BarrierAllToAll(context))->run();
  // The peers acknowledge the last messages.
  sleep(1);
  _exit(0);
}
