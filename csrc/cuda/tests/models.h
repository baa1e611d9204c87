// models.h - small models that GPU engines can compute.
#pragma once

#include <vector>

#include "model/model.h"
#include "tests/tiny_model.h"

namespace bunting::test {

bunting_model_shape shape_for_gpu();
// Returns models with recurrent layers of every kind.
std::vector<bunting_model_shape> recurrent_shapes();
// Returns models that together have every kind of layer, those too.
std::vector<bunting_model_shape> shapes_of_all_kinds();
// Loads all tensors and seals the model. `flags` of engine.h are added to the types of kinds of tensors.
using FlagsOf = int32_t (*)(int32_t kind);
void load(
    TinyFile const& file, Model& model, Model::Loading loading = Model::Loading::now,
    FlagsOf flags = [](int32_t) { return 0; });

}  // namespace bunting::test
