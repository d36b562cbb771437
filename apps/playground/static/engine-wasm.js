// The simulator as WebAssembly, in the worker that loads this file.
const decoder = new TextDecoder();
let exports;

export const has = { live: false };

export async function start(progress) {
  const response = await fetch("playground.wasm");
  if (!response.ok) throw new Error(`playground.wasm: ${response.status} ${response.statusText}`);
  const imports = { page: { progress } };
  ({ exports } = (await WebAssembly.instantiate(await response.arrayBuffer(), imports)).instance);
}

// The answer to a request, as bytes.
export async function answer(request) {
  const bytes = new TextEncoder().encode(JSON.stringify(request));
  const at = exports.allocate(bytes.length);
  new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
  const place = BigInt.asUintN(64, exports.answer(at, bytes.length));
  const [from, length] = [Number(place >> 32n), Number(place & 0xffffffffn)];
  // Memory may have grown meanwhile, so the view is made now; the copy outlives the memory.
  const copy = new Uint8Array(exports.memory.buffer, from, length).slice();
  exports.free(from, length);
  return copy;
}
