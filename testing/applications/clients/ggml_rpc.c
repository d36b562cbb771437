// A network of two layers with random weights, computed by ggml here and by a server of its RPC backend: the
// results have the same bits. ggml_rpc SERVER:PORT
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml-rpc.h>
#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1024, ROWS = 8, LAYERS = 2, TIMES = 20 };

static float weights[LAYERS][WIDTH * WIDTH], inputs[ROWS * WIDTH];
static float results[2][ROWS * WIDTH];

static void *have(void *it, const char *what) {
  if (!it) fprintf(stderr, "%s failed\n", what), exit(1);
  return it;
}

static void fill(float *to, int count) {
  for (int i = 0; i < count; i++) to[i] = (float)rand() / (float)RAND_MAX - 0.5f;
}

static void compute(ggml_backend_t backend, float *result) {
  struct ggml_init_params room = {16 * ggml_tensor_overhead() + ggml_graph_overhead(), NULL, true};
  struct ggml_context *context = have(ggml_init(room), "ggml_init");
  struct ggml_tensor *input = ggml_new_tensor_2d(context, GGML_TYPE_F32, WIDTH, ROWS);
  struct ggml_tensor *layers[LAYERS], *last = input;
  for (int i = 0; i < LAYERS; i++) {
    layers[i] = ggml_new_tensor_2d(context, GGML_TYPE_F32, WIDTH, WIDTH);
    last = ggml_relu(context, ggml_mul_mat(context, layers[i], last));
  }
  struct ggml_cgraph *graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, last);
  ggml_backend_buffer_t buffer =
      have(ggml_backend_alloc_ctx_tensors(context, backend), "ggml_backend_alloc_ctx_tensors");
  for (int i = 0; i < LAYERS; i++) ggml_backend_tensor_set(layers[i], weights[i], 0, sizeof weights[i]);
  for (int i = 0; i < TIMES; i++) {
    ggml_backend_tensor_set(input, inputs, 0, sizeof inputs);
    if (ggml_backend_graph_compute(backend, graph)) fprintf(stderr, "it did not compute\n"), exit(1);
    ggml_backend_tensor_get(last, result, 0, ROWS * WIDTH * sizeof *result);
  }
  ggml_backend_buffer_free(buffer);
  ggml_free(context);
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "ggml_rpc SERVER:PORT\n"), 2;
  for (int i = 0; i < LAYERS; i++) fill(weights[i], WIDTH * WIDTH);
  fill(inputs, ROWS * WIDTH);
  ggml_backend_t here = have(ggml_backend_cpu_init(), "ggml_backend_cpu_init");
  ggml_backend_t there = have(ggml_backend_rpc_init(argv[1], 0), "ggml_backend_rpc_init");
  compute(here, results[0]);
  compute(there, results[1]);
  if (memcmp(results[0], results[1], sizeof results[0])) return fprintf(stderr, "the results differ\n"), 1;
  float sum = 0;
  for (int i = 0; i < ROWS * WIDTH; i++) sum += results[1][i];
  if (!(sum > 0)) return fprintf(stderr, "the results are all 0\n"), 1;
  int mebibytes = sizeof weights >> 20;
  printf("%d MiB of weights sent, %d results with the same bits\n", mebibytes, ROWS * WIDTH);
  ggml_backend_free(there);
  ggml_backend_free(here);
  return 0;
}
