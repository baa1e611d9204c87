// codebook_types.h - stored types whose bits are rows of codebooks (codebooks.h): IQ1, IQ2 and IQ3. They
// become f32 and then the matrix's format.
#pragma once

#include "model/stored_type.h"

namespace bunting {

// Returns the type with this number; null if it is not a codebook type.
StoredType const* codebook_type(int32_t type);

}  // namespace bunting
