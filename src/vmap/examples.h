// Examples: a function is recorded for one example and then computed for all. While one lives, until all_of,
// what its thread records is not computed: an example has no value.
#pragma once

#include "record/recorded.h"
#include "vmap/replay.h"

#include <optional>

namespace kiln::mapped {

class Examples {
 public:
  explicit Examples(std::int64_t count) : replay_(std::make_shared<Replay>(count)) { begin(); }
  /// Of the same examples as another replay's.
  explicit Examples(std::shared_ptr<const Replay> base)
      : replay_(std::make_shared<Replay>(base->count(), base)) {
    begin();
  }
  Examples(const Examples&) = delete;

  /// A stand-in for one example of x, whose first axis counts them. Reading it is a UserError.
  Tensor one_of(const Tensor& x);
  /// The function's results for all examples, along a first axis. Empty handles stay empty. Ends the
  /// recording.
  std::vector<Tensor> all_of(std::span<const Tensor> results);

 private:
  void begin() {
    recording_.emplace();
    unnoted_.emplace();
  }

  std::shared_ptr<Replay> replay_;
  std::optional<api::Recording> recording_;
  std::optional<ir::UnnotedRecording> unnoted_;
};

}  // namespace kiln::mapped
