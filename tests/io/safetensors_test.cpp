#include "io/safetensors.h"
#include "needs_cpu.h"

#include "io/outside.h"

#include <kiln/io.h>
#include <kiln/report.h>

namespace kiln {
namespace {

using namespace testing;

std::string file_of(const std::string& header, const std::string& data = "") {
  return number(header.size(), 8) + header + data;
}
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"x\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

void refused(const std::string& file, const std::string& why) {
  expect_refused([&] { load_safetensors(bytes_of(file), nullptr); }, "[load_safetensors] (memory): " + why);
}

TEST(Safetensors, EveryDtypeComesBackToTheBit) {
  const TemporaryDirectory directory;
  TensorMap all = one_of_each();
  all.emplace("empty", zeros({0, 3}));
  all.emplace("scalar", Tensor(2.5));
  all.emplace("a \"quoted\" ümlaut\n", counting({2, 3}).T() + 1);
  save_safetensors(directory / "all", all, {{"format", "pt"}, {"note", ""}});
  const Safetensors back = load_safetensors(directory / "all");
  EXPECT_EQ(back.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"note", ""}}));
  ASSERT_EQ(back.tensors.size(), all.size());
  for (const auto& [name, x] : all) expect_same_bits(back.tensors.at(name), x);
  save_safetensors(directory / "none", {});
  EXPECT_TRUE(load_safetensors(directory / "none").tensors.empty());
}

TEST(Safetensors, ReadsWhatTheReferenceWrites) {
  // safetensors.numpy.save of version 0.8
  const std::string header =
      R"({"__metadata__":{"format":"np"},"e":{"dtype":"I64","shape":[0,2],"data_offsets":[0,0]},)"
      R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"mask":{"dtype":"BOOL","shape":[2],)"
      R"("data_offsets":[24,26]}}      )";
  const std::string file =
      file_of(header, std::string("\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@\1\0", 26));
  const Safetensors back = load_safetensors(bytes_of(file), nullptr);
  EXPECT_EQ(back.metadata.at("format"), "np");
  expect_equal<float>(back.tensors.at("w"), {2, 3}, {0, 1, 2, 3, 4, 5});
  expect_equal<bool>(back.tensors.at("mask"), {true, false});
  EXPECT_EQ(back.tensors.at("e").shape().str(), "(0, 2)");
}

TEST(Safetensors, TensorsBorrowTheMapping) {
  KILN_NEEDS_CPU();
  const TemporaryDirectory directory;
  const std::string path = directory / "big";
  save_safetensors(path, {{"w", ones({1 << 20})}, {"b", counting({3})}});
  const auto before = cpu::pool_statistics();
  const auto mapped = [&] { return slurp("/proc/self/maps").find(path) != std::string::npos; };
  Tensor row;
  {
    const Safetensors file = load_safetensors(path);
    EXPECT_EQ(cpu::pool_statistics().in_use, before.in_use);
    EXPECT_TRUE(mapped());
    EXPECT_EQ(sum(file.tensors.at("w")).item<float>(), 1 << 20);
    row = file.tensors.at("b");
  }
  EXPECT_TRUE(mapped());
  // Replacing the file leaves the mapping as it was.
  save_safetensors(path, {{"b", zeros({3})}});
  expect_equal<float>(row + 1, {1, 2, 3});
  row = Tensor();
  EXPECT_FALSE(mapped());
}

TEST(Safetensors, TheOwnerOfMemoryIsKept) {
  KILN_NEEDS_CPU();
  const auto owner = std::make_shared<const std::string>(file_of(one("\"U8\"", "[3]", "[0,3]"), "abc"));
  Tensor x = load_safetensors(bytes_of(*owner), owner).tensors.at("x");
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_EQ(static_cast<const void*>(x.data()), owner->data() + owner->size() - 3);
  x = Tensor();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(Safetensors, WhatCannotBeBorrowedIsCopied) {
  const std::string header = R"({"b":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},)"
                             R"("x":{"dtype":"I32","shape":[1],"data_offsets":[3,7]}})";
  alignas(8) char memory[512] = {};
  const std::string file =
      file_of(header + std::string(8 - header.size() % 8, ' '), std::string("\0\1\2\7\0\0\0", 7));
  ASSERT_LE(file.size(), sizeof memory);
  std::memcpy(memory, file.data(), file.size());
  const Safetensors back = load_safetensors(bytes_of({memory, file.size()}), nullptr);
  expect_equal<bool>(back.tensors.at("b"), {false, true, true});
  EXPECT_EQ(static_cast<const std::uint8_t*>(back.tensors.at("b").data())[2], 1);
  expect_equal<std::int32_t>(back.tensors.at("x"), {7});
}

TEST(SafetensorsFaults, F47_HeaderLengths) {
  refused("", "is too short for a safetensors file (0 bytes)");
  refused("1234567", "is too short for a safetensors file (7 bytes)");
  refused(number(std::uint64_t{1} << 63, 8) + "{}", "a header of 9223372036854775808 bytes, but 2 follow");
  refused(number(~std::uint64_t{0}, 8) + "{}", "a header of 18446744073709551615 bytes, but 2 follow");
  refused(number(3, 8) + "{}", "a header of 3 bytes, but 2 follow");
  refused(number(0, 8), "is not a safetensors file: no header in JSON");
  refused(file_of(" {}"), "is not a safetensors file: no header in JSON");
  refused(file_of("\x93NUMPY"), "is not a safetensors file: no header in JSON");
  const TemporaryDirectory directory;  // a sparse file of more than a header may be
  spill(directory / "x", number(100'000'001, 8));
  std::filesystem::resize_file(directory / "x", 100'000'100);
  expect_refused([&] { load_safetensors(directory / "x"); },
                 "[load_safetensors] " + (directory / "x") +
                     ": a header of 100000001 bytes; at most 100000000 are read");
}

TEST(SafetensorsFaults, F47_HeadersThatAreNone) {
  refused(file_of("{"), "the header is not JSON near its byte 2");
  refused(file_of("{}}"), "the header is not JSON near its byte 3");
  refused(file_of("{\"\xff\":1}"), "the header is not JSON near its byte 3");
  refused(file_of("{\"x\":1}"), "tensor 'x' has a number out of place");
  refused(file_of("{\"x\":{\"dtype\":\"U8\"}}"), "tensor 'x' has no shape");
  refused(file_of("{\"x\":{\"dtype\":{}}}"), "tensor 'x' has an object out of place");
  refused(file_of(one("\"U8\"", "[[]]", "[0,0]")), "tensor 'x' has an array out of place");
  refused(file_of(one("\"U8\"", "[-1]", "[0,0]")), "tensor 'x' has a negative number out of place");
  refused(file_of(one("\"U8\"", "[1.5]", "[0,0]")),
          "tensor 'x' has a fraction or a number beyond 64 bits out of place");
  refused(file_of(one("\"U8\"", "[0]", "[0]")), "tensor 'x' needs two offsets");
  refused(file_of(one("\"U8\"", "[0]", "[0,0,0]")), "tensor 'x' needs two offsets");
  refused(file_of("{\"x\":{\"size\":1}}"), "tensor 'x' has an unknown field 'size'");
  refused(file_of("{\"__metadata__\":{\"a\":1}}"), "metadata maps strings to strings, not to a number");
  refused(file_of("{\"__metadata__\":[]}"), "metadata maps strings to strings, not to an array");
  const std::string deep = "{\"x\":" + std::string(100000, '[');
  refused(file_of(deep), "tensor 'x' has an array out of place");
}

TEST(SafetensorsFaults, F47_RepeatedNames) {
  const std::string x = "\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  refused(file_of("{" + x + "," + x + "}"), "tensor 'x' twice");
  refused(file_of("{\"__metadata__\":{},\"__metadata__\":{}}"), "tensor '__metadata__' twice");
  refused(file_of("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}"), "metadata 'a' twice");
  refused(file_of("{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}"), "tensor 'x' has 'dtype' twice");
}

TEST(SafetensorsFaults, F47_UnknownDtypes) {
  for (const std::string dtype : {"F8_E8M0", "C64", "f32", "F16 ", ""})
    refused(file_of(one("\"" + dtype + "\"", "[1]", "[0,1]"), "."),
            "tensor 'x' has dtype " + dtype + ", which is none of Kiln's");
}

TEST(SafetensorsFaults, F47_OffsetsAndSizes) {
  refused(file_of(one("\"F32\"", "[2]", "[0,4]"), "...."),
          "tensor 'x' is float32 (2,) of 8 bytes, but its offsets span 4");
  refused(file_of(one("\"U8\"", "[4]", "[0,4]"), "..."), "tensor 'x' ends at byte 4 of 3 bytes of data");
  refused(file_of(one("\"U8\"", "[4]", "[18446744073709551608,18446744073709551612]"), "..."),
          "tensor 'x' ends at byte 18446744073709551612 of 3 bytes of data");
  refused(file_of(one("\"U8\"", "[1]", "[2,1]"), "..."), "tensor 'x' ends at 1, before its beginning at 2");
  refused(file_of(one("\"U8\"", "[1]", "[1,2]"), ".."),
          "tensor 'x' begins at byte 1, but the one before ends at 0");
  refused(file_of(one("\"U8\"", "[1]", "[0,1]"), "..."), "2 bytes after the last tensor");
  refused(file_of(one("\"U8\"", "[9223372036854775808]", "[0,1]"), "."),
          "tensor 'x' has an extent beyond 2^63 - 1");
  refused(file_of(one("\"I64\"", "[4294967296,4294967296]", "[0,0]")),
          "int64 (4294967296, 4294967296) has more than 2^63 - 1 bytes");
  refused(file_of(one("\"U8\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), "."),
          "tensor 'x' has more than 16 dimensions");
  const std::string two = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                          R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})";
  refused(file_of(two, "......"), "tensor 'b' begins at byte 2, but the one before ends at 4");
}

TEST(SafetensorsFaults, Saving) {
  const TemporaryDirectory directory;
  expect_user_error([&] { save_safetensors(directory / "x", {{"__metadata__", Tensor(1)}}); },
                    "[save_safetensors] " + (directory / "x") + ": no tensor can be named __metadata__");
  expect_user_error([&] { save_safetensors(directory / "x", {{"\xff", Tensor(1)}}); },
                    "[save_safetensors] " + (directory / "x") + ": a name or metadata is not UTF-8");
  expect_user_error([&] { save_safetensors(directory / "x", {{"a", Tensor()}}); },
                    "[save_safetensors] 'a' is an empty Tensor");
  EXPECT_FALSE(std::filesystem::exists(directory / "x"));
}

}  // namespace
}  // namespace kiln
