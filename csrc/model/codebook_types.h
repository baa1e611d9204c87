// codebook_types.h - stored types whose bits are rows of code books (codebooks.h): IQ1, IQ2 and IQ3. They
// become f32 and then what the matrix is kept in.
#pragma once

#include "model/stored_type.h"

namespace bunting {

// By its number; null if it is none of these.
StoredType const* codebook_type(int32_t type);

}  // namespace bunting
