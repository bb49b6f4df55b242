// A regular expression over short names, matched in time that grows with pattern times text.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace kiln {

/// An extended regular expression of POSIX. std::regex tries one way after the other: (a+)+$ on a name of
/// thirty letters is as good as for ever. The C library's matcher follows all ways at once, but for
/// references to earlier groups, and copies what {n,m} repeats; so the one is refused and the other bounded.
class Pattern {
 public:
  /// An expression that is refused matches nothing, and error() says why in one line.
  explicit Pattern(std::string_view text);
  const std::string& error() const { return error_; }
  /// Whether some part of `text` matches.
  bool matches(const std::string& text) const;

 private:
  std::shared_ptr<const void> compiled_;
  std::string error_;
};

}  // namespace kiln
