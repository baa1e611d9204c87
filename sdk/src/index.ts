/**
 * Programs for Bunting: calls are functions whose outputs are inputs of other calls. The server runs what a
 * requested value needs.
 */
export { Bunting, type BuntingOptions, configure } from "./client.ts";
export { type FailedValue, ServerError, ValueError } from "./errors.ts";
export { choose, join, map, reduce, repeat, type Test } from "./flow.ts";
export { date, json, lines, number, oneOf, type Parser, regex, split, trimmed } from "./parsers.ts";
export {
  assistant,
  chat,
  input,
  type OutputOptions,
  output,
  type Sampling,
  type SemanticFunction,
  semantic,
  system,
  user,
} from "./semantic.ts";
export { Session } from "./session.ts";
export { type Criteria, type GetOptions, type Result, Value, value } from "./value.ts";
