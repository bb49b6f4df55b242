#include "support/pattern.h"

#include "support/check.h"

#include <regex.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace kiln {
namespace {

constexpr std::size_t kMostLetters = 256;
constexpr std::uint64_t kMostCopies = 256;  // that all of {n,m} make of a letter

/// What the C library would take but not finish; empty: nothing.
std::string unbounded(std::string_view text) {
  if (text.size() > kMostLetters) return cat("at most ", kMostLetters, " letters");
  std::uint64_t copies = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {  // the letter behind it is itself
      if (++i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])))
        return "no references to groups";
      continue;
    }
    if (text[i] == '[') {  // a ] that comes first is a letter
      i = text.find(']', i + (text.substr(i + 1, 1) == "^" ? 3 : 2));
      if (i == text.npos) break;
    }
    if (text[i] != '{') continue;
    std::uint64_t most = 0;
    for (const char* at = text.data() + i + 1; at < text.data() + text.size() && *at != '}'; ++at) {
      std::uint64_t n = 0;
      const auto [end, error] = std::from_chars(at, text.data() + text.size(), n);
      if (error == std::errc()) most = std::max(most, n), at = end - 1;
    }
    copies *= std::clamp<std::uint64_t>(most, 1, kMostCopies + 1);
    if (copies > kMostCopies) return cat("at most ", kMostCopies, " repetitions by {}");
  }
  return {};
}

}  // namespace

Pattern::Pattern(std::string_view text) : error_(unbounded(text)) {
  if (!error_.empty()) return;
  auto* made = new regex_t;
  if (const int code = regcomp(made, std::string(text).c_str(), REG_EXTENDED | REG_NOSUB); code != 0) {
    char message[128] = {};
    regerror(code, made, message, sizeof message);
    error_ = message;
    delete made;
    return;
  }
  compiled_ = std::shared_ptr<const void>(made, [](const void* p) {
    auto* const regex = static_cast<regex_t*>(const_cast<void*>(p));
    regfree(regex);
    delete regex;
  });
}

bool Pattern::matches(const std::string& text) const {
  return compiled_ && regexec(static_cast<const regex_t*>(compiled_.get()), text.c_str(), 0, nullptr, 0) == 0;
}

}  // namespace kiln
