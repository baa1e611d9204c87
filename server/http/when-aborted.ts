/** Calls `tell` once the signal is aborted, at once if it already is. The returned function cancels that. */
export function whenAborted(signal: AbortSignal, tell: () => void): () => void {
  if (signal.aborted) tell();
  else signal.addEventListener("abort", tell, { once: true });
  return () => signal.removeEventListener("abort", tell);
}
