// Spelling help for error messages.
#pragma once

#include <span>
#include <string_view>

namespace kiln {

/// Insertions, deletions, substitutions and swaps of neighbours that turn one word into the other; case is
/// free.
int edit_distance(std::string_view a, std::string_view b);
/// The candidate with the least distance, the first among equals. `candidates` is not empty.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace kiln
