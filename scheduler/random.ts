/** Port: randomness. Seeded; the same seed gives the same numbers on every machine. */
export interface Random {
  /** Uniform in 0 … 2^32-1. */
  uint32(): number;
}
