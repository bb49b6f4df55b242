#include "io/zip.h"

#include "io/outside.h"

#include <kiln/io.h>

namespace kiln {
namespace {

using namespace testing;

/// np.savez_compressed(f, a=np.arange(6, dtype='<f4').reshape(2, 3), b=np.array([True, False, True])), NumPy
/// 2.4
const std::string kCompressed = from_hex(
    "504b03042d0000000800000021004fe9002affffffffffffffff05001400612e6e70790100100098000000000000005500000000"
    "0000"
    "009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a1767"
    "2416"
    "a402f91a463a0ac69a3a0ab50a64032e063068b007120e4004c40d40bcc00100504b03042d00000008000000210016938cbbffff"
    "ffff"
    "ffffffff05001400622e6e707901001000830000000000000047000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46e"
    "a5a0"
    "5e9364a8aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91ac63a9a3a0ab50a14002e46064600504b"
    "0102"
    "2d032d0000000800000021004fe9002a5500000098000000050000000000000000000000800100000000612e6e7079504b01022d"
    "032d"
    "00000008000000210016938cbb470000008300000005000000000000000000000080018c000000622e6e7079504b050600000000"
    "0200"
    "0200660000000a0100000000");
/// np.savez(f, a=np.arange(3, dtype='>i2'))
const std::string kStored = from_hex(
    "504b03042d000000000000002100cd6d6a83ffffffffffffffff05001400612e6e70790100100086000000000000008600000000"
    "0000"
    "00934e554d5059010076007b276465736372273a20273e6932272c2027666f727472616e5f6f72646572273a2046616c73652c20"
    "2773"
    "68617065273a2028332c292c207d2020202020202020202020202020202020202020202020202020202020202020202020202020"
    "2020"
    "20202020202020202020202020202020202020200a000000010002504b01022d032d000000000000002100cd6d6a838600000086"
    "0000"
    "00050000000000000000000000800100000000612e6e7079504b0506000000000100010033000000bd0000000000");

void refused(const std::string& file, const std::string& why) {
  expect_refused([&] { load_npz(bytes_of(file)); }, "[load_npz] (memory): " + why);
}

/// The central directory's record of a member begins with this.
std::size_t record(const std::string& file, int n = 0) {
  std::size_t at = file.find("PK\1\2");
  while (n-- > 0) at = file.find("PK\1\2", at + 1);
  return at;
}

TEST(Npz, ReadsWhatNumPyWrites) {
  const TensorMap packed = load_npz(bytes_of(kCompressed));
  ASSERT_EQ(packed.size(), 2u);
  expect_equal<float>(packed.at("a"), {2, 3}, {0, 1, 2, 3, 4, 5});
  expect_equal<bool>(packed.at("b"), {true, false, true});
  expect_equal<std::int16_t>(load_npz(bytes_of(kStored)).at("a"), {0, 1, 2});
}

TEST(Npz, EveryDtypeComesBackStoredAndDeflated) {
  const TemporaryDirectory directory;
  TensorMap all = one_of_each();
  all.emplace("empty", zeros({0, 3}));
  all.emplace("sub/with space and ümlaut", counting({3}) * 2);
  for (bool compressed : {false, true}) {
    save_npz(directory / "all.npz", all, compressed);
    const TensorMap back = load_npz(directory / "all.npz");
    ASSERT_EQ(back.size(), all.size());
    for (const auto& [name, x] : all) expect_same_bits(back.at(name), x);
  }
  save_npz(directory / "none.npz", {});
  EXPECT_TRUE(load_npz(directory / "none.npz").empty());
}

TEST(Npz, DeflatingShrinksAndEqualContentsGiveEqualFiles) {
  const TemporaryDirectory directory;
  save_npz(directory / "a", {{"x", zeros({100000})}}, true);
  save_npz(directory / "b", {{"x", zeros({100000})}}, true);
  EXPECT_LT(slurp(directory / "a").size(), 5000u);
  EXPECT_EQ(slurp(directory / "a"), slurp(directory / "b"));
  expect_equal<float>(load_npz(directory / "a").at("x"), std::vector<float>(100000));
}

TEST(NpzFaults, F47_DamagedArchives) {
  EXPECT_THROW(load_npz(bytes_of("")), UserError);
  EXPECT_THROW(load_npz(bytes_of("hello")), UserError);
  for (std::size_t n = 0; n < kCompressed.size(); n += 7)
    EXPECT_THROW(load_npz(bytes_of(kCompressed.substr(0, n))), UserError) << n;
  std::string file = kStored;
  file[file.find("\x0a" + std::string("\0\0\0\1", 4)) + 2] ^= 1;  // an element: the checksum tells
  EXPECT_THROW(load_npz(bytes_of(file)), UserError);
}

TEST(NpzFaults, F47_MembersThatCannotBe) {
  std::string file = kStored;
  const std::size_t at = record(file);
  std::string bad = file;
  bad[at + 8] = 1;  // flags: encrypted, in both headers
  bad[6] = 1;
  refused(bad, "member 'a.npy' is encrypted");
  bad = file;
  bad[at + 10] = bad[8] = 12;
  refused(bad, "member 'a.npy' is packed by method 12; only stored and deflated are read");
  bad = kCompressed;  // 0x98 bytes become 0x70000098, in both headers
  bad[record(bad) + 27] = bad[42] = 0x70;
  refused(bad, "member 'a.npy' claims 1879048344 bytes, more than the archive can hold");
  bad = file;
  for (std::size_t i = bad.find("a.npy"); i != bad.npos; i = bad.find("a.npy", i + 1))
    bad.replace(i, 5, "a.pkl");
  refused(bad, "member 'a.pkl' is not a .npy file");
  bad = kCompressed;
  for (std::size_t i = bad.find("b.npy"); i != bad.npos; i = bad.find("b.npy", i + 1))
    bad.replace(i, 5, "a.npy");
  EXPECT_THROW(load_npz(bytes_of(bad)), UserError);
  bad = file;  // what is inside is checked as a .npy file
  bad[bad.find("i2'")] = 'x';
  EXPECT_THROW(load_npz(bytes_of(bad)), UserError);
}

TEST(NpzFaults, F47_MembersOnTopOfEachOther) {
  // Both records lead to the first member's bytes.
  std::string bad = kCompressed;
  const std::size_t second = record(bad, 1);
  bad.replace(second + 16, 12, bad.substr(record(bad) + 16, 12));
  bad.replace(second + 42, 4, number(0, 4));
  EXPECT_THROW(load_npz(bytes_of(bad)), UserError);
}

TEST(NpzFaults, Saving) {
  const TemporaryDirectory directory;
  expect_user_error([&] { save_npz(directory / "x", {{"a", Tensor()}}); },
                    "[save_npz] 'a' is an empty Tensor");
  EXPECT_THROW(save_npz(directory / "none/x", {{"a", Tensor(1)}}), UserError);
  EXPECT_THROW(save_npz(directory / "x", {{std::string("a\0b", 3), Tensor(1)}}), UserError);
  EXPECT_FALSE(std::filesystem::exists(directory / "x"));
}

}  // namespace
}  // namespace kiln
