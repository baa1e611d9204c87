// isa.cpp - kernel table of one instruction set; compiled once per level with BUNTING_ISA naming it.
#include "cpu/kernels/kernels.h"

#define BUNTING_STRING_(x) #x
#define BUNTING_STRING(x) BUNTING_STRING_(x)

namespace bunting::BUNTING_ISA {

void pack(PackedMatrix const& w, void const* src, Dtype src_dtype, int64_t begin, int64_t end);
void gemm(Gemm const& g, int64_t panel_begin, int64_t panel_end);
double peak(Dtype dtype);
uint64_t read(char const* from, size_t bytes);
void quantise(Operand const& to, void const* x, Dtype dtype, int64_t ldx, int64_t k, int64_t begin,
              int64_t end);
void dequantise(Operand const& to, InputGroup const* x, int64_t ldx, int64_t k, int64_t begin, int64_t end);
void embed(float* x, int64_t ldx, PackedMatrix const& table, int32_t const* ids, int64_t begin, int64_t end);
void norm(Operand const& y, float const* x, int64_t ldx, Norm const& n, int64_t h, int64_t begin,
          int64_t end);
void add_normed(float* x, int64_t ldx, float const* d, int64_t ldd, Norm const& n, float scale, int64_t h,
                int64_t begin, int64_t end);
void scale_and_cap(float* x, int64_t ldx, int64_t n, float scale, float cap, int64_t begin, int64_t end);
void rope_append(RopeAppend const& a, int64_t begin, int64_t end);
void latent_append(LatentAppend const& a, int64_t begin, int64_t end);
void attention(Attention const& a, int64_t item_begin, int64_t item_end);
void gate_output(void* y, Dtype dtype, int64_t ldy, float const* g, int64_t ldg, int64_t n, int64_t begin,
                 int64_t end);
void state_conv(StateMixer const& m, int64_t item_begin, int64_t item_end);
void state_gates(StateMixer const& m, StateGates const& g, int64_t begin, int64_t end);
void state_scan(StateMixer const& m, int64_t item_begin, int64_t item_end);
void state_output(StateOutput const& o, int64_t begin, int64_t end);
SampleResult sample(SampleRow const& row, float const* logits, int32_t vocab, char* scratch, int32_t* top);
void gate(Operand const& y, float const* gu, int64_t ldgu, int64_t f, Activation activation, int64_t begin,
          int64_t end);
void activate(Operand const& y, float const* u, int64_t ldu, int64_t f, Activation activation,
              Xielu const& numbers, int64_t begin, int64_t end);

extern Kernels const kernels;
Kernels const kernels = {
    .name = BUNTING_STRING(BUNTING_ISA),
    .pack = pack,
    .gemm = gemm,
    .peak = peak,
    .read = read,
    .quantise = quantise,
    .dequantise = dequantise,
    .embed = embed,
    .norm = norm,
    .add_normed = add_normed,
    .scale_and_cap = scale_and_cap,
    .rope_append = rope_append,
    .latent_append = latent_append,
    .gate = gate,
    .activate = activate,
    .attention = attention,
    .gate_output = gate_output,
    .state_conv = state_conv,
    .state_gates = state_gates,
    .state_scan = state_scan,
    .state_output = state_output,
    .sample = sample,
};

}  // namespace bunting::BUNTING_ISA
