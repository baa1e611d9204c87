// state.h - plain loops for recurrent mixers, in double.
#pragma once

#include <vector>

#include "cpu/kernels/kernels.h"

namespace bunting::reference {

// State of one layer after some tokens: conv's last inputs [K-1, channels], and S [Gv, Dk, Dv].
struct State {
  std::vector<double> inputs, matrices;
};

// Computes the outputs [T, Gv*Dv] of m before its norm and gate, from the projections `m.in` and `g.in` of
// `tokens` tokens, whose state is `state` and becomes the one after them. m.conv is [K, channels]. A short
// convolution's outputs are [T, channels].
std::vector<double> state_mixer(StateMixer const& m, StateGates const& g, int64_t tokens, State& state);

// Computes o's rows of [T, width].
std::vector<double> state_output(StateOutput const& o, int64_t tokens);

}  // namespace bunting::reference
