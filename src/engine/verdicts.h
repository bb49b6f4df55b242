// Verdicts: what adaptive mode measured of each unit (plan/variants.h), in memory and in the disk cache.
//
// A verdict belongs to the structure of a region with its exact extents, to the device's model and driver,
// and to the build. It holds every time that was measured. A process that cannot use the disk cache has its
// verdicts in memory alone. An entry that cannot be read whole is no verdict; verdicts decide which kernels
// run, never what they compute.
#pragma once

#include "support/hash128.h"
#include "support/paired.h"

#include <kiln/adapt.h>
#include <kiln/device.h>

#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::engine {

/// One comparison that ended.
struct TriedVariant {
  FusionVariant variant{};             // that was tried
  std::vector<FusionVariant> against;  // what was in force: the variants of the schedule, to which a schedule
                                       // adds one, or the way that another replaces
  bool won = false;
  Interval gain{};                   // time before / time with the variant; zeros: nothing differed
  std::vector<double> before, with;  // every time, in seconds
};

struct UnitVerdict {
  RegionKind kind{};
  std::vector<TriedVariant> tried;  // in the order in which they ended

  /// Whether a variant needs no (other) comparison with what is in force: it had one, or lost clearly to what
  /// was in force before.
  bool knows(FusionVariant variant) const;
  /// What is in force for such a variant: the way (none: Default), or the variants of the schedule.
  std::vector<FusionVariant> in_force(FusionVariant variant) const;
  /// The variant in force of those that cut or join regions; Default: none won.
  FusionVariant way() const;
  /// The variants in force of schedules, in the order in which they won.
  std::vector<FusionVariant> schedule() const;
  /// The product of what the variants of the schedule gained, as measured; 0 without one.
  double gain() const;
};

/// Whether a variant cuts or joins regions; the others are schedules.
bool is_way(FusionVariant variant);

/// What is known of a unit.
UnitVerdict verdict_of(const Hash128& unit, Device device);
/// Keeps a comparison, in memory and on disk. One of a variant that is known already changes nothing.
void note_tried(const Hash128& unit, Device device, RegionKind kind, TriedVariant tried);
/// Drops verdicts from memory.
void clear_verdicts();
std::mutex& verdicts_mutex();  // for fork

/// The bytes of an entry of the disk cache, and back; nothing for bytes that are no verdict of this version.
std::string encode_verdict(const UnitVerdict& verdict);
std::optional<UnitVerdict> decode_verdict(std::string_view bytes);

}  // namespace kiln::engine
