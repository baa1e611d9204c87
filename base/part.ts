/** Maximum elements that are copied; longer parts are views. */
const COPIED_MAX = 240;

/**
 * Elements [start, end) of an array that the caller does not modify: a copy if short, else a view. The first
 * view of a short array is expensive, because the runtime moves the array's buffer out of its heap. A long
 * array always has such a buffer.
 */
export function part<Numbers extends Int32Array | Float64Array>(
  array: Numbers,
  start: number,
  end: number,
): Numbers {
  return (end - start <= COPIED_MAX ? array.slice(start, end) : array.subarray(start, end)) as Numbers;
}
