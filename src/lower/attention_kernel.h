// lower_attention: a kernel with the main loop attention_mma or attention_wgmma for an attention on a GPU,
// whose hooks are made of the attention's terms.
#pragma once

#include "lower/lower.h"
#include "plan/attention.h"

namespace kiln::lower {

/// Pre: plan::refuse_on_gpu says nothing. The flags, if there are some, are the first buffer with
/// Kind::Partial.
Lowered lower_attention(const plan::Graph& graph, const plan::Attention& attention,
                        const schedule::Target& target);

}  // namespace kiln::lower
