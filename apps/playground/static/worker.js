// Runs requests beside the page. The page ends this worker where a run is no longer wanted.
import { answer, start } from "./engine.js";

const started = start((done) => postMessage({ done }));

onmessage = async ({ data: { number, request } }) => {
  try {
    await started;
    const bytes = await answer(request);
    postMessage({ number, bytes }, [bytes.buffer]);
  } catch (error) {
    postMessage({ number, error: String(error.message ?? error) });
  }
};
