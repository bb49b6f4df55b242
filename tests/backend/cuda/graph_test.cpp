#include "backend/cuda/graph.h"

#include "backend/cuda/require.h"

#include <kiln/error.h>

#include <cstdlib>
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
  const Graph graph = capture(0, [&] {
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
  const Graph graph = capture(0, [&] { run_add(add, block, 1, current_stream(0), 10); });
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
  const Graph graph = capture(0, [&] { EXPECT_NE(current_stream(0), own); });
  EXPECT_EQ(current_stream(0), own);
  set_current_stream(0, nullptr);
}

TEST_F(Graphs, AFailureWhileRecordingGivesNoneAndTheNextIsRecorded) {
  EXPECT_FALSE(capture(0, [] { throw DeviceError("no"); }));
  EXPECT_FALSE(capture(0, [] { synchronize(current_stream(0)); })) << "a recording cannot wait";
  const Function add = add_kernel();
  Block* block = allocate(40, default_stream(0));
  EXPECT_TRUE(capture(0, [&] { run_add(add, block, 1, current_stream(0), 10); }));
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
      const Graph graph = capture(0, [&] {
        for (int i = 0; i < 20; ++i) run_add(add, block, 1, current_stream(0), 1000);
      });
      ASSERT_TRUE(graph);
      graph.launch(stream);
      EXPECT_EQ(read_ints(block, 1000, stream), std::vector<int>(1000, 20));
      release(block, stream);
    });
  for (std::thread& t : threads) t.join();
}

TEST_F(Graphs, MayGoWhileTheyRun) {
  const Stream stream = default_stream(0);
  const Function add = add_kernel();
  Block* block = allocate(40, stream);
  fill(block->data, 0, 4, 10, stream);
  spin(stream, 10);
  {
    const Graph graph = capture(0, [&] { run_add(add, block, 7, current_stream(0), 10); });
    graph.launch(stream);
  }
  EXPECT_EQ(read_ints(block, 10, stream), std::vector<int>(10, 7));
  release(block, stream);
}

}  // namespace
}  // namespace kiln::cuda
