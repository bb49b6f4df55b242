// Choices: what a library decides by a model and adaptive mode may decide otherwise. A decision names its
// outcomes by variants (kiln/fusion.def); whoever asks a library what could be tried walks through the same
// decisions and collects the outcomes that the model does not take.
#pragma once

#include <kiln/fusion_report.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace kiln::library {

/// Variants as a set.
class Variants {
 public:
  bool has(FusionVariant v) const { return (bits_ >> static_cast<unsigned>(v) & 1) != 0; }
  void add(FusionVariant v) { bits_ |= std::uint64_t{1} << static_cast<unsigned>(v); }
  std::uint64_t bits() const { return bits_; }
  std::vector<FusionVariant> list() const {
    std::vector<FusionVariant> out;
    for (unsigned v = 0; v < 64; ++v)
      if (has(static_cast<FusionVariant>(v))) out.push_back(static_cast<FusionVariant>(v));
    return out;
  }

 private:
  std::uint64_t bits_ = 0;
};

class Choices {
 public:
  Choices() = default;
  explicit Choices(Variants taken) : taken_(taken) {}

  struct Outcome {
    FusionVariant variant;
    bool possible = true;
  };
  /// The number of an outcome: the one that was taken, else the model's.
  std::size_t pick(std::size_t model, std::initializer_list<Outcome> outcomes) const {
    std::size_t number = 0;
    for (const Outcome& o : outcomes) {
      if (o.possible && taken_.has(o.variant)) return number;
      ++number;
    }
    number = 0;
    for (const Outcome& o : outcomes)
      if (number++ != model && o.possible) offer(o.variant);
    return model;
  }
  /// The same of a decision with two outcomes. Pre: both are possible.
  bool decide(bool model, FusionVariant yes, FusionVariant no) const {
    return pick(model ? 0 : 1, {{yes}, {no}}) == 0;
  }
  bool has(FusionVariant v) const { return taken_.has(v); }
  void take(FusionVariant v) { taken_.add(v); }

  /// Those that could be taken besides, collected in `to` from here on.
  void collect(Variants* to) { offered_ = to; }

 private:
  void offer(FusionVariant v) const {
    if (offered_) offered_->add(v);
  }

  Variants taken_;
  Variants* offered_ = nullptr;  // null, where the work is done: threads share a call
};

}  // namespace kiln::library
