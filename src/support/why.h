// Why: one of the reasons of kiln/fusion.def, with its arguments: what the planner answers where two
// operations do not share a kernel. Data; text() is for people.
#pragma once

#include <kiln/fusion_report.h>

#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln {

class Why {
 public:
  Why() = default;
  Why(FusionReason reason, std::vector<std::string> arguments = {})
      : state_(State::Known), reason_(reason), arguments_(std::move(arguments)) {}
  /// A reason that is put into words when all regions are there.
  static Why later() {
    Why why;
    why.state_ = State::Later;
    return why;
  }

  /// Nothing stands against it.
  bool empty() const { return state_ == State::None; }
  bool is_later() const { return state_ == State::Later; }
  /// Pre: neither empty nor later.
  FusionReason reason() const { return reason_; }
  const std::vector<std::string>& arguments() const { return arguments_; }
  std::string text() const;
  friend bool operator==(const Why&, const Why&) = default;

 private:
  enum class State : std::uint8_t { None, Later, Known } state_ = State::None;
  FusionReason reason_{};
  std::vector<std::string> arguments_;
};

/// A reason with what its text names.
template <class... A>
Why because(FusionReason reason, const A&... arguments) {
  std::vector<std::string> texts;
  const auto add = [&](const auto& argument) {
    std::ostringstream text;
    text << argument;
    texts.push_back(std::move(text).str());
  };
  (add(arguments), ...);
  return {reason, std::move(texts)};
}

}  // namespace kiln
