#include "io/npy.h"

#include "io/outside.h"

#include <kiln/io.h>

#include <unistd.h>

namespace kiln {
namespace {

using namespace testing;

/// A file of version `version` with this dictionary and these elements.
std::string npy(const std::string& dictionary, const std::string& elements, int version = 1) {
  return "\x93NUMPY" + number(static_cast<std::uint64_t>(version), 2) +
         number(dictionary.size(), version == 1 ? 2 : 4) + dictionary + elements;
}
std::string header(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

void refused(const std::string& file, const std::string& why) {
  expect_refused([&] { load_npy(bytes_of(file)); }, "[load_npy] (memory): " + why);
}

TEST(Npy, EveryDtypeComesBackToTheBit) {
  const TemporaryDirectory directory;
  for (const auto& [name, x] : one_of_each()) {
    save_npy(directory / name, x);
    expect_same_bits(load_npy(directory / name), x);
  }
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{2, 0, 3}, Shape(std::vector<std::int64_t>(16, 1))}) {
    save_npy(directory / "x", ones(shape));
    expect_same_bits(load_npy(directory / "x"), ones(shape));
  }
}

TEST(Npy, SavesWhatIsNotComputedYetAndViews) {
  const TemporaryDirectory directory;
  const Tensor x = counting({2, 3});
  save_npy(directory / "x", (x + 1).T());
  expect_equal<float>(load_npy(directory / "x"), {3, 2}, {1, 4, 2, 5, 3, 6});
  expect_user_error([&] { save_npy(directory / "x", Tensor()); }, "[save_npy] 'x' is an empty Tensor");
}

TEST(Npy, WritesWhatNumPyWrites) {
  const TemporaryDirectory directory;
  save_npy(directory / "x", Tensor(3.5));
  const std::string text = "{'descr': '<f8', 'fortran_order': False, 'shape': (), }";
  EXPECT_EQ(slurp(directory / "x"),
            npy(text + std::string(117 - text.size(), ' ') + "\n", std::string("\0\0\0\0\0\0\x0c@", 8)));
  EXPECT_EQ(io::npy_header(DType::BFloat16, {4}).substr(10, 17), "{'descr': '<V2', ");
  EXPECT_EQ(io::npy_header(DType::Bool, {4}).substr(10, 17), "{'descr': '|b1', ");
  const Shape most(std::vector<std::int64_t>(16, 1));
  EXPECT_EQ(io::npy_header(DType::UInt64, most).size() % 64, 0u);
}

TEST(Npy, ReadsFortranOrderBigEndianAndAllVersions) {
  const std::string columns =
      npy(header(">i2", "(2, 3)", "True"), std::string("\0\0\0\3\0\1\0\4\0\2\0\5", 12));
  expect_equal<std::int16_t>(load_npy(bytes_of(columns)), {2, 3}, {0, 1, 2, 3, 4, 5});
  const std::string four = number(1, 4) + number(2, 4);
  for (int version : {1, 2, 3})
    expect_equal<std::uint32_t>(load_npy(bytes_of(npy(header("<u4", "(2,)"), four, version))), {1, 2});
  expect_equal<std::uint32_t>(load_npy(bytes_of(npy(header(">u4", "(2,)"), four))), {1u << 24, 2u << 24});
  const std::string eight = std::string("\x3f\xf8\0\0\0\0\0\0", 8);
  expect_equal<double>(load_npy(bytes_of(npy(header(">f8", "()"), eight))), Shape{}, {1.5});
  const std::string brains = std::string("\0\0\x80?\0@@@", 8);
  expect_equal<float>(load_npy(bytes_of(npy(header("<V2", "(4,)"), brains))).astype(DType::Float32),
                      {0, 1, 2, 3});
}

TEST(Npy, ReadsHeadersThatOthersWrite) {
  for (const char* text : {"{\"shape\":(2L,),\"fortran_order\":False,\"descr\":\"<u1\"}\n",
                           " { 'fortran_order' : True , 'shape' : ( 2 , ) , 'descr' : 'u1' } ",
                           "{'descr': '=u1', 'fortran_order': False, 'shape': (2,)}"})
    expect_equal<std::uint8_t>(load_npy(bytes_of(npy(text, "\1\2"))), {1, 2});
}

TEST(Npy, BoolsAreNormalised) {
  const Tensor x = load_npy(bytes_of(npy(header("|b1", "(4,)"), std::string("\0\1\2\xff", 4))));
  expect_equal<bool>(x, {false, true, true, true});
  EXPECT_EQ(sum(x.astype(DType::Int32)).item<int>(), 3);
}

TEST(NpyFaults, F47_WhatIsNoNpyFile) {
  refused("", "is too short for a .npy file (0 bytes)");
  refused("\x93NUMP", "is too short for a .npy file (5 bytes)");
  refused("PK\3\4............", "is not a .npy file");
  refused(npy("{}", "", 4), "version 4.0 of the .npy format is not known");
  refused("\x93NUMPY\1", "is too short for a .npy file (7 bytes)");
  refused(std::string("\x93NUMPY\1\0\1", 9), "ends inside its header");
  refused(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12), "a header of 4294967295 bytes, but 0 are left");
  refused(npy(std::string(70000, ' '), "", 2), "a header of 70000 bytes; at most 65536 are read");
}

TEST(NpyFaults, F47_MalformedHeaders) {
  const auto near = [](const std::string& text) {
    return "the header is not one of a .npy file near `" + text + "`";
  };
  refused(npy("", ""), near(""));
  refused(npy("{'descr': '<f4", ""), near("'<f4"));
  refused(npy("{'descr'}", ""), near("}"));
  refused(npy(header("<f4", "(3)"), ""), near("), }"));
  refused(npy(header("<f4", "(x,)"), ""), near("x,), }"));
  refused(npy(header("<f4", "(1,)", "0"), ""), near("0, 'shape': (1,), }"));
  refused(npy(header("<f4", "(1,)") + "x", "...."), near("x"));
  refused(npy("{'descr': '<f4', }", ""), "the header has no 'fortran_order'");
  refused(npy("{'descr': '<f4', 'descr': '<f4'}", ""), "the header has 'descr' twice");
  refused(npy("{'color': 3}", ""), "the header has an unknown key 'color'");
}

TEST(NpyFaults, F47_UnknownDtypes) {
  refused(npy(header("|O", "(1,)"), "...."), "holds Python objects (dtype '|O'); those are never loaded");
  for (const char* descr : {"<c8", "<f16", "<U3", "|S1", "<M8[ns]", "|V4", "<i3", "", "<"})
    refused(npy(header(descr, "(1,)"), "...."), std::string("dtype '") + descr + "' is none of Kiln's");
  refused(npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2,), }", "........"),
          "structured dtypes are not tensors");
}

TEST(NpyFaults, F47_SizesThatCannotBe) {
  refused(npy(header("<f4", "(3,)"), std::string(11, 0)), "float32 (3,) takes 12 bytes, but 11 are left");
  refused(npy(header("<f4", "(3,)"), std::string(13, 0)),
          "float32 (3,) takes 12 bytes, but 13 follow the header");
  refused(npy(header("<f4", "(1000000000000,)"), "...."),
          "float32 (1000000000000,) takes 4000000000000 bytes, but 4 are left");
  refused(npy(header("<f4", "(-1,)"), "...."), "the shape has a negative extent");
  refused(npy(header("<f4", "(9223372036854775808,)"), "...."),
          "an extent of the shape does not fit 63 bits");
  refused(npy(header("<f4", "(4294967296, 4294967296)"), "...."),
          "float32 (4294967296, 4294967296) has more than 2^63 - 1 bytes");
  refused(npy(header("<f4", "(0, 4294967296, 4294967296)"), ""),
          "float32 (0, 4294967296, 4294967296) has more than 2^63 - 1 bytes");
  refused(npy(header("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)"), "...."),
          "more than 16 dimensions");
}

TEST(NpyFaults, F47_FilesThatCannotBeOpened) {
  const TemporaryDirectory directory;
  const auto path_refused = [](const std::string& path, const std::string& why) {
    expect_refused([&] { load_npy(path); }, "[load_npy] " + path + ": " + why);
  };
  path_refused(directory / "missing", "No such file or directory");
  path_refused(directory.path(), "is a directory");
  path_refused("/dev/zero", "is not a regular file");
  spill(directory / "text", "hello, world\n");
  path_refused(directory / "text", "is not a .npy file");
  expect_user_error([&] { save_npy(directory / "none/x", Tensor(1)); },
                    "[save_npy] " + (directory / "none/x") + ": No such file or directory");
}

TEST(NpyFaults, SavingReplacesTheFileWholeOrNotAtAll) {
  const TemporaryDirectory directory;
  save_npy(directory / "x", Tensor({1, 2}));
  save_npy(directory / "x", Tensor({3}));
  expect_equal<std::int32_t>(load_npy(directory / "x"), {3});
  const auto files = std::distance(std::filesystem::directory_iterator(directory.path()), {});
  EXPECT_EQ(files, 1);  // no temporary is left
  if (access("/dev/full", W_OK) == 0) {
    // The rename's target is a directory: writing succeeds, committing does not, and nothing is left behind.
    std::filesystem::create_directory(directory / "taken");
    std::filesystem::create_directory(directory / "taken/inside");
    EXPECT_THROW(save_npy(directory / "taken", Tensor(1)), Error);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 2);
  }
}

}  // namespace
}  // namespace kiln
