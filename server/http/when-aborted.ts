/** Calls once the signal is aborted, at once if it is already. What is returned ends that. */
export function whenAborted(signal: AbortSignal, tell: () => void): () => void {
  if (signal.aborted) tell();
  else signal.addEventListener("abort", tell, { once: true });
  return () => signal.removeEventListener("abort", tell);
}
