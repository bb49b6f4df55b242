// How the product templates of kernels_templates/ are launched: the sizes of their tiles, and the grid, block
// and shared memory that extents ask for. Mirrors the constants of product.cuh and of the product_*.cuh; a
// test compiles each tile class and compares. Must not choose between templates: planners do.
#pragma once

#include "device/launch.h"

#include <cstdint>
#include <span>

namespace kiln::codegen {

enum class ProductKind : std::uint8_t { Mma, Wgmma, Decode, Gather };

/// Which main loop: the kind, its tile class (0 to 2; of Decode to 4, of Mma with windows to 3) and how many
/// products stand side by side: 1, or 2 that share the operand of the m side. Of Decode's classes 0 is for a
/// B whose contiguous axis is k, 1 and 2 (narrower, one product only) for one whose contiguous axis is n, 3
/// for a B as of 0 that is made of bytes. `made_of`: of Decode's B, whose elements are made on their way,
/// bytes of what memory has of each (1, 2 or 4; not class 2); or 0. `share`: how many of its elements are
/// made of one in memory: 1, or 2 (classes 3 and 4, which is as 3 of 32 columns). `rows`, `warps`,
/// `warps_per_sm`: of Decode, 8 or 16 rows, warps of a block, and those of a multiprocessor, which share its
/// memory. `windows`: an operand is windows (Mma and Wgmma, one product). `gather`: of product_fma.cuh and
/// product_fragments.cuh, whose tiles are the planner's. `bytes`: of an element (Mma and Wgmma), 1, 2 or 4; a
/// stage has as many bytes of any.
struct ProductChoice {
  ProductKind kind = ProductKind::Mma;
  int tile = 0;
  int products = 1;
  int made_of = 0;
  int rows = 16, warps = 4, warps_per_sm = 8;
  bool windows = false;
  struct Gather {
    int m = 0, n = 0, each_m = 1, each_n = 1;  ///< of a block; of a thread of floats, of a warp of others
    int bytes = 4, width = 4;                  ///< of an element; columns of a call of the epilogue
    bool of_columns = false, together = false, flat = false;
    int depth = 8;  ///< steps of k of a stage
  } gather = {};
  int share = 1;
  int bytes = 2;
};

struct ProductTile {
  int m, n, k;  ///< of a block and a step; n counts the columns of all products
  int threads, shared, cluster;
  int box_a,
      box_b;  ///< rows of a tensor map's box where k is contiguous (Wgmma), 128 bytes wide; else 64 × 64
};
ProductTile tile_of(const ProductChoice& choice);

/// `struct Product` of product.cuh: extents, and strides in elements.
struct ProductExtents {
  std::int32_t m = 0, n = 0, k = 0, batch = 1;
  std::int64_t a_m = 0, a_k = 0, b_n = 0, b_k = 0;
};

/// `struct Part` of product.cuh: a further operand of the n side, with tiles of its own.
struct ProductPart {
  std::int64_t b_n = 0, b_k = 0;
  std::int32_t n = 0, unused = 0;
};

/// Pre: m, n and batch are positive, k is 0 or more. `sms`: multiprocessors of the device.
device::LaunchShape product_shape(const ProductChoice& choice, const ProductExtents& extents, int sms,
                                  std::span<const ProductPart> parts = {});

}  // namespace kiln::codegen
