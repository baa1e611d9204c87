import { expect, test } from "bun:test";
import { countInstructions, exceeding } from "./sass.mjs";

const many = "_ZN7bunting4cuda12_GLOBAL__N_116gemm_many_kernelILNS0_6FormatE3ELb0EEEvNS0_4GemmE";
const gate = "_ZN7bunting4cuda12_GLOBAL__N_111gate_kernelENS0_4GateE";

const dumped = `
		Function : ${many}
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;      /* 0x00000a00ff017b82 */
        /*0010*/                   S2R R0, SR_TID.X ;          /* 0x0000000000007919 */
        /*0020*/                   LDGSTS.E.BYPASS.128 [R4], desc[UR4][R2.64] ; /* 0x0 */
        /*0030*/                   LDS.128 R8, [R4] ;          /* 0x0 */
        /*0040*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ; /* 0x0 */
        /*0050*/              @!P0 BRA 0x30 ;                  /* 0x0 */
        /*0060*/              @!UP0 BRA 0x20 ;                 /* 0x0 */
        /*0070*/                   EXIT ;                      /* 0x0 */
        /*0080*/                   BRA 0x80;                   /* 0x0 */
        /*0090*/                   NOP;                        /* 0x0 */
		Function : ${gate}
        /*0000*/                   FMUL R1, R2, R3 ;           /* 0x0 */
        /*0010*/                   EXIT ;                      /* 0x0 */
`;

test("instructions are counted by kernel, and those of the inner loop of tensor instructions by unit", () => {
  expect(countInstructions(dumped)).toEqual({
    "gemm_many<3, 0>": { all: 9, loop: { all: 3, tensor: 1, shared: 1, global: 0 } },
    gate: { all: 2 },
  });
});

test("more instructions than a budget are named, fewer are not", () => {
  const counted = {
    gate: { all: 12 },
    gemm: { all: 90, loop: { all: 31, tensor: 8, shared: 2, global: 1 } },
  };
  const budgets = {
    gate: { all: 12 },
    gemm: { all: 91, loop: { all: 31, tensor: 8, shared: 2, global: 1 } },
  };
  expect(exceeding(counted, budgets)).toEqual([]);
  expect(exceeding({ ...counted, gate: { all: 13 }, cap: { all: 1 } }, budgets)).toEqual([
    "gate has 13 instructions, more than 12.",
    "cap has no budget.",
  ]);
  const slower = { ...counted.gemm, loop: { ...counted.gemm.loop, shared: 3 } };
  expect(exceeding({ gemm: slower }, budgets)).toEqual([
    "The main loop of gemm has 3 instructions (shared), more than 2.",
  ]);
});
