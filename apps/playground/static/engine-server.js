// The simulator of the rockery that serves this page.
export const has = { live: true };

export async function start() {}

// The answer to a request, as bytes.
export async function answer(request) {
  const headers = { "content-type": "application/json" };
  const response = await fetch("api/sim", { method: "POST", headers, body: JSON.stringify(request) });
  if (!response.ok) throw new Error(`rockery web: ${response.status} ${await response.text()}`);
  return new Uint8Array(await response.arrayBuffer());
}
