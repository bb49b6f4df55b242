// lower_attention: a kernel with the main loop attention_mma for an attention on a GPU, whose hooks are made
// of the attention's terms.
#pragma once

#include "lower/lower.h"
#include "plan/attention.h"

namespace kiln::lower {

/// Columns of a tile of the main loop: each has a flag, see below.
inline constexpr std::int64_t kAttentionColumns = 64;

/// Whether tiles may be left out, for which the kernel reads flags: whether a tile of v has a value that is
/// not finite, tiles adjacent, for each matrix of v (the last of v.parts is the outermost).
bool reads_flags(const plan::Attention& attention);

/// Pre: plan::refuse_on_gpu says nothing. The flags, if there are some, are the first buffer with
/// Kind::Partial.
Lowered lower_attention(const plan::Graph& graph, const plan::Attention& attention,
                        const schedule::Target& target);

}  // namespace kiln::lower
