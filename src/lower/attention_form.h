// The form of an attention's main loop on a GPU: which of the two main loops, the sizes of its tiles, what
// its arguments begin with, and which tiles it may leave out.
#pragma once

#include "device/launch.h"
#include "plan/attention.h"
#include "schedule/target.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kiln::lower {

/// Columns of a part of v that has a flag: whether it has a value that is not finite.
inline constexpr std::int64_t kAttentionColumns = 64;

/// Columns up to which a block of rows has so few tiles on Hopper that its begin and its end count: two
/// blocks of one warpgroup each share a multiprocessor.
inline constexpr std::int64_t kFewPairColumns = 512;

/// Constants of the main loop's Config, see kernels_templates/attention.cuh, and what a block needs.
struct AttentionForm {
  bool hopper = false;  // attention_wgmma, else attention_mma
  std::int64_t rows, columns, warps, fragments, piece;
  std::int64_t threads, shared;  // shared: bytes
  // on Hopper: blocks that stay on a multiprocessor; stages of k and of v in shared memory, and of q: with
  // two, the next block's rows and first tiles come while this one's last products run
  std::int64_t blocks = 1, stages = 0, q_stages = 0;
};

/// `aligned`: rows of q, k and v begin at multiples of 16 bytes.
AttentionForm attention_form(const plan::Attention& attention, int architecture, bool aligned);

/// What the arguments begin with: AttentionShape, on Hopper AttentionParts too.
/// `again`: of a second launch, see kernels_templates/pair_hopper.cuh.
std::vector<std::byte> attention_head(const plan::Attention& attention, const AttentionForm& form,
                                      bool again = false);

/// How the copy engine sees q, k or v (0, 1, 2). Pre: form.hopper. The buffer is left open.
device::TiledBuffer attention_tiles(const plan::Attention& attention, const AttentionForm& form, int which);

/// The mask whose other choice makes t a number, the same everywhere, so that tiles where it never chooses
/// the scores may be left out; or kNoTerm.
plan::TermId leaving_mask(const plan::Attention& attention);

/// Whether there is one. Then the kernel reads flags, those of tiles adjacent: of each matrix of v (the last
/// of v.parts is the outermost); where it finds them itself, of each matrix of the batch.
bool reads_flags(const plan::Attention& attention);

/// Whether it finds them itself: of few rows it would still look for them when all else is done.
bool finds_flags(const plan::Attention& attention, const AttentionForm& form, const schedule::Target& target);

}  // namespace kiln::lower
