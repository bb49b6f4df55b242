#include "allocated_bytes.h"

#include "kernel/expr.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <new>
#include <thread>

namespace kiln::testing {
namespace {

struct alignas(256) Wide {
  char bytes[256];
};

TEST(AllocatedBytes, AreThoseOfEveryFormOfNew) {
  KILN_NEEDS_COUNTED_ALLOCATIONS();
  const auto expect = [](std::uint64_t bytes, auto&& f) {
    const Allocated a = allocated_in(f);
    EXPECT_EQ(a.calls, 1u);
    EXPECT_EQ(a.bytes, bytes);
  };
  expect(8, [] { delete static_cast<std::int64_t*>(::operator new(8)); });
  expect(80, [] { std::make_unique<char[]>(80); });
  expect(256, [] {
    const auto p = std::make_unique<Wide>();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p.get()) % 256, 0u);
  });
  expect(1024, [] { std::make_unique<Wide[]>(4); });
  expect(100, [] { ::operator delete(::operator new(100, std::nothrow)); });
  expect(0, [] { ::operator delete(::operator new(0)); });
}

TEST(AllocatedBytes, OfTheLibraryAreCountedAndThoseOfOtherThreadsAreNot) {
  KILN_NEEDS_COUNTED_ALLOCATIONS();
  kernel::ExprPool pool;
  const auto fill = [&] {
    for (int i = 0; i < 1000; ++i) (void)constant(pool, DType::Int64, i);
  };
  const Allocated elsewhere = allocated_in([&] { std::thread([&] { (void)allocated_in(fill); }).join(); });
  EXPECT_LT(elsewhere.bytes, 1000u);  // the thread's own
  pool = {};
  EXPECT_GE(allocated_in(fill).bytes, 1000 * sizeof(kernel::ExprNode));
}

TEST(AllocatedBytes, WhatDoesNotFitIsAnExceptionOrNull) {
  KILN_NEEDS_COUNTED_ALLOCATIONS();
  volatile std::size_t most = SIZE_MAX / 2;
  EXPECT_THROW((void)::operator new(most), std::bad_alloc);
  EXPECT_THROW((void)::operator new(2 * most - 8, std::align_val_t{64}), std::bad_alloc);
  EXPECT_EQ(::operator new(most, std::nothrow), nullptr);
}

}  // namespace
}  // namespace kiln::testing
