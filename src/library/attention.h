// AttentionCall: an attention with its memory, and the kernels that Kiln generated for its tiles.
//
// Between the two products of an attention lies a program of the user's, which generated kernels compute on
// one tile of scores at a time; the products themselves are the library's. `step` turns a tile of scores into
// weights and carries the maxima and sums of its rows along; `finish` makes the results of the rows.
#pragma once

#include "device/launch.h"
#include "plan/attention.h"

#include <kiln/device.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kiln::library {

/// What a buffer or a slot of a tile's kernel is. Tiles are transposed: row c of a tile holds the elements of
/// column c for each of its rows, `tile_rows` apart.
struct TileBuffer {
  enum class Role : std::uint8_t {
    Scores,     // the tile; of sums over pairs the tile of product `index`
    Weights,    // the same shape; of sums over pairs weight `index`
    MaxBefore,  // of each row, before and with this tile
    MaxAfter,
    SumBefore,  // number `index`
    SumAfter,
    Scale,      // what earlier sums are multiplied by
    Memory,     // AttentionCall::memory[index]
    Turned,     // the same of a tile of a CPU, laid out like the scores
    Products,   // finish: sums of weights times v, element (width, row)
    Result,     // finish: the rows of the second product
    RowResult,  // finish: AttentionCall::row_results[index]
    Statistic,  // of sums over pairs, complete: number `index`
    Partial,    // what a tile adds to it
    Local       // memory of the kernel's own, `index` bytes into the unit's
  } role = Role::Local;
  std::int64_t index = 0;
};
struct TileSlot {
  enum class Kind : std::uint8_t { Plan, Row, Column, Batch } kind = Kind::Plan;
  std::uint32_t slot = 0;                // Plan: of the plan
  std::int64_t divisor = 1, extent = 1;  // Batch
};
struct TileKernel {
  device::Launch launch;
  std::vector<TileBuffer> buffers;  // parallel to the kernel's
  std::vector<TileSlot> slots;
};

struct AttentionMatrix {
  std::byte* data = nullptr;
  const plan::MatrixMemory* layout = nullptr;
};

struct AttentionCall {
  const plan::Attention* what = nullptr;
  std::int64_t tile_rows = 0, tile_columns = 0;
  /// By whether it is the last block of rows, which has fewer; the last tile of columns; a tile where every
  /// mask chooses the scores. Several kernels run in order.
  std::span<const TileKernel> step[2][2][2], finish[2];
  std::int64_t local_bytes = 0;
  AttentionMatrix q, k, v;
  std::vector<AttentionMatrix> memory, row_results;
  std::byte* result = nullptr;  // row-major
  DType result_type = DType::Float32;
  const std::vector<DType>* slot_types = nullptr;
  std::span<const std::uint64_t> slots;  // of the plan
};

/// How a device does attentions.
class AttentionRoutine {
 public:
  virtual ~AttentionRoutine() = default;
  /// Extents of a tile for an attention, which its kernels are made for.
  virtual std::pair<std::int64_t, std::int64_t> tile_of(const plan::Attention& what) const = 0;
  virtual std::size_t workspace_bytes(const AttentionCall& call) const = 0;
  virtual void run(const AttentionCall& call, std::byte* workspace) const = 0;
};

/// Pre: the device's target has attentions.
const AttentionRoutine& attention(Device device);

}  // namespace kiln::library
