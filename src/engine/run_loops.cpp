// Loops over whole tensors: two plans, run in turn.
#include "engine/run.h"
#include "ir/layout.h"

#include <algorithm>

namespace kiln::engine {
namespace {

bool overwritten(const Plan& plan, std::size_t arg) {
  return std::find(plan.donated.begin(), plan.donated.end(), arg) != plan.donated.end();
}

}  // namespace

void Run::begin_states(const Loop& l, States& now) {
  const std::size_t counts = l.count > 0;
  if (counts) {
    now.buffers[0] = device_.allocate(sizeof(std::int64_t));
    now.args.push_back(now.buffers[0]->data);
  }
  for (std::size_t s = counts; s < l.states.size(); ++s) {
    const Loop::State& x = l.states[s];
    now.args.push_back(address(x.init));
    if (ir::is_row_major(x.dims, x.strides)) continue;
    now.buffers[s] = packed(address(x.init), x.dims, x.strides, x.dtype);
    now.args[s] = now.buffers[s]->data;
  }
  for (std::uint32_t s : l.body->donated) {  // which each iteration overwrites
    if (!now.buffers[s]) now.buffers[s] = packed(now.args[s], l.states[s].dims, {}, l.states[s].dtype);
    now.args[s] = now.buffers[s]->data;
  }
  for (const Place& p : l.captures) now.args.push_back(address(p));
}

void Run::loop(const Loop& l) {
  const std::size_t n = l.states.size(), counts = l.count > 0;
  States now(n);
  begin_states(l, now);
  Buffers made;
  for (std::int64_t iteration = 0; l.count ? iteration < l.count : goes_on(l, now.args); ++iteration) {
    if (counts) write_count(now.args[0], iteration);
    run_plan(*l.body, now.args, slots_, made.buffers);
    keep_yields(l, iteration, now.args, made.buffers);
    States next(n);
    if (counts) {  // nothing of this iteration reads it any more
      std::swap(next.buffers[0], now.buffers[0]);
      next.args.push_back(now.args[0]);
    }
    for (std::size_t s = counts; s < n; ++s) {
      const Plan::Result& r = l.body->results[s - counts];
      const Loop::State& x = l.states[s];
      ir::Buffer* const result = made.buffers[s - counts];
      const std::byte* from = shown(*l.body, r, result, now.args, x.dtype);
      const bool whole = r.offset == 0 && r.moved == 0 && r.strides.empty();
      if (!result && whole && r.place.index == s && overwritten(*l.body, s)) {
        std::swap(next.buffers[s], now.buffers[s]);
      } else if (result && whole) {
        next.buffers[s] = result;
        ir::retain(result);
      } else {
        next.buffers[s] = packed(from, x.dims, r.strides, x.dtype);
      }
      next.args.push_back(next.buffers[s]->data);
    }
    next.args.insert(next.args.end(), now.args.begin() + static_cast<std::ptrdiff_t>(n), now.args.end());
    made.drop();
    std::swap(now.buffers, next.buffers);
    std::swap(now.args, next.args);
  }
  if (counts && l.states[0].result.kind != Place::Kind::None) write_count(now.args[0], l.count);
  for (std::size_t s = 0; s < n; ++s) {
    if (l.states[s].result.kind == Place::Kind::None) continue;
    ir::Buffer*& result = buffers_[l.states[s].result.index];
    if (now.buffers[s])
      std::swap(result, now.buffers[s]);
    else
      pack(now.args[s], l.states[s].dims, {}, l.states[s].dtype, result->data);
  }
}

/// Numbers are written in ascending order, from 0.
void Run::write_count(std::byte* to, std::int64_t number) const {
  device_.write_number(to, number, static_cast<std::uint32_t>(number) != 0);
}

/// Copies what an iteration yields to its place in the stacks.
void Run::keep_yields(const Loop& l, std::int64_t iteration, const std::vector<std::byte*>& args,
                      const std::vector<ir::Buffer*>& made) const {
  for (std::size_t y = 0; y < l.yields.size(); ++y) {
    const Loop::Yield& x = l.yields[y];
    if (x.stack.kind == Place::Kind::None) continue;
    const std::size_t i = l.states.size() - (l.count > 0) + y;
    const Plan::Result& r = l.body->results[i];
    const std::byte* from = shown(*l.body, r, made[i], args, x.dtype);
    std::int64_t bytes = size_of(x.dtype);
    for (std::int64_t d : x.dims) bytes *= d;
    pack(from, x.dims, r.strides, x.dtype, address(x.stack) + iteration * bytes);
  }
}

bool Run::goes_on(const Loop& l, const std::vector<std::byte*>& args) const {
  Buffers made;
  run_plan(*l.condition, args, slots_, made.buffers);
  const Plan::Result& r = l.condition->results.front();
  return device_.read_truth(shown(*l.condition, r, made.buffers.front(), args, DType::Bool));
}

/// A row-major copy; no strides: it is row-major already.
ir::Buffer* Run::packed(const std::byte* from, const std::vector<std::int64_t>& dims,
                        const std::vector<std::int64_t>& strides, DType type) const {
  const auto size = static_cast<std::size_t>(size_of(type));
  ir::Buffer* out = device_.allocate(static_cast<std::uint64_t>(ir::element_count(dims)) * size);
  pack(from, dims, strides, type, out->data);
  return out;
}

}  // namespace kiln::engine
