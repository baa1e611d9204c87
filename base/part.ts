/** Longer parts than this are not copied. */
const COPIED_MAX = 240;

/**
 * Elements [start, end) of an array that stays as it is: a copy of few, a view of many. Before the first view of a short
 * array is made, the runtime gives it a buffer outside of its heap, which takes as long as fifty copies; a long one has such
 * a buffer from its beginning.
 */
export function part<Numbers extends Int32Array | Float64Array>(
  array: Numbers,
  start: number,
  end: number,
): Numbers {
  return (end - start <= COPIED_MAX ? array.slice(start, end) : array.subarray(start, end)) as Numbers;
}
