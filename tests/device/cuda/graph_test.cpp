#include "device/cuda/graph.h"

#include "device/cuda/require.h"

#include <kiln/error.h>

#include <cstdlib>
#include <set>
#include <thread>

namespace kiln::cuda {
namespace {

class Graphs : public testing::Test {
 protected:
  void SetUp() override { KILN_REQUIRE_GPU(); }
};

TEST_F(Graphs, RunWhatWasRecordedEachTimeTheyAreLaunched) {
  const Stream stream = default_stream(0);
  const Function add = add_kernel();
  Block* block = allocate(4000, stream);
  fill(block->data, 0, 4, 1000, stream);
  const Graph graph = capture(0, [&](std::size_t) {
    run_add(add, block, 1, current_stream(0), 1000);
    run_add(add, block, 10, current_stream(0), 1000);
  });
  ASSERT_TRUE(graph);
  EXPECT_EQ(read_ints(block, 1000, stream), std::vector<int>(1000, 0)) << "recording runs nothing";
  for (int i = 0; i < 3; ++i) graph.launch(stream);
  EXPECT_EQ(read_ints(block, 1000, stream), std::vector<int>(1000, 33));
  release(block, stream);
}

TEST_F(Graphs, FollowTheirStreamsOrderOnAnyStream) {
  const Stream other = new_stream(0);
  const Function add = add_kernel();
  Block* block = allocate(40, other);
  const Graph graph = capture(0, [&](std::size_t) { run_add(add, block, 1, current_stream(0), 10); });
  fill(block->data, 0, 4, 10, other);
  spin(other, 20);
  graph.launch(other);
  run_add(add, block, 5, other, 10);
  EXPECT_EQ(read_ints(block, 10, other), std::vector<int>(10, 6));
  release(block, other);
}

TEST_F(Graphs, LeaveTheThreadsStreamAsItWas) {
  const Stream own = new_stream(0);
  set_current_stream(0, own);
  const Graph graph = capture(0, [&](std::size_t) { EXPECT_NE(current_stream(0), own); });
  EXPECT_EQ(current_stream(0), own);
  set_current_stream(0, nullptr);
}

TEST_F(Graphs, AFailureWhileRecordingGivesNoneAndTheNextIsRecorded) {
  EXPECT_FALSE(capture(0, [](std::size_t) { throw DeviceError("no"); }));
  EXPECT_FALSE(capture(0, [](std::size_t) { synchronize(current_stream(0)); })) << "a recording cannot wait";
  const Function add = add_kernel();
  Block* block = allocate(40, default_stream(0));
  EXPECT_TRUE(capture(0, [&](std::size_t) { run_add(add, block, 1, current_stream(0), 10); }));
  release(block, default_stream(0));
}

TEST_F(Graphs, ThreadsRecordSideBySide) {
  const Function add = add_kernel();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const Stream stream = default_stream(0);
      Block* block = allocate(4000, stream);
      fill(block->data, 0, 4, 1000, stream);
      const Graph graph = capture(0, [&](std::size_t) {
        for (int i = 0; i < 20; ++i) run_add(add, block, 1, current_stream(0), 1000);
      });
      ASSERT_TRUE(graph);
      graph.launch(stream);
      EXPECT_EQ(read_ints(block, 1000, stream), std::vector<int>(1000, 20));
      release(block, stream);
    });
  for (std::thread& t : threads) t.join();
}

TEST_F(Graphs, ThreadsThatFollowEachOtherRecordOnOneStream) {
  std::set<Stream> streams;
  for (int t = 0; t < 4; ++t)
    std::thread([&] { (void)capture(0, [&](std::size_t) { streams.insert(current_stream(0)); }); }).join();
  EXPECT_EQ(streams.size(), 1u);
}

TEST_F(Graphs, TakeOtherArgumentsForTheStepsThatAreGivenThem) {
  if (!graphs_change()) GTEST_SKIP() << "a driver whose graphs do not change";
  const Stream stream = default_stream(0);
  const Function add = add_kernel();
  Block* block = allocate(4000, stream);
  fill(block->data, 0, 4, 1000, stream);
  const auto enqueue = [&](std::size_t step) {
    run_add(add, block, step == 0 ? 1 : 10, current_stream(0), 1000);
  };
  Graph graph = capture(0, enqueue, 2);
  graph.launch(stream);
  spin(stream, 5);
  graph.launch(stream);  // what was launched before a change keeps its arguments
  int by = 100;
  std::int64_t n = 1000;
  void* params[] = {&block->data, &by, &n};
  const LaunchShape shape{.grid = {64, 1, 1}, .block = {256, 1, 1}};
  graph.set_arguments(1, add, shape, params);
  graph.launch(stream);
  EXPECT_EQ(read_ints(block, 1000, stream), std::vector<int>(1000, 2 * 11 + 101));
  Graph moved = std::move(graph);
  by = 1000;
  moved.set_arguments(0, add, shape, params);
  moved.launch(stream);
  EXPECT_EQ(read_ints(block, 1000, stream), std::vector<int>(1000, 2 * 11 + 101 + 1100));
  release(block, stream);
}

TEST_F(Graphs, MayGoWhileTheyRun) {
  const Stream stream = default_stream(0);
  const Function add = add_kernel();
  Block* block = allocate(40, stream);
  fill(block->data, 0, 4, 10, stream);
  spin(stream, 10);
  {
    const Graph graph = capture(0, [&](std::size_t) { run_add(add, block, 7, current_stream(0), 10); });
    graph.launch(stream);
  }
  EXPECT_EQ(read_ints(block, 10, stream), std::vector<int>(10, 7));
  release(block, stream);
}

}  // namespace
}  // namespace kiln::cuda
