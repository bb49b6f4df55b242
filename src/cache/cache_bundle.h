// A bundle: the entries of a disk cache in one file, for another machine of the same kind. A line of magic,
// then for each entry its size in 8 bytes and its bytes, as cache_entry.h has them with their checksums. An
// entry is code that will run: whoever imports a bundle trusts whoever made it.
#pragma once

#include "cache/disk_cache.h"

#include <cstddef>
#include <iosfwd>

namespace kiln::engine {

/// Writes all valid entries; returns how many. UserError when the stream fails.
std::size_t export_bundle(DiskCache& cache, std::ostream& out);
/// Puts every entry into the cache; returns how many. UserError, before anything is put, when the bundle is
/// damaged, cut, or none. Pre: the cache is usable and writable.
std::size_t import_bundle(DiskCache& cache, std::istream& in);

}  // namespace kiln::engine
