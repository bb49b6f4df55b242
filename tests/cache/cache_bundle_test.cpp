// Bundles of the disk cache: what one cache exports another imports, and nothing of a damaged bundle.
#include "cache/cache_bundle.h"

#include "cache/temporary_directory.h"

#include <kiln/error.h>

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace kiln::engine {
namespace {

using testing::TemporaryDirectory;
using Mode = DiskCacheOptions::Mode;

std::string bundle_of(DiskCache& cache) {
  std::ostringstream out;
  export_bundle(cache, out);
  return out.str();
}

std::string error_of(DiskCache& cache, const std::string& bundle) {
  std::istringstream in(bundle);
  try {
    import_bundle(cache, in);
  } catch (const UserError& e) {
    return e.what();
  }
  return {};
}

TEST(CacheBundle, CarriesEntriesToAnotherCache) {
  const TemporaryDirectory tmp;
  DiskCache from({Mode::ReadWrite, tmp / "from"}), to({Mode::ReadWrite, tmp / "to"});
  const std::string big(3u << 20, 'x');
  from.put("a", "first");
  from.put("b", big);
  to.put("c", "third");
  std::istringstream in(bundle_of(from));
  EXPECT_EQ(import_bundle(to, in), 2u);
  EXPECT_EQ(to.stat().entries, 3u);
  const auto first = to.get("a"), second = to.get("b");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(std::string(first->begin(), first->end()), "first");
  EXPECT_EQ(std::string(second->begin(), second->end()), big);
}

TEST(CacheBundle, AnEmptyCacheIsABundleOfNothing) {
  const TemporaryDirectory tmp;
  DiskCache from({Mode::ReadWrite, tmp / "from"}), to({Mode::ReadWrite, tmp / "to"});
  std::istringstream in(bundle_of(from));
  EXPECT_EQ(import_bundle(to, in), 0u);
}

TEST(CacheBundle, NothingOfADamagedBundleIsImported) {
  const TemporaryDirectory tmp;
  DiskCache from({Mode::ReadWrite, tmp / "from"}), to({Mode::ReadWrite, tmp / "to"});
  from.put("a", "first");
  from.put("b", "second");
  const std::string whole = bundle_of(from);
  constexpr std::size_t kBegin = 20;  // behind the magic
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bundle = whole;
    bundle[i] = static_cast<char>(bundle[i] ^ 0x40);
    EXPECT_NE(error_of(to, bundle), "") << "byte " << i;
  }
  std::size_t cuts = 0;
  for (std::size_t n = 0; n < whole.size(); ++n) cuts += error_of(to, whole.substr(0, n)).empty();
  EXPECT_EQ(cuts, 2u) << "a bundle ends behind the magic or behind an entry";
  std::string long_entry = whole;
  long_entry[kBegin + 7] = '\x7f';
  EXPECT_EQ(error_of(to, long_entry), "[cache] the bundle is damaged at entry 1; nothing was imported");
  EXPECT_EQ(error_of(to, "PK\x03\x04"), "[cache] this is no bundle of kiln cache export");
  EXPECT_LE(to.stat().entries, 1u);  // of the cut behind the first entry, which is whole
}

}  // namespace
}  // namespace kiln::engine
