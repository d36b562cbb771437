// The state of the page as the fragment of its address: files and settings as JSON, deflated, in base64url.
const through = async (bytes, transform) =>
  new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(transform)).arrayBuffer());

export async function toFragment(state) {
  const json = new TextEncoder().encode(JSON.stringify(state));
  const packed = await through(json, new CompressionStream("deflate-raw"));
  const text = Array.from(packed, (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// The state, or null where the fragment holds none.
export async function fromFragment(fragment) {
  try {
    const text = atob(fragment.replaceAll("-", "+").replaceAll("_", "/"));
    const packed = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    const state = JSON.parse(new TextDecoder().decode(
      await through(packed, new DecompressionStream("deflate-raw"))));
    const isText = (value) => typeof value === "string";
    const isTable = (value) => value !== null && typeof value === "object";
    const isTexts = (value) => isTable(value) && Object.values(value).every(isText);
    const fits = isText(state.name) && isText(state.text) && isTexts(state.files) && isTexts(state.set);
    return fits ? state : null;
  } catch {
    return null;
  }
}
