// PairsLowering: a nest over pairs on a GPU, by a hand-written main loop. For RegionLowering alone, whose
// friend it is.
#pragma once

#include "lower/region_lowering.h"

#include <string>
#include <utility>

namespace kiln::lower {

class PairsLowering {
 public:
  explicit PairsLowering(RegionLowering& region) : r_(region) {}

  /// The values and the tile of a nest that the main loop does; nothing, where it does not.
  std::optional<NestOfPairs> find() const;
  /// Pre: find() found it. Makes the region's kernel.
  void build();

 private:
  using Size = RegionLowering::Size;
  using Body = RegionLowering::Body;
  using Coordinates = std::initializer_list<std::pair<int, Size>>;

  std::int64_t extent(int group) const { return r_.groups_[static_cast<std::size_t>(group)].extent; }
  const Entry& entry(EntryId id) const { return r_.p_.entries[id]; }
  DType computed_type(EntryId id) const, real(const NestOfPairs& nest) const;
  std::optional<unsigned> changes_along(EntryId id) const;
  bool find_sides(EntryId id, NestOfPairs& nest) const;
  bool find_groups(NestOfPairs& nest) const, find_reductions(NestOfPairs& nest) const;
  bool stores_pairs() const, lies_along(int group) const;
  int stored_as_one(const NestOfPairs& nest) const;
  void store_along(NestOfPairs& nest) const;
  bool choose_tile(NestOfPairs& nest) const;
  bool adjacent_along(EntryId id, int group) const;
  int run_of(int group, bool by_k) const;

  kernel::Hook begin(std::string name, Coordinates coordinates);
  E given_to(kernel::Hook& hook);
  kernel::Hook side_hook(const char* name, EntryId side, int group, bool by_k);
  kernel::Hook combined_hook(), value_hook(std::size_t which), partials_hook(), finish_hook();
  kernel::Hook store_hook();
  kernel::Template main_loop();
  void add_constants(kernel::Template& t, bool x_by_k, bool y_by_k) const;

  RegionLowering& r_;
};

}  // namespace kiln::lower
