/** Dense layers after the pooling: those of sentence-transformers' models, and of classifiers. */
import { show } from "./json.ts";
import { ModelError } from "./model-error.ts";
import { numbersOf } from "./numbers.ts";
import type { StoredTensor } from "./safetensors.ts";

/** y = norm(activation(weights x + bias)). */
export interface DenseLayer {
  readonly inputs: number;
  readonly outputs: number;
  /** [outputs, inputs] */
  readonly weights: Float32Array;
  /** [outputs]; null: none. */
  readonly bias: Float32Array | null;
  readonly activation: DenseActivation;
  /** Norm that subtracts the mean; null: none. */
  readonly norm: DenseNorm | null;
}

export interface DenseNorm {
  readonly weights: Float32Array;
  readonly bias: Float32Array | null;
  readonly epsilon: number;
}

const activations = {
  identity: (x: number) => x,
  tanh: Math.tanh,
  gelu: (x: number) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  relu: (x: number) => Math.max(0, x),
  silu: (x: number) => x / (1 + Math.exp(-x)),
  sigmoid: (x: number) => 1 / (1 + Math.exp(-x)),
} as const;
export type DenseActivation = keyof typeof activations;

/** Activation by the name of a class of torch, or of transformers; null if it is not computed here. */
export function activationNamed(name: string): DenseActivation | null {
  const short = name.split(".").at(-1)!.toLowerCase();
  return Object.hasOwn(activations, short) ? (short as DenseActivation) : null;
}

/** Makes a layer of stored tensors. Throws ModelError for shapes that do not fit. */
export function denseLayer(
  weights: StoredTensor,
  bias: StoredTensor | undefined,
  inputs: number,
  activation: DenseActivation,
): DenseLayer {
  const [outputs = 0, columns] = weights.shape;
  if (weights.shape.length !== 2 || columns !== inputs)
    throw new ModelError(
      weights.file,
      weights.name,
      `has shape ${show(weights.shape)}, wanted [_, ${inputs}]`,
    );
  if (bias !== undefined && (bias.shape.length !== 1 || bias.shape[0] !== outputs))
    throw new ModelError(bias.file, bias.name, `has shape ${show(bias.shape)}, wanted [${outputs}]`);
  return {
    inputs,
    outputs,
    weights: numbersOf(weights),
    bias: bias === undefined ? null : numbersOf(bias),
    activation,
    norm: null,
  };
}

/** Result of the layers, one after the other. */
export function throughLayers(layers: readonly DenseLayer[], state: Float32Array): Float32Array {
  return layers.reduce((input, layer) => outputOf(layer, input), state);
}

function outputOf({ inputs, outputs, weights, bias, activation, norm }: DenseLayer, x: Float32Array) {
  const activate = activations[activation];
  const y = new Float32Array(outputs);
  for (let row = 0; row < outputs; row++) {
    const at = row * inputs;
    let sum = bias === null ? 0 : bias[row]!;
    for (let i = 0; i < inputs; i++) sum += weights[at + i]! * x[i]!;
    y[row] = activate(sum);
  }
  return norm === null ? y : normOf(norm, y);
}

function normOf({ weights, bias, epsilon }: DenseNorm, x: Float32Array): Float32Array {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
  const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
  const scale = 1 / Math.sqrt(variance + epsilon);
  return x.map((value, i) => (value - mean) * scale * weights[i]! + (bias === null ? 0 : bias[i]!));
}

/** Error function within 1.5e-7 (Abramowitz and Stegun, 7.1.26). */
function erf(x: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const terms = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
  const rest = terms.reduce((sum, term) => sum * t + term, 0) * t * Math.exp(-x * x);
  return Math.sign(x) * (1 - rest);
}
