// Main loops where a CPU would do without.
#pragma once

#include "plan/attention.h"

namespace kiln::test {

/// For the life of a scope attentions of few rows are main loops, too.
class MainLoopsForFewRows {
 public:
  MainLoopsForFewRows() = default;
  ~MainLoopsForFewRows() { plan::few_attention_rows = before_; }
  MainLoopsForFewRows(const MainLoopsForFewRows&) = delete;
  MainLoopsForFewRows& operator=(const MainLoopsForFewRows&) = delete;

 private:
  std::int64_t before_ = plan::few_attention_rows.exchange(0);
};

}  // namespace kiln::test
