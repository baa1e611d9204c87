import type { VNode } from "preact";
import { keyProblem } from "./api.ts";
import { server } from "./store.ts";

const stages = {
  reading: "Reading packed weights",
  loading: "Loading",
  keeping: "Keeping packed weights",
  copying: "Copying to the GPU",
} as const;

/** Reason why the server accepts no messages, with the progress of a loading model. */
export function ServerStatus(): VNode | null {
  const { value: problem } = server.problem;
  const { value: loading } = server.loading;
  if (problem === null || keyProblem.value !== null) return null;
  return (
    <div id="status" class="card" role="status">
      <p>{problem}</p>
      {loading !== null && (
        <>
          <progress aria-label={stages[loading.stage]} max={loading.totalBytes} value={loading.doneBytes} />
          <p class="hint">
            {stages[loading.stage]}: {gigabytes(loading.doneBytes)} of {gigabytes(loading.totalBytes)}
          </p>
        </>
      )}
    </div>
  );
}

function gigabytes(bytes: number): string {
  return bytes < 1e8 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
}
