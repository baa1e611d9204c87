/** Error about a model of the hub, with a sentence for people. */
export class HubError extends Error {
  override readonly name = "HubError";
}
