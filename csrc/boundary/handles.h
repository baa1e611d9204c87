// handles.h - the types behind the opaque handles of the C headers.
#pragma once

#include "model/adapter.h"
#include "model/model.h"

struct bunting_model : bunting::Model {
  using bunting::Model::Model;
};

struct bunting_adapter : bunting::Adapter {
  using bunting::Adapter::Adapter;
};
