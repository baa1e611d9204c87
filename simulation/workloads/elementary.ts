/**
 * Logarithm and exponential from +, -, × and ÷ alone, which every machine rounds alike. `Math.log` and
 * `Math.exp` differ in the last bits between machines, and a last bit in an arrival time makes another
 * history.
 */

/** Natural logarithm of x > 0, finite; absolute or relative error within 1e-15. */
export function ln(x: number): number {
  let [scaled, doublings] = [x, 0];
  for (; scaled > 1.5; doublings++) scaled /= 2;
  for (; scaled < 0.75; doublings--) scaled *= 2;
  // ln x = 2 artanh t = 2 (t + t³/3 + t⁵/5 + …), and |t| ≤ 1/5.
  const t = (scaled - 1) / (scaled + 1);
  let sum = 0;
  for (let odd = 27; odd > 0; odd -= 2) sum = sum * t * t + 1 / odd;
  return doublings * Math.LN2 + 2 * t * sum;
}

/** Exponential e^x, |x| ≤ 700; relative error within 1e-13. */
export function exp(x: number): number {
  const doublings = Math.round(x / Math.LN2);
  const rest = x - doublings * Math.LN2;
  let sum = 1;
  for (let term = 18; term > 0; term--) sum = 1 + (sum * rest) / term;
  for (let i = 0; i < doublings; i++) sum *= 2;
  for (let i = 0; i > doublings; i--) sum /= 2;
  return sum;
}
