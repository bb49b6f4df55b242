// The tables of kiln/fusion.def: names and texts of reasons, hints, patterns and kinds of regions.
#include "support/check.h"
#include "support/why.h"

#include <kiln/fusion_report.h>

namespace kiln {
namespace {

struct Word {
  std::string_view name, text;
};
struct ReasonWords {
  std::string_view name, text, explanation;
  FusionPattern pattern;
  FusionHint hint;
};

constexpr Word kHints[] = {
#define KILN_HINT(Name, text) {#Name, text},
#include <kiln/fusion.def>
#undef KILN_HINT
};
constexpr Word kPatterns[] = {
#define KILN_PATTERN(Name, text) {#Name, text},
#include <kiln/fusion.def>
#undef KILN_PATTERN
};
constexpr ReasonWords kReasons[] = {
#define KILN_REASON(Name, Pattern, Hint, text, explanation) \
  {#Name, text, explanation, FusionPattern::Pattern, FusionHint::Hint},
#include <kiln/fusion.def>
#undef KILN_REASON
};
constexpr Word kKinds[] = {
#define KILN_REGION_KIND(Name, text) {#Name, text},
#include <kiln/fusion.def>
#undef KILN_REGION_KIND
};
constexpr Word kVariants[] = {
#define KILN_VARIANT(Name, Way, text) {#Name, text},
#include <kiln/fusion.def>
#undef KILN_VARIANT
};
constexpr Word kStored[] = {
#define KILN_STORED(Name, text) {#Name, text},
#include <kiln/fusion.def>
#undef KILN_STORED
};

constexpr std::string_view kArgument = "…";

/// Each reason has a place for as many arguments as its text has "…".
constexpr std::size_t places(std::string_view text) {
  std::size_t n = 0;
  for (std::size_t at = text.find(kArgument); at != text.npos; at = text.find(kArgument, at + 1)) ++n;
  return n;
}

template <class Table, class E>
const auto& at(const Table& table, E value) {
  return table[static_cast<std::size_t>(value)];
}

}  // namespace

std::string_view name(FusionHint h) { return at(kHints, h).name; }
std::string_view name(FusionPattern p) { return at(kPatterns, p).name; }
std::string_view name(FusionReason r) { return at(kReasons, r).name; }
std::string_view name(RegionKind k) { return at(kKinds, k).name; }
std::string_view name(FusionVariant v) { return at(kVariants, v).name; }
std::string_view name(StoredBecause w) { return at(kStored, w).name; }
std::string_view text_of(FusionHint h) { return at(kHints, h).text; }
std::string_view text_of(FusionPattern p) { return at(kPatterns, p).text; }
std::string_view text_of(FusionReason r) { return at(kReasons, r).text; }
std::string_view text_of(RegionKind k) { return at(kKinds, k).text; }
std::string_view text_of(FusionVariant v) { return at(kVariants, v).text; }
std::string_view text_of(StoredBecause w) { return at(kStored, w).text; }
std::string_view explanation_of(FusionReason r) { return at(kReasons, r).explanation; }
FusionHint hint_of(FusionReason r) { return at(kReasons, r).hint; }
FusionPattern pattern_of(FusionReason r) { return at(kReasons, r).pattern; }

std::string text_of(FusionReason reason, const std::vector<std::string>& arguments) {
  std::string_view rest = text_of(reason);
  KILN_CHECK_THAT(arguments.size() == places(rest), name(reason), " has ", arguments.size(), " arguments");
  std::string out;
  for (const std::string& argument : arguments) {
    const std::size_t place = rest.find(kArgument);
    out.append(rest.substr(0, place)).append(argument);
    rest.remove_prefix(place + kArgument.size());
  }
  return out.append(rest);
}

std::string Why::text() const { return state_ == State::Known ? text_of(reason_, arguments_) : ""; }

}  // namespace kiln
